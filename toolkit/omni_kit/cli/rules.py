"""omni-kit rules: the rules that check knows, and what each is for."""

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
    from omni_checkers import Rule

rules_app = Commands(help="The rules of check.", no_args_is_help=True)
app.add_typer(rules_app, name="rules")


@rules_app.command("list")
def list_command(
    target: Annotated[str | None, typer.Option(help="Only rules of this framework, or about skills: skill.")] = None,
    fmt: FormatOption = Format.human,
    full: FullOption = False,
) -> None:
    """List the rules."""
    from omni_checkers import all_rules
    from omni_checkers.engine.registry import SKILLS
    from omni_kit.targets.registry import get_target

    if target is not None and target not in ("any", SKILLS):
        get_target(target)
    rules = [rule.as_json() for rule in all_rules() if target is None or rule.target == target]

    def render(console: Console) -> None:
        rows = table("rule", "severity", "name")
        for rule in rules:
            rows.add_row(rule["id"], rule["severity"], escape(rule["name"]))
        console.print(rows)

    Output("rules", fmt, full).finish({"rules": rules}, ok=True, human=render)


@rules_app.command("explain")
def explain_command(
    rule_id: Annotated[str, typer.Argument(metavar="ID", help="The id of a rule, such as VEO201.")],
    fmt: FormatOption = Format.human,
    full: FullOption = False,
) -> None:
    """Say what a rule asks for, what happens otherwise, and when not to comply; with examples."""
    from omni_checkers import find_rule

    rule = find_rule(rule_id)
    said = rule.documentation()
    explained = {
        **rule.as_json(),
        "details": said.details,
        "why": said.why,
        "fine_when": said.fine_when,
        "bad": [dict(example) for example in rule.BAD],
        "good": [dict(example) for example in rule.GOOD],
    }
    Output("rules", fmt, full).finish({"rules": [explained]}, ok=True, human=partial(_render, rule))


def _render(rule: "type[Rule]", console: Console) -> None:
    said = rule.documentation()
    console.print(f"[bold]{rule.id}[/bold] {escape(rule.name)} ({rule.severity.value})\n")
    console.print(escape(said.summary))
    for heading, text in (("", said.details), ("Why: ", said.why), ("Fine when: ", said.fine_when)):
        if text:
            console.print(f"\n{heading}{escape(' '.join(text.split()))}")
    if rule.obligations:
        console.print(f"\nObligations: {', '.join(rule.obligations)}")
    for heading, examples in (("Bad", rule.BAD), ("Good", rule.GOOD)):
        for example in examples[:1]:
            for path, text in example.items():
                console.print(f"\n[bold]{heading}[/bold]  {escape(path)}")
                language = "markdown" if path.endswith(".md") else "python"
                console.print(Syntax(text, language, background_color="default"))
