"""omni-kit update: render an integration again and merge it with edits."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from omni_kit.cli.app import app
from omni_kit.cli.options import DiffOption, DryRunOption, FormatOption, FullOption
from omni_kit.output import Format, Output

if TYPE_CHECKING:
    from omni_kit.scaffold import Update


@app.command("update")
def update_command(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Directory of an integration that new-model wrote.")],
    source: Annotated[
        str | None,
        typer.Option("--from", metavar="SOURCE", help="Current location of the source; by default the recorded one."),
    ] = None,
    dry_run: DryRunOption = False,
    diff: DiffOption = False,
    fmt: FormatOption = Format.human,
    full: FullOption = False,
) -> None:
    """Render an integration again and merge it three-way with your edits. No edit is lost."""
    from omni_kit.scaffold import update

    result = update(directory, source=source, dry_run=dry_run or diff)
    data: dict[str, Any] = {
        "files": [{"path": change.path, "action": change.action} for change in result.changes],
        "todo": [vars(todo) for todo in result.plan.todo],
        "next": list(result.plan.next),
    }
    if diff:
        data["diff"] = "\n".join(change.diff() for change in result.changes if change.diff())
    Output("update", fmt, full).finish(
        data,
        ok=result.ok,
        human=lambda console: _render(result, data, console, dry_run or diff),
        notes=result.notes,
    )


def _render(result: "Update", data: dict[str, Any], console: Console, dry_run: bool) -> None:
    if "diff" in data:
        console.print(escape(data["diff"]), soft_wrap=True)
    console.print(f"{'would merge' if dry_run else 'merged'} into {escape(str(result.root))}:", soft_wrap=True)
    for change in result.changes:
        console.print(f"  {change.action:<10}{escape(change.path)}", soft_wrap=True)
    if any(change.action != "unchanged" for change in result.changes):
        console.print("next:")
        for command in data["next"]:
            console.print(f"  {escape(command)}", soft_wrap=True)
