"""`omni-kit parity`: compare an integration with upstream."""

from enum import StrEnum
from pathlib import Path
from shutil import get_terminal_size
from textwrap import TextWrapper
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from omni_kit.cli.app import app
from omni_kit.cli.commands import Command
from omni_kit.cli.options import DiffusersOption, FormatOption, FullOption, TransformersOption
from omni_kit.errors import BadInput
from omni_kit.output import Format, Output, table

if TYPE_CHECKING:
    from omni_kit.parity import ParityReport
    from omni_kit.parity.report.report import Proof


class _Command(Command):
    """Its help text names the levels as they declare themselves; they are imported only when it is shown."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Puts the table of levels in its place."""
        self.help = (self.help or "").replace("LEVELS", _levels())
        super().format_help(ctx, formatter)


def _levels() -> str:
    from omni_kit.parity.levels import BY_NAME

    width = max(map(len, BY_NAME))
    wrapped = TextWrapper(get_terminal_size().columns - 2, subsequent_indent=" " * (width + 4))
    rows = [
        wrapped.fill(f"{'*' if level.default else '-'} {name:{width}}  {level.says}") for name, level in BY_NAME.items()
    ]
    head = "Levels; those with a star run unless --levels says otherwise, as far as both sides can run them:"
    return "\n".join([head, "", "\b", *rows])


_COLOURS = {"pass": "green", "fail": "red", "skip": "yellow", "error": "yellow"}


class ToyLayout(StrEnum):
    """How the checkpoint of a toy is written."""

    hub = "hub"
    memory = "memory"


@app.command("parity", cls=_Command)
def parity(
    path: Annotated[Path | None, typer.Argument(metavar="PATH", help="The directory of an integration.")] = None,
    target: Annotated[str | None, typer.Option(help="The framework, where several could know the directory.")] = None,
    levels: Annotated[str | None, typer.Option("--levels", metavar="L,...", help="Only these levels.")] = None,
    checkpoint: Annotated[Path | None, typer.Option("--checkpoint", help="A toy checkpoint to compare on.")] = None,
    layout: Annotated[
        ToyLayout, typer.Option("--layout", help="How the toy checkpoint is written: as published, or fused.")
    ] = ToyLayout.hub,
    device: Annotated[str, typer.Option("--device", metavar="cpu|cuda", help="Where to compute.")] = "cpu",
    work_dir: Annotated[Path | None, typer.Option("--work-dir", help="Keep tensors and logs here.")] = None,
    timeout: Annotated[float, typer.Option("--timeout", metavar="SECONDS", help="For one step of a process.")] = 300.0,
    prove: Annotated[bool, typer.Option("--prove", help="Plant faults, and report which would be noticed.")] = False,
    html: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write the report as a page.")] = None,
    replay: Annotated[
        Path | None, typer.Option("--replay", metavar="FILE", help="Run a failed comparison again, from its file.")
    ] = None,
    transformers: TransformersOption = None,
    diffusers: DiffusersOption = None,
    fmt: FormatOption = Format.human,
    full: FullOption = False,
) -> None:
    """Load, run and differentiate an integration beside upstream, and compare every tensor.

    LEVELS

    On a CPU, opslots fills each slot with a reference in torch, and the last
    three run over gloo; what only an accelerator can run is stood in for, as the
    notes say. With --device cuda each slot gets the real kernels, too, and the
    processes get NCCL and no stand-ins.

    A level that cannot be run here (error) or that makes no sense for this model
    (skip) is not a pass: exit code 3.

    --prove plants some fifty kinds of faults in the candidate's model, one at a
    time and wherever its code has a place for them, and asks the levels: how many
    were noticed, and how many blamed on the right module. One that was missed is
    exit code 1.

    A comparison that fails leaves a small file behind, and the command that runs
    it again: --replay FILE, the same toy, levels and options. With PATH, another
    directory is compared in that way.
    """
    from omni_kit.parity import check_page, replay_parity, run_parity, write_page
    from omni_kit.pysource.library import used_instead

    output = Output("parity", fmt, full)
    if path is None and replay is None:
        raise BadInput("nothing to compare was given", "give the directory of an integration, or --replay FILE")
    if replay is not None and (transformers or diffusers):
        raise BadInput("--replay runs the installed versions", "leave out --transformers and --diffusers")
    if replay is not None and (levels or checkpoint or prove or target):
        raise BadInput("--replay runs what the file says", "leave out --target, --levels, --checkpoint and --prove")
    if html is not None:
        check_page(html)
    names = None if levels is None else [name.strip() for name in levels.split(",") if name.strip()]
    with (
        used_instead({"transformers": transformers, "diffusers": diffusers}) as libraries,
        output.status(f"comparing {path or replay} with upstream"),
    ):
        if replay is not None:
            report = replay_parity(replay, path=path, work_dir=work_dir, every_module=html is not None, say=output.say)
        elif path is not None:
            report = run_parity(
                path,
                names,
                target=target,
                checkpoint=checkpoint,
                layout=layout.value,
                work_dir=work_dir,
                device=device,
                timeout=timeout,
                prove=prove,
                every_module=html is not None,
                libraries=libraries,
                say=output.say,
            )
        else:
            raise BadInput("nothing to compare was given", "give a model directory, or --replay FILE")
    if html is not None:
        write_page(report, html)
        output.say(f"wrote {html}")
    output.finish(
        report.to_json(),
        ok=report.ok,
        human=lambda console: show(console, report),
        notes=report.notes,
        exit_code=report.exit_code,
    )


def show(console: Console, report: "ParityReport") -> None:
    """Every level with its figures, and the first module to blame."""
    rows = table(
        "level",
        "status",
        "max rel",
        "tolerance",
        "seconds",
        "reason",
        title=report.model_type or report.path,
        framed=True,
    )
    for level in report.levels:
        colour = _COLOURS[level.status]
        figures = ["" if value is None else f"{value:.1e}" for value in (level.max_rel, level.tolerance)]
        status = f"[{colour}]{level.status}[/{colour}]"
        rows.add_row(level.level, status, *figures, f"{level.seconds:.1f}", escape(level.reason))
    console.print(rows)
    if (found := report.first_divergence) is not None:
        console.print(f"first divergence: [bold]{escape(found.module)}[/bold] adds {found.added:.1e} to {found.what}")
        for side, source in (("candidate", found.candidate_source), ("upstream", found.reference_source)):
            console.print(f"  {side:9} {escape(source)}", soft_wrap=True)
    if report.prove is not None:
        show_proof(console, report.prove)
    if report.again:
        console.print(f"again: {escape(report.again)}", soft_wrap=True)


def show_proof(console: Console, proof: "Proof") -> None:
    """How many planted faults were noticed, and each one that was not, or that was blamed on another module."""
    console.print(f"planted {proof.faults} faults: {proof.detected} detected, {proof.located} located")
    for what, names in (("missed", proof.missed), ("mislocated", proof.mislocated), ("idle", proof.idle)):
        for name in names:
            console.print(f"  {what:10} {escape(name)}", soft_wrap=True)
