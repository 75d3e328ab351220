"""omni-kit doctor: report what is installed and what is missing."""

from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from omni_kit.cli.app import app
from omni_kit.cli.options import FormatOption
from omni_kit.output import Format, Output, table


@app.command("doctor")
def doctor_command(
    target: Annotated[str | None, typer.Option(help="Check only what this target needs.")] = None,
    fmt: FormatOption = Format.human,
) -> None:
    """Show what is installed and importable, and how to install the rest. Exit 3 if anything is missing."""
    from omni_kit.doctor import examine
    from omni_kit.targets.registry import chosen

    chosen(target)  # who names one that is none need not wait for the imports
    output = Output("doctor", fmt)
    with output.status("importing installed packages"):
        components = examine(target)
    missing = [component for component in components if component.status != "ok"]

    def render(console: Console) -> None:
        rows = table("component", "version", "needed by", "status", "fix")
        for item in components:
            colour = "green" if item.status == "ok" else "red"
            version, fix = item.version or "", escape(item.fix)
            rows.add_row(item.name, version, escape(item.needed_by), f"[{colour}]{item.status}[/]", fix)
        console.print(rows)
        for item in components:
            if item.problem:
                console.print(
                    f"[red]{item.name}[/red] does not meet {escape(item.needed_by)}: {escape(item.problem)}",
                    soft_wrap=True,
                )

    data = {"components": [vars(component) for component in components]}
    output.finish(data, ok=not missing, human=render, exit_code=3 if missing else None)
