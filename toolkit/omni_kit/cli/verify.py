"""`omni-kit verify`: give one verdict on an integration."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

from omni_kit.cli.app import app
from omni_kit.cli.options import Device, DeviceOption, DiffusersOption, FormatOption, FullOption, TransformersOption
from omni_kit.errors import BadInput
from omni_kit.files import refuse_no_folder, write_atomic
from omni_kit.output import Format, Output, table

if TYPE_CHECKING:
    from omni_kit.verify import Card
    from omni_kit.verify.review import Review

_COLOURS = {"passed": "green", "failed": "red", "not tested": "yellow", "not applicable": "dim"}


@app.command("verify")
def verify_command(
    path: Annotated[Path | None, typer.Argument(metavar="PATH", help="Directory of an integration.")] = None,
    weights: Annotated[
        str | None, typer.Option(metavar="SOURCE", help="Checkpoint to train or serve from; only its headers are read.")
    ] = None,
    card: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the card as JSON or Markdown; without PATH, rerun that card."),
    ] = None,
    sign: Annotated[
        Path | None, typer.Option(metavar="KEY", help="Sign the card with this SSH private key (Ed25519).")
    ] = None,
    signed_by: Annotated[
        Path | None,
        typer.Option(metavar="KEY.pub", help="Without PATH: refuse a card that this SSH key did not sign."),
    ] = None,
    allow_path: Annotated[
        bool,
        typer.Option("--allow-path", help="Without PATH: run the card's code even outside the working directory."),
    ] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Run only the static stages and the default levels.")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Rerun stages that passed before on the same files.")] = False,
    device: DeviceOption = Device.cpu,
    review: Annotated[
        bool,
        typer.Option(
            "--review", help="Show each difference from a fresh scaffold, with the rule or level that covers it."
        ),
    ] = False,
    source: Annotated[
        str | None,
        typer.Option("--from", metavar="SOURCE", help="Source that --review scaffolds; by default the recorded one."),
    ] = None,
    min_branches: Annotated[
        int | None,
        typer.Option(
            "--min-branches", metavar="N", min=0, max=100, help="Fail if the levels execute less than N% of branches."
        ),
    ] = None,
    transformers: TransformersOption = None,
    diffusers: DiffusersOption = None,
    fmt: FormatOption = Format.human,
    full: FullOption = False,
) -> None:
    """Give one verdict on an integration: every stage passed, failed, not tested or not applicable.

    Exit code 0: all applicable stages were tested and passed. 1: a stage failed. 3: all tested stages passed, but some
    were not tested; `left_out` in the JSON names those that --quick excluded. Pass thresholds cannot be changed.
    Project settings are ignored, and the card lists findings that comments silence.

    The card records what was run, on which files, with which versions, and a checksum of this record. The checksum
    shows damage. It does not show who wrote the card: anybody can compute it. `--sign KEY` adds an SSH signature.
    `omni-kit verify --card FILE` runs a card again, all of it, and says what differs. It prints the directory whose
    code it runs, and refuses one outside the working directory without --allow-path.
    """
    from omni_kit.patchgen.upgrade.versions import needed_by
    from omni_kit.pysource.library import used_instead
    from omni_kit.verify import verify, verify_again
    from omni_kit.verify.signature import Signer

    output = Output("verify", fmt, full)
    if path is None and card is None:
        raise BadInput("no integration to verify", "pass its directory, or --card FILE")
    if path is None and card is not None:
        if (
            review
            or source
            or weights
            or quick
            or device != Device.cpu
            or transformers
            or diffusers
            or min_branches is not None
        ):
            raise BadInput(
                "a card says what was run",
                "leave out --review, --from, --weights, --quick, --device, --min-branches, --transformers, --diffusers",
            )
        if sign is not None:
            raise BadInput(
                "--sign signs the card of a verified PATH", "pass PATH, or check a signature with --signed-by"
            )
        with output.status(f"running {card} again"):
            again = verify_again(card, output.say, signed_by, allow_path=allow_path)
        found, differences, signer = again.card, again.differences, again.signer
    elif path is not None:
        if signed_by is not None or (sign is not None and card is None):
            raise BadInput("--signed-by reads a card without PATH; --sign writes one", "pass --card FILE")
        if allow_path:
            raise BadInput("--allow-path reads a card without PATH", "leave it out, or pass only --card FILE")
        if card is not None:
            refuse_no_folder(card)
        key = Signer(sign) if sign is not None else None
        signer = key.fingerprint if key is not None else ""
        others = {"transformers": transformers, "diffusers": diffusers}
        with (
            used_instead(others) as libraries,
            output.status(f"verifying {path}"),
        ):
            found = verify(
                path, weights=weights, quick=quick, fresh=fresh or bool(libraries), device=device.value,
                min_branches=min_branches, reviewed=review or source is not None, source=source,
                libraries=[*libraries, *needed_by(others)], say=output.say,
            )  # fmt: skip
        differences = ()
        if card is not None:
            write_atomic(card, found.markdown(key) if card.suffix == ".md" else found.dumps(key))
            output.say(f"wrote {card}, {f'signed by {signer}' if signer else 'not signed'}")
    output.finish(
        {
            **found.to_json(),
            "differences": list(differences),
            "signer": signer or None,
            "review": found.review.to_json() if found.review is not None else None,
        },
        ok=found.exit_code == 0 and not differences,
        human=lambda console: _show(console, found, differences, signer),
        exit_code=1 if differences else found.exit_code,
    )


def _show(console: Console, card: "Card", differences: tuple[str, ...], signer: str) -> None:
    """Print the stages, what differs, who signed the card, and the verdict."""
    rows = table("stage", "status", "seconds", "figure or reason")
    for stage in card.stages:
        colour = _COLOURS[stage.status]
        status = f"[{colour}]{stage.status}[/]{' (as before)' if stage.resumed else ''}"
        rows.add_row(stage.stage, status, f"{stage.seconds:.1f}", escape(stage.reason or stage.figure))
    console.print(rows)
    for what, lines in (("todo", card.todos), ("finding", card.findings)):
        for line in lines:
            console.print(f"[yellow]{what}[/yellow] {escape(line)}", soft_wrap=True)
    for line in card.suppressions:
        console.print(f"silenced: {escape(line)}", soft_wrap=True)
    for line in (*card.not_executed(), *card.notes):
        console.print(escape(line), soft_wrap=True)
    for line in differences:
        console.print(f"differs: {escape(line)}", soft_wrap=True)
    if signer:
        console.print(f"signed by {signer}", soft_wrap=True)
    if card.review is not None:
        _show_review(console, card.review)
    word = "passed" if card.passed else "failed" if card.exit_code == 1 else "nothing passed"
    rest = "" if card.complete else ", not complete: some stages were not tested"
    console.print(f"{word}{f', {card.resumed}' if card.resumed else ''}{rest}", soft_wrap=True)


def _show_review(console: Console, review: "Review") -> None:
    """Print each difference to a fresh scaffold, under what speaks of it."""
    unexplained = sum(not hunk.remarks for hunk in review.hunks)
    console.print(
        f"{len(review.hunks)} differences to a fresh scaffold of {escape(review.source)}, {unexplained} unexplained",
        soft_wrap=True,
    )
    for hunk in review.hunks:
        console.print(f"[bold]{escape(hunk.place)}[/]: {escape(hunk.by)}", soft_wrap=True)
        for line in hunk.diff.splitlines():
            colour = {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "dim")
            console.print(f"[{colour}]{escape(line)}[/]", soft_wrap=True, highlight=False)
        for remark in hunk.remarks:
            console.print(f"  {escape(remark.by)}: {escape(remark.said)}", soft_wrap=True)
    for what, names in (("only in the scaffold", review.missing), ("only in the integration", review.own)):
        if names:
            console.print(f"{what}: {escape(', '.join(names))}", soft_wrap=True)
    for remark in review.elsewhere:
        console.print(f"about no difference: {escape(remark.by)}: {escape(remark.said)}", soft_wrap=True)
