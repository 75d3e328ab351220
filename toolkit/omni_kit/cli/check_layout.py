"""omni-kit check-layout: a checkpoint's expert layout, and the parameter that each key loads into."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

from omni_kit.cli.app import app
from omni_kit.cli.gating import finish, gate_of
from omni_kit.cli.options import (
    BaselineOption,
    DiffusersOption,
    FindingsFormat,
    FindingsFormatOption,
    FullOption,
    IgnoreOption,
    SelectOption,
    SourceArgument,
    TransformersOption,
    WriteBaselineOption,
)
from omni_kit.errors import MissingRequirement
from omni_kit.output import table
from omni_kit.plurals import counted

if TYPE_CHECKING:
    from omni_kit.layout import LayoutVerdict
    from omni_kit.layout.loading import Loading

_COLOURS = {"native": "green", "convertible": "green", "mixed": "yellow", "not-moe": "green"}


@app.command("check-layout")
def check_layout_command(
    source: SourceArgument,
    model_type: Annotated[str | None, typer.Option(help="Override the config's model_type or diffusers class.")] = None,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Use this config.json instead of the one next to the weights.")
    ] = None,
    assume: Annotated[
        str | None, typer.Option(metavar="LAYOUT", help="Layout to assume when shapes are ambiguous.")
    ] = None,
    against_model: Annotated[
        bool,
        typer.Option("--against-model", help="Verify with transformers' own loader on the meta device (needs torch)."),
    ] = False,
    consumer: Annotated[
        str | None,
        typer.Option("--for", metavar="NAME", help="Check against this loader: a library or a target."),
    ] = None,
    emit_converter: Annotated[
        Path | None,
        typer.Option("--emit-converter", metavar="FILE", help="Write a converter module for this layout."),
    ] = None,
    transformers: TransformersOption = None,
    diffusers: DiffusersOption = None,
    select: SelectOption = None,
    ignore: IgnoreOption = None,
    baseline: BaselineOption = None,
    write_baseline: WriteBaselineOption = None,
    fmt: FindingsFormatOption = FindingsFormat.human,
    full: FullOption = False,
) -> None:
    """Detect a checkpoint's expert layout from its headers and map every key. Needs no torch.

    For a diffusers pipeline, check the denoiser. Original authors' layouts are rejected with the conversion to run.
    """
    from omni_kit.layout import check_layout
    from omni_kit.layout.codes import IDS
    from omni_kit.layout.loading import loading
    from omni_kit.targets.consumers import consumer_of

    gate = gate_of(list(IDS.values()), select, ignore, baseline)
    verdict = check_layout(
        source,
        model_type=model_type,
        config=config,
        assume=assume,
        against_model=against_model,
        consumer=consumer_of(consumer) if consumer else None,
        transformers=transformers,
        diffusers=diffusers,
    ).through(gate, Path(source).absolute())
    needed, notes = loading(verdict), []
    if emit_converter is not None:
        from omni_kit.scaffold.converter import write_converter

        notes = [write_converter(verdict, emit_converter)]
    finish(
        "check-layout",
        {**verdict.as_json(), "loading": needed.as_json(), "consumer": consumer},
        gate=gate,
        ok=verdict.ok,
        human=partial(_render, verdict, needed, consumer),
        fmt=fmt,
        full=full,
        notes=notes,
        exit_code=MissingRequirement.exit_code if verdict.untested else None,
        write_baseline=write_baseline,
    )


def _render(verdict: "LayoutVerdict", needed: "Loading", consumer: str | None, console: Console) -> None:
    data = verdict.as_json()
    colour = _COLOURS.get(verdict.verdict, "red")
    console.print(f"[{colour}]{verdict.verdict}[/{colour}]  converter to canonical form: {data['converter'] or 'none'}")
    console.print(f"loading   {needed.converter}: {escape(needed.reason)}", soft_wrap=True)
    if data["recipe"]:
        alias = f" (alias of {data['recipe']['alias_of']})" if data["recipe"]["alias_of"] else ""
        console.print(f"recipe    {', '.join(data['recipe']['resolved_from'])}{alias}")
    rows = table("experts", "role", "layers", "on disk", "in memory", "converter", "E", "dtype")
    for tree in data["subtrees"]:
        layers = f"{min(tree['layers'])}-{max(tree['layers'])}" if tree["layers"] else ""
        count, dtype = str(tree["num_experts"]), tree["dtype"] or ""
        row = (tree["prefix"], tree["role"], layers, tree["disk"], tree["memory"], tree["converter"], count, dtype)
        rows.add_row(*map(escape, row))
    if data["subtrees"]:
        console.print(rows)
    keys = data["keys"]
    lost = f"{len(keys['unmapped'])} unmapped, {counted(keys['missing'], 'parameter')} missing"
    console.print(f"keys      {keys['total']} total, {keys['expert']} expert, {keys['mapped']} mapped, {lost}")
    if consumer:
        console.print(f"for       {consumer}")
    if keys["proof"]:
        console.print(f"proof     {escape(keys['proof'])}")
    for item in keys["ignored"]:
        console.print(f"ignored   {item['count']} x {escape(item['pattern'])}: {item['reason']}")
    for item in keys["not_judged"]:
        console.print(f"unjudged  {item['count']} x {escape(item['pattern'])}: {escape(item['reason'])}")
    for finding in data["findings"]:
        console.print(
            f"[red]{finding['severity']}[/red] {finding['code']}: {escape(finding['message'])}", soft_wrap=True
        )
