"""omni-kit new-model: write an integration derived from the upstream model."""

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
    from omni_kit.targets.protocol import Todo


@app.command("new-model")
def new_model_command(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the integration; a Python identifier.")],
    source: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="SOURCE",
            help="A checkpoint directory, config.json, model_type, diffusers class or pipeline; or a class in its "
            "authors' repository, as PATH::Class or package.module:Class; or a file that defines a pipeline.",
        ),
    ],
    target: Annotated[
        str | None, typer.Option(help="Target framework; required if several support this kind of model.")
    ] = None,
    kind: Annotated[
        str | None, typer.Option(help="Expected kind, or the kind to integrate it as; other kinds are rejected.")
    ] = None,
    pipeline: Annotated[
        str | None, typer.Option(help="Pipelines to write: standard, modular or both. Requires --target.")
    ] = None,
    style: Annotated[
        str, typer.Option(help="plugin writes a package; in-tree writes into the framework's checkout.")
    ] = "plugin",
    into: Annotated[Path, typer.Option(metavar="DIR", help="Output directory, or the checkout's root.")] = Path(),
    kernels: Annotated[
        Path | None,
        typer.Option("--kernels", metavar="FILE", help="Output of `kernels --format json`, for the training YAML."),
    ] = None,
    dry_run: DryRunOption = False,
    diff: DiffOption = False,
    force: Annotated[
        bool, typer.Option("--force", help="Overwrite edited files, and replace what the framework has itself.")
    ] = False,
    transformers: TransformersOption = None,
    diffusers: DiffusersOption = None,
    fmt: FormatOption = Format.human,
    full: FullOption = False,
) -> None:
    """Write a new integration. Code it does not recognise is left unchanged and reported."""
    from omni_kit.kernels.result import fitting_choice
    from omni_kit.scaffold import new_model

    if style not in ("plugin", "in-tree"):
        raise BadInput(f"unknown style '{style}'", "plugin or in-tree")
    if pipeline is not None and (kind is not None or target is None):
        raise BadInput("--pipeline replaces --kind, and requires --target", "leave out --kind and pass --target")
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
    wrong = [] if dry_run or diff or scaffold.refused else _wrong(scaffold)
    data: dict[str, Any] = {
        "files": [{"path": change.path, "action": change.action} for change in scaffold.changes],
        "decisions": [vars(decision) for decision in plan.decisions],
        "todo": [vars(todo) for todo in (*plan.todo, *wrong)],
        "next": list(plan.next),
    }
    if diff:
        data["diff"] = "\n".join(change.diff() for change in scaffold.changes if change.diff())

    output.finish(
        data,
        ok=not (scaffold.refused or wrong),
        human=partial(_render, scaffold, data, dry_run or diff),
        notes=[*scaffold.notes, *scaffold.refused],
    )


def _wrong(scaffold: "Scaffold") -> "list[Todo]":
    """Return the errors in the written files, if the plan requires a check."""
    from omni_checkers import check
    from omni_kit.targets.protocol import Todo

    if not scaffold.plan.checked:
        return []
    base = Path(scaffold.root) / scaffold.plan.base
    found = [one for one in check([base], level="static").findings if one.severity == "error"]
    root = Path(scaffold.root).resolve()
    placed = [(Path(one.path).resolve().relative_to(root).as_posix(), one) for one in found]
    return [Todo(path, one.line, f"{one.rule}: {one.message}") for path, one in placed]


def _refuse(output: Output, refusal: Refusal) -> NoReturn:
    """Exit: nothing was written; print the reason."""
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
    for todo in data["todo"]:
        console.print(f"[yellow]todo[/yellow] {todo['path']}:{todo['line']} {escape(todo['what'])}", soft_wrap=True)
    if not scaffold.refused:
        console.print("next:")
        for command in plan.next:
            console.print(f"  {escape(command)}", soft_wrap=True)
