"""omni-kit skills: install and check agent skills."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

from omni_kit.cli.app import app
from omni_kit.cli.check import show_findings
from omni_kit.cli.commands import Commands
from omni_kit.cli.gating import for_machines, ids
from omni_kit.cli.options import FindingsFormat, FormatOption, FullOption, IgnoreOption, SelectOption, StrictOption
from omni_kit.output import Format, Output, table
from omni_kit.plurals import counted
from omni_kit.skillpack import Agent, Place

if TYPE_CHECKING:
    from omni_checkers import Report
    from omni_kit.skillpack import Change

skills_app = Commands(help="Install and check agent skills.", no_args_is_help=True)
app.add_typer(skills_app, name="skills")

_NamesArgument = Annotated[list[str] | None, typer.Argument(metavar="NAME", help="Names of skills; all by default.")]
_AgentOption = Annotated[
    Agent, typer.Option(help="Agent to install for; `agents` is the folder that several agents read.")
]
_DirOption = Annotated[Path | None, typer.Option("--dir", metavar="DIR", help="Use this folder instead of an agent's.")]
_PlaceOption = Annotated[
    bool, typer.Option("--project/--user", help="Install for all projects instead of the working directory.")
]


@skills_app.command("list")
def list_command(fmt: FormatOption = Format.human, full: FullOption = False) -> None:
    """List the skills, their purpose and location."""
    from omni_kit.skillpack import load_skills

    skills = load_skills()

    def render(console: Console) -> None:
        rows = table("skill", "purpose")
        for skill in skills:
            rows.add_row(skill.name, escape(skill.description))
        console.print(rows)

    data = {"skills": [{"name": s.name, "description": s.description, "path": str(s.path)} for s in skills]}
    Output("skills", fmt, full).finish(data, ok=True, human=render)


@skills_app.command("add")
def add_command(
    names: _NamesArgument = None,
    agent: _AgentOption = Agent.agents,
    project: _PlaceOption = True,
    folder: _DirOption = None,
    fmt: FormatOption = Format.human,
    full: FullOption = False,
) -> None:
    """Install skills for an agent; never replace a person's files."""
    from omni_kit.skillpack import add

    _finish(add(Place(agent, project, folder), names or []), fmt, full)


@skills_app.command("update")
def update_command(
    names: _NamesArgument = None,
    agent: _AgentOption = Agent.agents,
    project: _PlaceOption = True,
    folder: _DirOption = None,
    fmt: FormatOption = Format.human,
    full: FullOption = False,
) -> None:
    """Update installed skills to this version; keep and report edited files."""
    from omni_kit.skillpack import update

    _finish(update(Place(agent, project, folder), names or []), fmt, full)


@skills_app.command("remove")
def remove_command(
    names: _NamesArgument = None,
    agent: _AgentOption = Agent.agents,
    project: _PlaceOption = True,
    folder: _DirOption = None,
    fmt: FormatOption = Format.human,
    full: FullOption = False,
) -> None:
    """Remove installed skills; keep and report files that a person edited or added."""
    from omni_kit.skillpack import remove

    _finish(remove(Place(agent, project, folder), names or []), fmt, full)


@skills_app.command("check")
def check_command(
    paths: Annotated[
        list[Path] | None, typer.Argument(metavar="DIR", help="Folders of skills; by default omni-kit's own.")
    ] = None,
    checkout: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Repository in which the named paths must exist.")
    ] = None,
    select: SelectOption = None,
    ignore: IgnoreOption = None,
    strict: StrictOption = False,
    ask: Annotated[
        bool,
        typer.Option("--ask", help="Run every named program outside the repository with --help, even unknown ones."),
    ] = False,
    fmt: Annotated[FindingsFormat, typer.Option("--format", help="Output format.")] = FindingsFormat.human,
    full: FullOption = False,
) -> None:
    """Check skills: their form, and that the commands, flags, files and versions they name exist.

    The commands that a skill shows are not run, and packages are read, not imported. Programs known to support --help
    run with that option only: those of installed distributions, and those whose man page or shell completion lists it.
    The notes list the programs that ran, and what was not tested.
    """
    from omni_checkers.skills import check_skills
    from omni_kit.cli.tree import command_tree
    from omni_kit.resources import resource_dir

    report = check_skills(
        paths or [resource_dir("skills")],
        known={"omni-kit": command_tree()},
        checkout=checkout,
        select=ids(select),
        ignore=ids(ignore),
        strict=strict,
        ask=ask,
    )
    if fmt in {FindingsFormat.sarif, FindingsFormat.github}:
        for note in report.notes:
            typer.echo(f"note: {note}", err=True)
        typer.echo(for_machines(report, fmt), nl=False)
        raise typer.Exit(0 if report.ok else 1)
    output = Output("skills", Format(fmt.value), full)
    output.finish(_as_json(report), ok=report.ok, human=partial(_render, report), notes=report.notes)


def _as_json(report: "Report") -> dict[str, object]:
    """Return the JSON form of check's report for skills."""
    said = report.as_json()
    checked = said["checked"]
    return {
        "findings": said["findings"],
        "checked": {"skills": checked["models"], "files": checked["files"], "rules": checked["rules"]},
        "suppressed": said["suppressed"],
        "results": [
            {"rule": r["rule"], "skill": Path(r["model"]).name, "status": r["status"], "reason": r["reason"]}
            for r in said["results"]
        ],
    }


def _render(report: "Report", console: Console) -> None:
    show_findings(report, _as_json(report), console)


def _finish(changes: "list[Change]", fmt: Format, full: bool) -> None:
    """Report what was done with each file; keeping an edited file is not a failure."""
    data = {"files": [{"path": str(c.path), "skill": c.skill, "action": c.action} for c in changes]}

    def render(console: Console) -> None:
        for change in changes:
            if change.action != "unchanged":
                console.print(f"{change.action:9}  {escape(str(change.path))}", soft_wrap=True)
        names = sorted({change.skill for change in changes})
        console.print(f"{counted(names, 'skill')}: {', '.join(names) or 'none'}", soft_wrap=True)

    kept = [change for change in changes if change.action == "kept"]
    notes = [f"kept {counted(kept, 'edited file')}; move one away to install ours"] if kept else []
    Output("skills", fmt, full).finish(
        data, ok=not any(c.action == "conflict" for c in changes), human=render, notes=notes
    )
