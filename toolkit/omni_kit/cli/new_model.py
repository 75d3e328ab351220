"""omni-kit new-model: write an integration derived from the upstream model."""

import os
import re
from collections.abc import Sequence
from dataclasses import replace
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
from omni_kit.plurals import counted

if TYPE_CHECKING:
    from omni_kit.scaffold import Scaffold
    from omni_kit.verify.unfinished import Found


_RUFF = re.compile(r"\((F\d{3})\)$")  # of a to-do: an undefined name, above all


@app.command("new-model")
def new_model_command(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the integration; a Python identifier.")],
    source: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="SOURCE",
            help="A checkpoint directory, config.json, model_type, diffusers class or pipeline; or a class in its "
            "authors' repository, as PATH::Class, PATH::Class::FUNCTION (FUNCTION has the sampling loop), or "
            "package.module:Class; or a file that defines a pipeline.",
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
    class_name: Annotated[
        str, typer.Option(metavar="CLASS", help="Name of the model's class, for a port into diffusers.")
    ] = "",
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
    """Write a new integration. Code it does not recognise is left unchanged and reported.

    Exit code 0: the files are written; to-dos may be left. 1: nothing was written, and `refused` in the JSON has the
    reason; or the files are written, and `findings` has errors in them.
    """
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
            kind=kind or pipeline, class_name=class_name,
            force=force, dry_run=dry_run or diff, transformers=transformers, diffusers=diffusers,
            kernels=None if kernels is None else fitting_choice(kernels, source),
        )  # fmt: skip
    except Refusal as refusal:
        _refuse(output, refusal)
    plan = scaffold.plan
    found = () if dry_run or diff or scaffold.refused else _findings(scaffold)
    data: dict[str, Any] = {
        "files": [{"path": change.path, "action": change.action} for change in scaffold.changes],
        "decisions": [vars(decision) for decision in plan.decisions],
        "todo": [vars(todo) for todo in plan.todo],
        "findings": [vars(one) for one in found],
        "refused": "; ".join(scaffold.refused) or None,
        "next": list(plan.next),
    }
    if diff:
        data["diff"] = "\n".join(change.diff() for change in scaffold.changes if change.diff())

    output.finish(
        data,
        ok=not scaffold.refused and not _errors(data["todo"], data["findings"]),
        human=partial(_render, scaffold, data, dry_run or diff),
        notes=[*scaffold.notes, *scaffold.refused],
    )


def _findings(scaffold: "Scaffold") -> "Sequence[Found]":
    """Return what the rules report in the written files, if the plan requires a check."""
    from omni_checkers import check
    from omni_kit.verify.unfinished import told_apart

    if not scaffold.plan.checked:
        return ()
    root, base = Path(scaffold.root), Path(scaffold.root) / scaffold.plan.base
    return [
        replace(one, path=os.path.relpath(base / one.path, root))
        for one in told_apart(check([base], level="static").findings, base).findings
    ]


def _refuse(output: Output, refusal: Refusal) -> NoReturn:
    """Exit: nothing was written; print the reason."""
    reasons = [refusal.message, *filter(None, [refusal.hint])]
    empty: dict[str, Any] = {"files": [], "decisions": [], "todo": [], "findings": [], "next": []}
    output.finish(
        {**empty, "refused": refusal.message}, ok=False, notes=reasons,
        human=lambda console: console.print("[red]refused[/red]: nothing was written"),
    )  # fmt: skip


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
    apart = [one for one in data["findings"] if not one["marked"]]
    for one in apart:
        place = f"{one['path']}:{one['line']}"
        console.print(f"[red]finding[/red] {place} {one['rule']}: {escape(one['message'])}", soft_wrap=True)
    if scaffold.refused:
        return
    if not dry_run:
        console.print(_summary(data["todo"], apart, data["findings"]), soft_wrap=True)
    console.print("next:")
    for command in plan.next:
        console.print(f"  {escape(command)}", soft_wrap=True)


def _errors(todo: Sequence[Any], findings: Sequence[Any]) -> list[str]:
    """Return the rules of the errors that are left: those of omni-kit, and ruff's, which to-dos name."""
    own = [one["rule"] for one in findings if one["severity"] == "error"]
    return own + [found[1] for one in todo if (found := _RUFF.search(one["what"])) is not None]


def _summary(todo: Sequence[Any], apart: Sequence[Any], findings: Sequence[Any]) -> str:
    """Return one line: what is left to do, and why the exit code is 1 if it is."""
    errors = ", ".join(dict.fromkeys(_errors(todo, findings)))
    why = f"; exit code 1, because `omni-kit check` finds {errors}" if errors else ""
    why += "; done to-dos resolve these" if why and not apart else ""
    more = f" and {counted(apart, 'finding')} apart from them" if apart else ""
    return f"written, with {counted(todo, 'to-do')}{more}{why}"
