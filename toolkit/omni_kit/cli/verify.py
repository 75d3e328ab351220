"""`omni-kit verify`: one verdict on an integration."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

from omni_kit.cli.app import app
from omni_kit.cli.options import FormatOption, FullOption
from omni_kit.errors import BadInput
from omni_kit.files import write_atomic
from omni_kit.output import Format, Output, table

if TYPE_CHECKING:
    from omni_kit.verify import Card

_COLOURS = {"passed": "green", "failed": "red", "not tested": "yellow", "not applicable": "dim"}


@app.command("verify")
def verify_command(
    path: Annotated[Path | None, typer.Argument(metavar="PATH", help="The directory of an integration.")] = None,
    weights: Annotated[
        str | None, typer.Option(metavar="SOURCE", help="The checkpoint to train or serve from; its headers are read.")
    ] = None,
    card: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the card, as JSON or .md; without PATH, run that card again."),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="The static stages and the default levels alone.")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Also run what passed before on the same files.")] = False,
    device: Annotated[str, typer.Option("--device", metavar="cpu|cuda", help="Where to compute.")] = "cpu",
    fmt: FormatOption = Format.human,
    full: FullOption = False,
) -> None:
    """Give one verdict on an integration: every stage passed, failed, not tested or not applicable.

    Exit code 0 means that all that applies was tested and passed; 1, that a stage failed; 3, that what was tested
    passed, and something was not tested. What is to be reached is fixed: no option, no variable and no file of the
    integration changes it. Settings of a project do not count here, and what comments silence is named on the card.

    The card says what was run, on which files, with which versions. It is sealed: one that was changed is refused.
    `omni-kit verify --card FILE` runs it again, all of it, and says what differs.
    """
    from omni_kit.verify import verify, verify_again

    output = Output("verify", fmt, full)
    if path is None and card is None:
        raise BadInput("nothing to verify was given", "give the directory of an integration, or --card FILE")
    if path is None and card is not None:
        if weights or quick or device != "cpu":
            raise BadInput("a card says what was run", "leave out --weights, --quick and --device")
        with output.status(f"running {card} again"):
            again = verify_again(card, output.say)
        found, differences = again.card, again.differences
    elif path is not None:
        with output.status(f"verifying {path}"):
            found = verify(path, weights=weights, quick=quick, fresh=fresh, device=device, say=output.say)
        differences = ()
        if card is not None:
            write_atomic(card, found.markdown() if card.suffix == ".md" else found.dumps())
            output.say(f"wrote {card}")
    output.finish(
        {**found.to_json(), "differences": list(differences)},
        ok=found.exit_code == 0 and not differences,
        human=lambda console: _show(console, found, differences),
        exit_code=1 if differences else found.exit_code,
    )


def _show(console: Console, card: "Card", differences: tuple[str, ...]) -> None:
    """The stages, and what the verdict is."""
    rows = table("stage", "status", "seconds", "figure, or why")
    for stage in card.stages:
        colour = _COLOURS[stage.status]
        status = f"[{colour}]{stage.status}[/]{' (as before)' if stage.resumed else ''}"
        rows.add_row(stage.stage, status, f"{stage.seconds:.1f}", escape(stage.reason or stage.figure))
    console.print(rows)
    for line in card.suppressions:
        console.print(f"silenced: {escape(line)}", soft_wrap=True)
    for line in differences:
        console.print(f"differs: {escape(line)}", soft_wrap=True)
    word = "passed" if card.passed else "failed" if card.exit_code == 1 else "nothing passed"
    console.print(f"{word}{'' if card.complete else ', not complete: some stages were not tested'}")
