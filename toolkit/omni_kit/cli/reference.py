"""omni-kit reference: the worked examples of the installed version."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from omni_kit.cli.app import app
from omni_kit.cli.options import FormatOption, FullOption
from omni_kit.output import Format, Output, table

reference_app = typer.Typer(help="Finished integrations to read and to copy.", no_args_is_help=True)
app.add_typer(reference_app, name="reference")

_NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="An example, as `reference list` names it.")]


@reference_app.command("list")
def list_command(fmt: FormatOption = Format.human, full: FullOption = False) -> None:
    """List the worked examples."""
    from omni_kit.examples import examples

    found = examples()

    def render(console: Console) -> None:
        rows = table("example", "target", "files")
        for example in found:
            rows.add_row(escape(example.name), escape(example.target), str(len(example.files)))
        console.print(rows)

    listed = [{"name": e.name, "target": e.target, "model": e.model, "path": str(e.path)} for e in found]
    Output("reference", fmt, full).finish({"references": listed}, ok=True, human=render)


@reference_app.command("show")
def show_command(
    name: _NameArgument,
    file: Annotated[
        str | None, typer.Argument(metavar="[FILE]", help="One of its files; all names by default.")
    ] = None,
    fmt: FormatOption = Format.human,
    full: FullOption = False,
) -> None:
    """Show the files of an example, or the text of one."""
    from omni_kit.examples import find_example

    example = find_example(name)
    shown = [file] if file is not None else example.files
    files = [{"path": path, "lines": len(example.read(path).splitlines())} for path in shown]

    def render(console: Console) -> None:
        if file is not None:
            console.out(example.read(file), end="")
            return
        rows = table("file", "lines")
        for row in files:
            rows.add_row(escape(str(row["path"])), str(row["lines"]))
        console.print(rows)
        console.print(escape(f"one of them: omni-kit reference show {example.name} FILE"), soft_wrap=True)

    data = {"name": example.name, "target": example.target, "path": str(example.path), "files": files}
    if file is not None:
        data["text"] = example.read(file)
    Output("reference", fmt, full).finish(data, ok=True, human=render)


@reference_app.command("copy")
def copy_command(
    name: _NameArgument,
    into: Annotated[Path, typer.Option(metavar="DIR", help="Where its directory is put.")] = Path(),
    fmt: FormatOption = Format.human,
    full: FullOption = False,
) -> None:
    """Copy an example to DIR; what is there already is never replaced."""
    from omni_kit.examples import copy_example, find_example

    example = find_example(name)
    place = copy_example(example, into)
    data = {
        "name": example.name,
        "target": example.target,
        "path": str(place),
        "files": [{"path": path, "action": "create"} for path in example.files],
    }
    Output("reference", fmt, full).finish(
        data, ok=True, human=lambda console: console.print(f"copied to {escape(str(place))}", soft_wrap=True)
    )
