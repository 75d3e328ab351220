"""omni-kit new-model: the files of an integration, derived from the upstream model."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.markup import escape

from omni_kit.cli.app import app
from omni_kit.cli.options import DiffOption, DiffusersOption, DryRunOption, FormatOption, FullOption, TransformersOption
from omni_kit.errors import BadInput, Refusal
from omni_kit.output import Format, Output, table

if TYPE_CHECKING:
    from omni_kit.scaffold import Scaffold


@app.command("new-model")
def new_model_command(
    name: Annotated[str, typer.Argument(help="The integration's name: a Python identifier.")],
    source: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="SOURCE",
            help="A checkpoint directory, a config.json, a model_type, a class of diffusers, a pipeline, or a class of "
            "its authors' repository: PATH::Class, or package.module:Class.",
        ),
    ],
    target: Annotated[
        str | None, typer.Option(help="The framework to integrate into; needed where several take this kind of model.")
    ] = None,
    kind: Annotated[
        str | None, typer.Option(help="Refuse if the model is of another kind; or how to integrate it.")
    ] = None,
    pipeline: Annotated[
        str | None, typer.Option(help="standard, modular or both: which pipelines to make; with --target.")
    ] = None,
    style: Annotated[
        str, typer.Option(help="plugin: a package of its own. in-tree: files of the framework's checkout.")
    ] = "plugin",
    into: Annotated[
        Path, typer.Option(metavar="DIR", help="Where to write: a directory, or the checkout's root.")
    ] = Path(),
    kernels: Annotated[
        Path | None,
        typer.Option("--kernels", metavar="FILE", help="What `kernels --format json` printed: write a training file."),
    ] = None,
    dry_run: DryRunOption = False,
    diff: DiffOption = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite files that somebody changed.")] = False,
    transformers: TransformersOption = None,
    diffusers: DiffusersOption = None,
    fmt: FormatOption = Format.human,
    full: FullOption = False,
) -> None:
    """Write the files of a new integration. What is not recognised upstream is left alone, and said."""
    from omni_kit.kernels.result import fitting_choice
    from omni_kit.scaffold import new_model

    if style not in ("plugin", "in-tree"):
        raise BadInput(f"unknown style '{style}'", "plugin or in-tree")
    if pipeline is not None and (kind is not None or target is None):
        raise BadInput(
            "--pipeline stands in the place of --kind, and beside --target", "leave --kind out, give --target"
        )
    output = Output("new-model", fmt, full)
    try:
        scaffold = new_model(
            name, source, target=target, style="in-tree" if style == "in-tree" else "plugin", into=into,
            kind=kind or pipeline,
            force=force, dry_run=dry_run or diff, transformers=transformers, diffusers=diffusers,
            kernels=None if kernels is None else fitting_choice(kernels, source),
        )  # fmt: skip
    except Refusal as refusal:
        _refuse(output, refusal)
    plan = scaffold.plan
    data: dict[str, Any] = {
        "files": [{"path": change.path, "action": change.action} for change in scaffold.changes],
        "decisions": [vars(decision) for decision in plan.decisions],
        "todo": [vars(todo) for todo in plan.todo],
        "next": list(plan.next),
    }
    if diff:
        data["diff"] = "\n".join(change.diff() for change in scaffold.changes if change.diff())

    output.finish(
        data,
        ok=not scaffold.refused,
        human=partial(_render, scaffold, data, dry_run or diff),
        notes=[*scaffold.notes, *scaffold.refused],
    )


def _refuse(output: Output, refusal: Refusal) -> NoReturn:
    """Ends the command: nothing was written, and why."""
    empty: dict[str, Any] = {"files": [], "decisions": [], "todo": [], "next": []}
    reasons = [refusal.message, *filter(None, [refusal.hint])]
    output.finish(
        empty, ok=False, human=lambda console: console.print("[red]refused[/red]: nothing was written"), notes=reasons
    )


def _render(scaffold: "Scaffold", data: dict[str, Any], dry_run: bool, console: Console) -> None:
    plan = scaffold.plan
    if "diff" in data:
        console.print(escape(data["diff"]), soft_wrap=True)
    verb = "would write to" if dry_run else "refused to write to" if scaffold.refused else "wrote to"
    console.print(f"{verb} {scaffold.root}:")
    for change in scaffold.changes:
        console.print(f"  {change.action:<10}{change.path}")
    rows = table("what", "choice", "reason")
    for decision in plan.decisions:
        rows.add_row(escape(decision.what), escape(decision.choice), escape(decision.reason))
    console.print(rows)
    for todo in plan.todo:
        console.print(f"[yellow]todo[/yellow] {todo.path}:{todo.line} {escape(todo.what)}", soft_wrap=True)
    if not scaffold.refused:
        console.print("next:")
        for command in plan.next:
            console.print(f"  {escape(command)}", soft_wrap=True)
