"""omni-kit rules: explain the IDs of check, skills check, patchgen and check-layout."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.syntax import Syntax

from omni_kit.cli.app import app
from omni_kit.cli.commands import Commands
from omni_kit.cli.options import FormatOption, FullOption
from omni_kit.output import Format, Output, table

if TYPE_CHECKING:
    from omni_kit.diagnostics.definition import Definition

rules_app = Commands(help="List and explain rules and diagnostics.", no_args_is_help=True)
app.add_typer(rules_app, name="rules")


@rules_app.command("list")
def list_command(
    target: Annotated[
        str | None, typer.Option(help="Only IDs of this target, or of skill, patchgen or layout.")
    ] = None,
    fmt: FormatOption = Format.human,
    full: FullOption = False,
) -> None:
    """List rules, their detectors, and the diagnostics of patchgen and check-layout."""
    from omni_checkers.engine.registry import all_definitions
    from omni_kit.targets.registry import get_target

    found = all_definitions().values()
    if target is not None and all(one.target != target for one in found):
        get_target(target)
    rules = [one.as_json() for one in found if target is None or one.target == target]

    def render(console: Console) -> None:
        rows = table("rule", "severity", "name")
        for rule in rules:
            rows.add_row(rule["id"], rule["severity"], escape(rule["name"]))
        console.print(rows)

    Output("rules", fmt, full).finish({"rules": rules}, ok=True, human=render)


@rules_app.command("explain")
def explain_command(
    rule_id: Annotated[
        str, typer.Argument(metavar="ID", help="An ID such as VEO201, VEO415.2 or PGN101, or a prefix such as LAY.")
    ],
    fmt: FormatOption = Format.human,
    full: FullOption = False,
) -> None:
    """Explain an ID: the norm, why, and when not to comply, with examples.

    A prefix lists its IDs, one per line.
    """
    from omni_checkers.engine.registry import all_definitions, definitions_below, find_definition

    output = Output("rules", fmt, full)
    below = definitions_below(rule_id)
    if below and rule_id.upper() not in all_definitions():
        output.finish({"rules": [one.as_json() for one in below]}, ok=True, human=partial(_render_below, below))
    one = find_definition(rule_id)
    detectors = [other for other in all_definitions().values() if other.family == one.id]
    said = one.documentation
    explained = {
        **one.as_json(),
        "details": said.details,
        "why": said.why,
        "fine_when": said.fine_when,
        "bad": [dict(example) for example in one.bad],
        "good": [dict(example) for example in one.good],
    }
    entries = [explained, *(other.as_json() for other in detectors)]
    output.finish({"rules": entries}, ok=True, human=partial(_render, one, detectors))


def _render_below(found: Sequence["Definition"], console: Console) -> None:
    for one in found:
        console.print(f"[bold]{one.id}[/bold] {escape(one.name)}: {escape(one.documentation.summary)}", soft_wrap=True)


def _render(one: "Definition", detectors: Sequence["Definition"], console: Console) -> None:
    said = one.documentation
    console.print(f"[bold]{one.id}[/bold] {escape(one.name)} ({one.severity.value})\n")
    console.print(escape(said.summary))
    for heading, text in (("", said.details), ("Why: ", said.why), ("Fine when: ", said.fine_when)):
        if text:
            console.print(f"\n{heading}{escape(' '.join(text.split()))}")
    if one.family:
        console.print(f"\nFamily: {one.family}, whose ID selects all its detectors")
    if one.obligations:
        console.print(f"\nObligations: {', '.join(one.obligations)}")
    for other in detectors:
        console.print(f"\n[bold]{other.id}[/bold] {escape(other.name)}: {escape(other.documentation.summary)}")
    for heading, examples in (("Bad", one.bad), ("Good", one.good)):
        for example in examples[:1]:
            for path, text in example.items():
                console.print(f"\n[bold]{heading}[/bold]  {escape(path)}")
                language = "markdown" if path.endswith(".md") else "python"
                console.print(Syntax(text, language, background_color="default"))
