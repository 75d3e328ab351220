"""omni-kit skills: the pack that agents load."""

import typer
from rich.console import Console
from rich.markup import escape

from omni_kit.cli.app import app
from omni_kit.cli.options import FormatOption, FullOption
from omni_kit.output import Format, Output, table

skills_app = typer.Typer(help="The skills that agents load.", no_args_is_help=True)
app.add_typer(skills_app, name="skills")


@skills_app.command("list")
def list_command(fmt: FormatOption = Format.human, full: FullOption = False) -> None:
    """List the skills, with what each is for and where it lies."""
    from omni_kit.skillpack import load_skills

    skills = load_skills()

    def render(console: Console) -> None:
        rows = table("skill", "what it is for")
        for skill in skills:
            rows.add_row(skill.name, escape(skill.description))
        console.print(rows)

    data = {"skills": [{"name": s.name, "description": s.description, "path": str(s.path)} for s in skills]}
    Output("skills", fmt, full).finish(data, ok=True, human=render)
