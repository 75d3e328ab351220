"""omni-kit reference: finished integrations, and small checkpoints of upstream models."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from omni_kit.cli.app import app
from omni_kit.cli.commands import Commands
from omni_kit.cli.options import FormatOption, FullOption
from omni_kit.output import Format, Output, shown, table

if TYPE_CHECKING:
    from omni_kit.examples import Example

reference_app = Commands(help="List, show and copy finished integrations; write toy checkpoints.", no_args_is_help=True)
app.add_typer(reference_app, name="reference")

_NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of an example; see `reference list`.")]


@reference_app.command("list")
def list_command(fmt: FormatOption = Format.human, full: FullOption = False) -> None:
    """List the finished integrations."""
    from omni_kit.examples import examples

    found = examples()

    def render(console: Console) -> None:
        rows = table("example", "target", "files")
        for example in found:
            rows.add_row(escape(example.name), escape(example.target), str(len(example.files)))
        console.print(rows)

    Output("reference", fmt, full).finish({"references": [_as_json(e, e.path) for e in found]}, ok=True, human=render)


@reference_app.command("show")
def show_command(
    name: _NameArgument,
    file: Annotated[str | None, typer.Argument(metavar="FILE", help="One of its files; by default list all.")] = None,
    fmt: FormatOption = Format.human,
    full: FullOption = False,
) -> None:
    """Show the files of an example, or the text of one."""
    from omni_kit.examples import find_example

    example = find_example(name)
    text = example.read(file) if file is not None else None
    lines = {path: len(example.read(path).splitlines()) for path in example.files}

    def render(console: Console) -> None:
        if text is not None:
            console.out(shown(text), end="")
            return
        rows = table("file", "lines")
        for path, count in lines.items():
            rows.add_row(escape(path), str(count))
        console.print(rows)
        console.print(escape(f"one of them: omni-kit reference show {example.name} FILE"), soft_wrap=True)

    data = {"references": [_as_json(example, example.path, file, text)]}
    Output("reference", fmt, full).finish(data, ok=True, human=render)


@reference_app.command("copy")
def copy_command(
    name: _NameArgument,
    into: Annotated[Path, typer.Option(metavar="DIR", help="Directory to copy it into.")] = Path(),
    fmt: FormatOption = Format.human,
    full: FullOption = False,
) -> None:
    """Copy an example into DIR; never replace existing files."""
    from omni_kit.examples import copy_example, find_example

    example = find_example(name)
    place = copy_example(example, into)
    data = {"references": [_as_json(example, place)]}
    Output("reference", fmt, full).finish(
        data, ok=True, human=lambda console: console.print(f"copied to {escape(str(place))}", soft_wrap=True)
    )


@reference_app.command("toy")
def toy_command(
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="A pipeline or transformer of diffusers, or a model_type.")
    ],
    into: Annotated[Path, typer.Option(metavar="DIR", help="Output directory; must be empty or not exist.")],
    fmt: FormatOption = Format.human,
    full: FullOption = False,
) -> None:
    """Write a small checkpoint with random weights, as upstream saves it.

    The checkpoint has the model's decisions and small sizes, so that your own
    tests run in seconds on a CPU. A pipeline is a directory with model_index.json,
    as `DiffusionPipeline.from_pretrained` loads it. Parity compares on the same
    toy. The same SOURCE and versions give the same weights.
    """
    from omni_kit.parity import make_toy_checkpoint

    output = Output("reference", fmt, full)
    with output.status(f"making a small {source}"):
        place = make_toy_checkpoint(source, into)
    files = [path for path in sorted(place.rglob("*")) if path.is_file()]
    data: dict[str, Any] = {
        "source": source,
        "path": str(place.resolve()),
        "files": [str(path.relative_to(place)) for path in files],
        "bytes": sum(path.stat().st_size for path in files),
    }

    def render(console: Console) -> None:
        console.print(f"wrote {escape(str(place))}: {len(files)} files, {data['bytes'] / 1e6:.1f} MB", soft_wrap=True)

    output.finish({"references": [], "toy": data}, ok=True, human=render)


def _as_json(example: "Example", place: Path, file: str | None = None, text: str | None = None) -> dict[str, Any]:
    """Return one example as every subcommand tells it; `text` is that of `file`."""
    return {
        "name": example.name,
        "target": example.target,
        "model": example.model,
        "path": str(place),
        "files": example.files,
        "file": file,
        "text": text,
    }
