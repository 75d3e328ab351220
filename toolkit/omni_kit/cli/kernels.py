"""`omni-kit kernels`: measure the fastest correct kernel for each slot."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

from omni_kit.cli.app import app
from omni_kit.cli.options import Device, DeviceOption, FormatOption, FullOption
from omni_kit.errors import BadInput
from omni_kit.output import Format, Output, table
from omni_kit.plurals import counted

if TYPE_CHECKING:
    from omni_kit.kernels.result import KernelReport

_COLOURS = {"proven": "green", "wrong": "red", "failed": "red"}
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)([kmb]?)", re.IGNORECASE)
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9}


@app.command("kernels")
def kernels_command(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="Directory of an integration.")],
    target: Annotated[str | None, typer.Option(help="Target framework, if several match the directory.")] = None,
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="config.json of the model to train.")
    ] = None,
    size: Annotated[
        str,
        typer.Option("--size", metavar="1b", help="Without --config: scale the model to this number of parameters."),
    ] = "1b",
    device: DeviceOption = Device.cuda,
    sequence: Annotated[
        int,
        typer.Option("--sequence", min=2, help="Tokens per sequence; of a diffusion transformer, patches per sample."),
    ] = 4096,
    micro_batch: Annotated[int, typer.Option("--micro-batch", min=1, help="Sequences, or samples, per step.")] = 1,
    memory: Annotated[
        float | None,
        typer.Option("--memory", metavar="GB", help="Memory limit of a step in GB; by default upstream's own use."),
    ] = None,
    steps: Annotated[int, typer.Option("--steps", min=1, help="Timed steps per measurement.")] = 6,
    seconds: Annotated[
        float, typer.Option("--seconds", min=1, help="Start no new measurement after this time.")
    ] = 100.0,
    write_yaml: Annotated[
        Path | None, typer.Option("--write-yaml", metavar="FILE", help="Write the choice into this training YAML.")
    ] = None,
    html: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write an HTML report.")] = None,
    fmt: FormatOption = Format.human,
    full: FullOption = False,
) -> None:
    """Verify each slot's kernels, time them in a training step, and recommend a choice.

    First, every kernel of a slot runs on the model's own inputs at the trained width,
    and is compared with an independent reference. Kernels that are wrong, or that end
    their process, are reported and excluded.

    Then a training step (forward and backward, random weights) is timed with other
    choices: one slot at a time, then the combinations that may be the fastest, in
    rounds with the default before and after a few of them. The search ends when no
    remaining combination is expected to be faster, or after --seconds. Upstream's own
    step is timed, too.

    Exit code 1 if the integration is slower than upstream and also uses more memory.
    Exit code 3 without the device, and with --device cpu: the report lists what could
    be measured, or what a CPU can run.
    """
    from omni_kit.parity.candidate import require

    require({}, "kernels")  # the next modules import torch
    from omni_kit.kernels.page import check_page, write_page
    from omni_kit.kernels.run import BenchOptions, find_kernels
    from omni_kit.kernels.training_file import check_training_file, merge_file

    output = Output("kernels", fmt, full)
    if html is not None:
        check_page(html)
    if write_yaml is not None:
        check_training_file(write_yaml)
    asked = BenchOptions(
        config, _parameters(size), device.value, sequence=sequence, micro_batch=micro_batch, memory=memory, steps=steps,
        seconds=seconds,
    )  # fmt: skip
    with output.status(f"measuring the kernels of {path}"):
        report = find_kernels(path, asked, target=target, say=output.say)
    if html is not None:
        write_page(report, html)
        output.say(f"wrote {html}")
    if write_yaml is not None and report.recommended is not None:
        merge_file(write_yaml, report.settings)
        output.say(f"wrote {write_yaml}")
    output.finish(
        report.to_json(),
        ok=report.exit_code == 0,
        human=lambda console: show(console, report),
        notes=report.notes,
        exit_code=report.exit_code,
    )


def _parameters(size: str) -> int:
    """Parse a number of parameters such as "1b" or "350m".

    Raises:
        BadInput: it says no number.
    """
    match = _SIZE.fullmatch(size)
    if match is None or not float(match[1]):
        raise BadInput(f"'{size}' is not a size", "write 1b, 350m or a number of parameters")
    return int(float(match[1]) * _UNITS[match[2].lower()])


def show(console: Console, report: "KernelReport") -> None:
    """Every kernel with its figures, the front, and what to paste."""
    from omni_kit.kernels.training_file import block

    _show_slots(console, report)
    if report.recommended is None or report.default is None:
        return
    rows = table("", "ms", "GB", "other than the default")
    if report.upstream is not None:
        rows.add_row("upstream", f"{report.upstream.ms:.1f}", f"{report.upstream.gb:.2f}", "")
    rows.add_row("default", f"{report.default.ms:.1f}", f"{report.default.gb:.2f}", "")
    best = report.recommended
    rows.add_row("[bold]recommended[/bold]", f"{best.ms:.1f}", f"{best.gb:.2f}", escape(best.name))
    for point in report.front:
        rows.add_row("on the front", f"{point.ms:.1f}", f"{point.gb:.2f}", escape(point.name))
    console.print(rows)
    console.print(f"the search ended: {escape(report.stopped)}", soft_wrap=True)
    if report.worse:
        console.print("[red]slower than upstream, and larger, too[/red]")
    console.print(escape(block(report.settings)), soft_wrap=True)


def _show_slots(console: Console, report: "KernelReport") -> None:
    rows = table("slot", "kernel", "ms", "GB", "against default", "error", "status", framed=True)
    base = None if report.default is None else next((p for p in report.measured if p.name == report.default.name), None)
    for slot in report.slots:
        for number, kernel in enumerate(slot.kernels):
            colour = _COLOURS.get(kernel.status, "dim")
            against = "" if kernel.ms is None or base is None else f"{kernel.ms - base.ms:+.1f}"
            reason = f" {escape(kernel.reason)}" if kernel.reason else ""
            if kernel.first_step_s is not None:
                reason = f", {counted(kernel.graphs, 'graph')}, first steps {kernel.first_step_s:.1f} s{reason}"
            name = f"[bold]{escape(kernel.name)}[/bold]" if kernel.name == slot.chosen else escape(kernel.name)
            rows.add_row(
                f"{escape(slot.slot)}{_aside(report, slot.matters)}" if not number else "",
                name,
                "" if kernel.ms is None else f"{kernel.ms:.1f}",
                "" if kernel.gb is None else f"{kernel.gb:.2f}",
                against,
                "" if kernel.max_rel is None else f"{kernel.max_rel:.1e}",
                f"[{colour}]{kernel.status}[/{colour}]{reason}",
            )
    console.print(rows)


def _aside(report: "KernelReport", matters: bool) -> str:
    return "" if matters or report.recommended is None else " [dim](does not matter)[/dim]"
