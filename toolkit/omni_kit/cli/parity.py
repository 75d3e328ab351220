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
from omni_kit.cli.options import Device, DeviceOption, DiffusersOption, FormatOption, FullOption, TransformersOption
from omni_kit.errors import BadInput
from omni_kit.output import Format, Output, table
from omni_kit.plurals import counted

if TYPE_CHECKING:
    from omni_kit.parity import ParityReport
    from omni_kit.parity.report.report import Proof


class _Command(Command):
    """Build the help text from the levels' declarations, imported only when help is shown."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Insert the table of levels."""
        self.help = (self.help or "").replace("LEVELS", _levels())
        super().format_help(ctx, formatter)


def _levels() -> str:
    from omni_kit.parity.levels import BY_NAME

    width = max(map(len, BY_NAME))
    wrapped = TextWrapper(get_terminal_size().columns - 2, subsequent_indent=" " * (width + 4))
    rows = [
        wrapped.fill(f"{'*' if level.default else '-'} {name:{width}}  {level.described}")
        for name, level in BY_NAME.items()
    ]
    head = "Levels; those marked * run by default when both sides support them:"
    return "\n".join([head, "", "\b", *rows])


_COLOURS = {"pass": "green", "fail": "red", "skip": "yellow", "error": "yellow"}


class ToyLayout(StrEnum):
    """Layout of a toy checkpoint."""

    hub = "hub"
    memory = "memory"


@app.command("parity", cls=_Command)
def parity(
    path: Annotated[Path | None, typer.Argument(metavar="PATH", help="Directory of an integration.")] = None,
    target: Annotated[str | None, typer.Option(help="Target framework, if several match the directory.")] = None,
    levels: Annotated[
        str | None, typer.Option("--levels", metavar="L,...", help="Levels to run, comma-separated.")
    ] = None,
    checkpoint: Annotated[Path | None, typer.Option("--checkpoint", help="Toy checkpoint to compare on.")] = None,
    layout: Annotated[
        ToyLayout,
        typer.Option(
            "--layout", help="Layout of the toy checkpoint: as published on the hub, or as the module holds it."
        ),
    ] = ToyLayout.hub,
    device: DeviceOption = Device.cpu,
    work_dir: Annotated[
        Path | None, typer.Option("--work-dir", help="Directory in which to keep tensors and logs.")
    ] = None,
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", min=1, help="Time limit of one step of a process.")
    ] = 300.0,
    prove: Annotated[bool, typer.Option("--prove", help="Inject faults, and report which levels detect them.")] = False,
    html: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write an HTML report.")] = None,
    replay: Annotated[
        Path | None, typer.Option("--replay", metavar="FILE", help="Rerun a failed comparison from its file.")
    ] = None,
    emit_export: Annotated[
        Path | None,
        typer.Option("--emit-export", metavar="FILE", help="Write a module that exports weights without casting them."),
    ] = None,
    transformers: TransformersOption = None,
    diffusers: DiffusersOption = None,
    fmt: FormatOption = Format.human,
    full: FullOption = False,
) -> None:
    """Run an integration and upstream on the same inputs, and compare every tensor and gradient.

    LEVELS

    On a CPU, opslots fills each slot with a torch reference, and sp, fsdp and ep
    run over gloo; the notes name each stand-in for accelerator-only code. With
    --device cuda, each slot also runs the real kernels, and processes use NCCL.

    A level that could not run (error) or does not apply to this model (skip) is
    not a pass: exit code 3.

    --prove injects about fifty kinds of faults into the candidate's model, one at
    a time, wherever its code has a site for them. It reports how many the levels
    detect and how many they localise to the right module. Exit code 1 if a fault
    is missed.

    A failed comparison writes a small file. --replay FILE reruns it with the same
    toy, levels and options; add PATH to compare another directory in that way.
    """
    from omni_kit.parity import check_page, replay_parity, run_parity, write_page
    from omni_kit.patchgen.upgrade.versions import needed_by
    from omni_kit.pysource.library import used_instead
    from omni_kit.scaffold.converter import write_export

    output = Output("parity", fmt, full)
    if path is None and replay is None:
        raise BadInput("no integration to compare", "pass its directory, or --replay FILE")
    if replay is not None and (transformers or diffusers):
        raise BadInput("--replay runs the installed versions", "leave out --transformers and --diffusers")
    if replay is not None and (levels or checkpoint or prove or target):
        raise BadInput(
            "--replay takes its options from the file", "leave out --target, --levels, --checkpoint and --prove"
        )
    if html is not None:
        check_page(html)
    if emit_export is not None:
        if path is None:
            raise BadInput("--emit-export needs an integration", "pass its directory")
        output.say(write_export(path, emit_export))
    names = None if levels is None else [name.strip() for name in levels.split(",") if name.strip()]
    others = {"transformers": transformers, "diffusers": diffusers}
    with (
        used_instead(others) as libraries,
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
                device=device.value,
                timeout=timeout,
                prove=prove,
                every_module=html is not None,
                libraries=[*libraries, *needed_by(others)],
                say=output.say,
            )
        else:
            raise BadInput("no integration to compare", "pass its directory, or --replay FILE")
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
    """Render every level with its figures, and the first module that adds error."""
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
        console.print(f"rerun: {escape(report.again)}", soft_wrap=True)


def show_proof(console: Console, proof: "Proof") -> None:
    """Render how many injected faults were detected, and each that was missed or localised to another module."""
    console.print(f"{counted(proof.faults, 'fault')} injected: {proof.detected} detected, {proof.located} localised")
    for what in ("missed", "mislocated", "idle", "equal"):
        for name in getattr(proof, what):
            console.print(f"  {what:10} {escape(name)}", soft_wrap=True)
