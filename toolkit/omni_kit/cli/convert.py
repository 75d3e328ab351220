"""omni-kit convert: convert a checkpoint to another expert layout, bit for bit."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from omni_kit.cli.app import app
from omni_kit.cli.options import DiffusersOption, FormatOption, FullOption, SourceArgument, TransformersOption
from omni_kit.output import Format, Output
from omni_kit.plurals import counted

if TYPE_CHECKING:
    from omni_kit.convert import Converted


@app.command("convert")
def convert_command(
    source: SourceArgument,
    destination: Annotated[Path, typer.Argument(metavar="DST", help="Output directory; must be empty or not exist.")],
    to: Annotated[
        str,
        typer.Option(
            metavar="FORM",
            help="canonical: gate_up_proj [E, 2I, H], down_proj [E, H, I]. memory: the module's own layout. "
            "hub: the layout of published checkpoints.",
        ),
    ],
    dtype: Annotated[
        str | None,
        typer.Option(help="Cast floating-point tensors to bfloat16, float16 or float32, except scales and routers."),
    ] = None,
    shard_size: Annotated[
        str, typer.Option(metavar="SIZE", help="Maximum size of one file, for example 5GB or 500MB.")
    ] = "5GB",
    verify: Annotated[
        bool, typer.Option("--verify", help="Flush to disk, read every file again, and compare content hashes.")
    ] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Resume an interrupted run of the same command.")] = False,
    jobs: Annotated[int, typer.Option(min=1, help="Threads.")] = 4,
    transformers: TransformersOption = None,
    diffusers: DiffusersOption = None,
    fmt: FormatOption = Format.human,
    full: FullOption = False,
) -> None:
    """Convert a checkpoint between expert layouts, bit for bit. Needs no torch; torchrun ranks share the work."""
    from omni_kit.convert import convert

    output = Output("convert", fmt, full)
    done = convert(
        source, destination, to=to, dtype=dtype, shard_size=shard_size, verify=verify, resume=resume, jobs=jobs,
        transformers=transformers, diffusers=diffusers, progress=output.progress,
    )  # fmt: skip
    if done.rank:
        raise typer.Exit()

    notes = [*done.notes, *(f"damaged: {key} cannot be rebuilt from what was written" for key in done.damaged)]
    output.finish(done.as_json(), ok=not done.damaged, human=partial(_render, done, destination), notes=notes)


def _render(done: "Converted", destination: Path, console: Console) -> None:
    tensors, resumed = done.tensors, " (resumed)" if done.resumed else ""
    shown = f"{tensors.passed_through} passed through, {tensors.converted} converted"
    console.print(
        f"wrote     {destination}{resumed}: {counted(tensors.written, 'tensor')} in {counted(done.shards, 'file')}",
        soft_wrap=True,
    )
    console.print(f"tensors   {tensors.read} read, {shown}, {done.bytes / 1e9:.3f} GB")
    console.print(f"took      {done.seconds:.1f} s, at most {done.peak_rss_bytes / 2**20:.0f} MiB of memory")
    console.print(f"verified  {'every source tensor can be rebuilt from what was written' if done.verified else 'no'}")
