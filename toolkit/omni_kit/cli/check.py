"""omni-kit check: report what is wrong in an integration, where, and the consequence."""

from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from omni_kit.cli.app import app
from omni_kit.cli.gating import for_machines, ids
from omni_kit.cli.options import (
    BaselineOption,
    FindingsFormat,
    FindingsFormatOption,
    FullOption,
    IgnoreOption,
    SelectOption,
    StrictOption,
    WriteBaselineOption,
)
from omni_kit.output import Format, Output
from omni_kit.plurals import counted

if TYPE_CHECKING:
    from omni_checkers import Report

_COLOURS = {"error": "red", "warning": "yellow", "info": "blue"}


class CheckLevel(StrEnum):
    """Depth of the rules: read the source, build the model, or load a toy checkpoint."""

    static = "static"
    import_ = "import"
    toy = "toy"


@app.command("check")
def check_command(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH", help="Model directories, or the root of a checkout.")],
    target: Annotated[str | None, typer.Option(help="Apply only this framework's rules.")] = None,
    select: SelectOption = None,
    ignore: IgnoreOption = None,
    baseline: BaselineOption = None,
    write_baseline: WriteBaselineOption = None,
    fix: Annotated[bool, typer.Option("--fix", help="Apply safe fixes, then check again.")] = False,
    level: Annotated[
        CheckLevel,
        typer.Option(help="static reads the code; import also builds the model; toy also loads a toy checkpoint."),
    ] = CheckLevel.static,
    touched: Annotated[
        bool, typer.Option("--touched", help="Treat each PATH as a changed file and check the model that contains it.")
    ] = False,
    strict: StrictOption = False,
    config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Read settings from this pyproject.toml instead of the working directory's."),
    ] = None,
    cache: Annotated[bool, typer.Option("--cache/--no-cache", help="Reuse results of earlier runs.")] = True,
    fmt: FindingsFormatOption = FindingsFormat.human,
    full: FullOption = False,
) -> None:
    """Check integrations against rules: what is wrong, where, and the consequence. Level static needs no torch.

    Level static runs none of the checked code. The pyproject.toml at or above the working directory may set select,
    ignore, strict, per-file-ignores and baseline in [tool.omni-kit.check]; a pyproject.toml near PATH is ignored.
    """
    from omni_checkers.engine.command import run_check

    report = run_check(
        paths,
        target=target,
        select=ids(select),
        ignore=ids(ignore),
        baseline=baseline,
        write_baseline=write_baseline,
        fix=fix,
        strict=strict,
        cached=cache,
        touched=touched,
        level=level.value,
        config=config,
    )

    if fmt is not FindingsFormat.json:
        typer.echo(f"settings: {report.settings}", err=True)
    if fmt in {FindingsFormat.sarif, FindingsFormat.github}:
        for note in report.notes:
            typer.echo(f"note: {note}", err=True)
        typer.echo(for_machines(report, fmt), nl=False)
        raise typer.Exit(0 if report.ok else 1)
    output = Output("check", Format(fmt.value), full)
    output.finish(report.as_json(), ok=report.ok, human=partial(_render, report), notes=report.notes)


def _render(report: "Report", console: Console) -> None:
    show_findings(report, report.as_json(), console)


def show_findings(report: "Report", data: dict[str, Any], console: Console) -> None:
    """Render findings by file, and a last line with counts; `data` is the report as JSON."""
    from omni_checkers.engine.report import finding_json, grouped
    from omni_kit.diagnostics.finding import shown

    explained: set[str] = set()
    for path, findings in grouped(report.findings):
        console.print(f"[bold]{escape(shown(path))}[/bold]", soft_wrap=True)
        for finding in findings:
            one = finding_json(finding)
            severity = f"[{_COLOURS[one['severity']]}]{one['severity']}[/]"
            place = f"{one['line']}:{one['column']}"
            made = f"  (in {one['generated']['path']}:{one['generated']['line']})" if "generated" in one else ""
            console.print(f"  {place}  {severity}  {one['rule']}  {escape(one['message'] + made)}", soft_wrap=True)
            reason = one.get("family", one["rule"])
            if reason not in explained and one["why"]:
                explained.add(reason)
                console.print(f"      [dim]why: {escape(one['why'])}[/dim]", soft_wrap=True)
    checked = ", ".join(counted(count, what[:-1]) for what, count in data["checked"].items())
    counts = [f"{count} {kind}" for kind in _COLOURS if (count := _count(data["findings"], kind))]
    counts += [
        f"{count} {what}" for what, count in (("suppressed", report.suppressed), ("known", report.matched)) if count
    ]
    console.print(f"checked {checked}: {', '.join(counts) or 'no findings'}")


def _count(findings: list[dict[str, Any]], severity: str) -> int:
    return sum(finding["severity"] == severity for finding in findings)
