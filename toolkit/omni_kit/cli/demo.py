"""omni-kit demo: integrate and verify two real models."""

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

from omni_kit.cli.app import app
from omni_kit.cli.options import FormatOption
from omni_kit.errors import BadInput
from omni_kit.output import Format, Output, table

if TYPE_CHECKING:
    from omni_kit.demo import DemoReport

_COLOURS = {"pass": "green", "fail": "red", "skip": "yellow", "error": "yellow"}
_MARK = ".omni-kit-demo"


@app.command("demo")
def demo_command(
    into: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Output directory; a temporary one by default.")
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the written files.")] = False,
    fmt: FormatOption = Format.human,
) -> None:
    """Integrate Qwen3-MoE and OLMoE into VeOmni, verify both, inject one fault and detect it."""
    from omni_kit.demo import run_demo

    output = Output("demo", fmt)
    place = _prepare(into)
    try:
        report = run_demo(place, output.say)
        notes = [f"files are in {place}"] if keep else []
        output.finish(report.as_json(), ok=report.ok, human=lambda console: _render(report, console), notes=notes)
    finally:
        if not keep:
            shutil.rmtree(place, ignore_errors=True)


def _prepare(into: Path | None) -> Path:
    """Return an empty directory: a new one, or an earlier demo's, cleared."""
    if into is None:
        return Path(tempfile.mkdtemp(prefix="omni-kit-demo-"))
    if into.exists():
        if into.is_symlink() or not into.is_dir() or (any(into.iterdir()) and not (into / _MARK).is_file()):
            raise BadInput(
                f"{into} exists and was not written by an earlier demo", "pass another directory with --into"
            )
        shutil.rmtree(into)
    into.mkdir(parents=True)
    (into / _MARK).touch()
    return into


def _render(report: "DemoReport", console: Console) -> None:
    rows = table("model", "step", "status", "seconds", "figure", title="What was proven", framed=True)
    for name, steps in report.models.items():
        for index, step in enumerate(steps):
            status = f"[{_COLOURS[step.status]}]{step.status}[/]"
            last = index == len(steps) - 1
            rows.add_row(
                name if index == 0 else "",
                step.step,
                status,
                f"{step.seconds:.1f}",
                escape(step.figure),
                end_section=last,
            )
    fault = report.planted_fault
    caught = "[green]caught[/]" if fault.caught_by else "[red]missed[/]"
    rows.add_row("injected fault", escape(fault.what), caught, "", escape("; ".join(fault.caught_by)))
    console.print(rows)
