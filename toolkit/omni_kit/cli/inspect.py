"""omni-kit inspect: describe a model, with evidence for every fact."""

from typing import Any

from rich.console import Console
from rich.markup import escape

from omni_kit.cli.app import app
from omni_kit.cli.options import DiffusersOption, FormatOption, FullOption, SourceArgument, TransformersOption
from omni_kit.output import Format, Output, table
from omni_kit.plurals import counted


@app.command("inspect")
def inspect_command(
    source: SourceArgument,
    transformers: TransformersOption = None,
    diffusers: DiffusersOption = None,
    fmt: FormatOption = Format.human,
    full: FullOption = False,
) -> None:
    """Describe a model: kind, traits, experts, and the edits an integration needs. Needs no torch.

    For a diffusers pipeline, describe the denoiser and list the other components.
    """
    from omni_kit.inspection import inspect

    report = inspect(source, transformers, diffusers)
    Output("inspect", fmt, full).finish(
        report, ok=True, human=lambda console: _render(report, console), notes=report.pop("notes")
    )


def _render(report: dict[str, Any], console: Console) -> None:
    experts = report["experts"]
    console.print(f"[bold]{report['model_type']}[/bold] ({report['library']} {report['library_version']})")
    console.print(f"kind      {report['kind']}")
    console.print(f"classes   {', '.join(report['architectures'])}")
    if experts:
        shown = f"{counted(experts['count'], 'expert')}, top {experts['top_k']}, width {experts['intermediate_size']}"
        console.print(f"experts   {shown}, {experts['shared']} shared")
    for place, one in enumerate(report["nearest"]):
        shares = f"{one['kind']}, {len(one['shared'])} of {len(one['shared'] + one['missing'])} traits shared"
        line = f"{one['name']} ({shares}); read it with: omni-kit reference show {one['name']}"
        console.print(escape(f"{'' if place else 'nearest':<10}{line}"), soft_wrap=True)
    if not report["nearest"]:
        console.print(f"nearest   none: no reference model integrates a model of kind {report['kind']}")
    rows = table("trait", "value", "evidence")
    for trait in report["traits"]:
        rows.add_row(trait["name"], escape(str(trait["value"])), escape(trait["evidence"]))
    if report["traits"]:
        console.print(rows)
    parts = table("component", "role", "class", "evidence")
    for part in report["components"]:
        shown = f"{part['library']} {part['class_name']}{' (optional)' if part['optional'] else ''}"
        parts.add_row(*map(escape, (part["name"], part["role"], shown, part["evidence"])))
    if report["components"]:
        console.print(parts)
    for target, plan in report["targets"].items():
        console.print(f"\n[bold]{target}[/bold]: {plan['complexity']}")
        sites = table("site", "decision", "reason", "evidence")
        for site in plan["patches"]:
            sites.add_row(site["site"], site["decision"], escape(site["reason"]), escape(site["evidence"]))
        console.print(sites if plan["patches"] else "no sites to patch")
