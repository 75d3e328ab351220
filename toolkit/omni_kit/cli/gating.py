"""Code shared by commands that report findings: build the gate, and exit in any output format."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import typer
from rich.console import Console

from omni_kit.cli.options import FindingsFormat
from omni_kit.output import Format, Output

if TYPE_CHECKING:
    from omni_kit.diagnostics.definition import Definition
    from omni_kit.diagnostics.gate import Gate
    from omni_kit.diagnostics.reported import Reported


def ids(given: list[str] | None) -> list[str]:
    """Return IDs from repeated options, comma-separated values, or both."""
    return [item.strip() for text in given or [] for item in text.split(",") if item.strip()]


def gate_of(
    definitions: "Sequence[Definition]", select: list[str] | None, ignore: list[str] | None, baseline: Path | None
) -> "Gate":
    """Build a command's gate from its options and the working directory's settings."""
    from omni_kit.diagnostics.gate import Gate
    from omni_kit.diagnostics.settings import find_settings

    return Gate.of(definitions, ids(select), ids(ignore), find_settings(Path.cwd()), baseline)


def finish(
    command: str,
    data: Mapping[str, Any],
    *,
    gate: "Gate",
    ok: bool,
    human: Callable[[Console], None],
    fmt: FindingsFormat,
    full: bool,
    notes: Sequence[str] = (),
    exit_code: int | None = None,
    write_baseline: Path | None = None,
) -> NoReturn:
    """Exit a command: print findings as SARIF or workflow commands, or the whole report.

    A run that writes a baseline does not fail on its findings.
    """
    notes = [*notes, *gate.notes()]
    if write_baseline is not None:
        notes.append(gate.write(write_baseline))
        ok, exit_code = True, None
    if fmt in {FindingsFormat.human, FindingsFormat.json}:
        Output(command, Format(fmt.value), full).finish(data, ok=ok, human=human, notes=notes, exit_code=exit_code)
    for note in notes:
        typer.echo(f"note: {note}", err=True)
    typer.echo(for_machines(gate, fmt), nl=False)
    raise typer.Exit(exit_code if exit_code is not None else 0 if ok else 1)


def for_machines(report: "Reported", fmt: FindingsFormat) -> str:
    """Render findings as SARIF or as GitHub workflow commands."""
    from omni_kit.diagnostics.github import as_github
    from omni_kit.diagnostics.sarif import as_sarif

    if fmt is FindingsFormat.sarif:
        return json.dumps(as_sarif(report), indent=2) + "\n"
    return "".join(f"{line}\n" for line in as_github(report))
