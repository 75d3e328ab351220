"""The card: the stages of one verification with their results, the pinned versions and a checksum."""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from omni_kit.documents import read_json
from omni_kit.errors import BadInput, reason
from omni_kit.files import is_file
from omni_kit.plurals import counted
from omni_kit.verify.review import Review
from omni_kit.verify.signature import Signer, signer_of

_HINT = "write one with `omni-kit verify PATH --card FILE`"
SCHEMA = "omni-kit/card/1"
PROVE, TODO = "prove", "todo"
StageStatus = Literal["passed", "failed", "not tested", "not applicable"]
_CARD = {"path": str, "options": dict, "stages": list, "suppressions": list, "baseline": str, "pins": dict}
_OPTIONS = {"weights": str, "quick": bool, "device": str, "min_branches": int}
_STAGE = {
    "stage": str, "status": str, "reason": str, "figure": str, "command": str, "untried": list, "left_out": bool
}  # fmt: skip
_MARKUP = re.compile(r"[\\`*_\[\]<>|&~#!]")
_ESCAPED = r"\\\g<0>"
_MARKS: Mapping[str, str] = {"passed": "✓", "failed": "✗", "not tested": "?", "not applicable": "–"}


@dataclass(frozen=True)
class Stage:
    """One line of the card.

    Attributes:
        reason: why it did not pass, or why it does not apply; empty for one that passed.
        figure: what was measured, in short.
        command: what runs this stage alone.
        resumed: it passed in an earlier run on the same files, and was not run again.
        left_out: the options excluded it, so its "not tested" is no gap of this run.
        untried: config fields that a stage did not vary, each with the reason; or injected faults without an effect.
    """

    stage: str
    status: StageStatus
    reason: str = ""
    figure: str = ""
    seconds: float = 0.0
    command: str = ""
    resumed: bool = False
    left_out: bool = False
    untried: Sequence[str] = field(default_factory=list)


@dataclass(frozen=True)
class Card:
    """The verdict on one integration.

    Attributes:
        path: as it was given; `options`, what else was asked for.
        suppressions: findings that the integration's own files silence; each "path:line rule".
        baseline: known findings that a settings file names, which are left out elsewhere and count here.
        pins: digests, versions and machine that the verdict hangs on.
        branches: how much of the code the levels executed, as `BranchReport.to_json`; empty if it was not measured.
        notes: what could not be measured, and why.
        review: how it differs from a fresh scaffold, where that was asked for; no part of the file.
        findings: what the rules report apart from to-dos, as "path:line RULE: message"; no part of a card that is read.
    """

    path: str
    options: Mapping[str, Any]
    stages: Sequence[Stage]
    suppressions: Sequence[str] = ()
    baseline: str = ""
    pins: Mapping[str, Any] = field(default_factory=dict)
    branches: Mapping[str, Any] = field(default_factory=dict)
    notes: Sequence[str] = ()
    review: Review | None = None
    findings: Sequence[str] = ()

    @property
    def todos(self) -> list[str]:
        """The to-dos of its files, as "path:line what"."""
        return [line for stage in self.stages if stage.stage == TODO for line in stage.untried]

    @property
    def passed(self) -> bool:
        """No stage failed, and at least one passed."""
        statuses = {stage.status for stage in self.stages}
        return "failed" not in statuses and "passed" in statuses

    @property
    def complete(self) -> bool:
        """Nothing that applies was left untested."""
        return all(stage.status != "not tested" for stage in self.stages)

    @property
    def resumed(self) -> str:
        """Return how many stages were skipped because they passed before, as text; empty if none."""
        count = sum(stage.resumed for stage in self.stages)
        return f"{counted(count, 'stage')} from an earlier run" if count else ""

    @property
    def left_out(self) -> list[str]:
        """The names of the stages that the options excluded."""
        return [stage.stage for stage in self.stages if stage.left_out]

    @property
    def exit_code(self) -> int:
        """Return 0 if all applicable stages passed, 1 if a stage failed, and 3 if a stage was not tested."""
        if any(stage.status == "failed" for stage in self.stages):
            return 1
        return 0 if self.passed and self.complete else 3

    def to_json(self) -> dict[str, Any]:
        """Return the fields of the contract."""
        return {
            "path": self.path,
            "options": dict(self.options),
            "stages": [asdict(stage) for stage in self.stages],
            "passed": self.passed,
            "complete": self.complete,
            "left_out": self.left_out,
            "suppressions": list(self.suppressions),
            "baseline": self.baseline,
            "todos": self.todos,
            "findings": list(self.findings),
            "not_tried": {
                "fields": [line for stage in self.stages for line in stage.untried if stage.stage not in (PROVE, TODO)],
                "faults": [line for stage in self.stages for line in stage.untried if stage.stage == PROVE],
                "branches": [dict(one) for one in self.branches.get("untaken", ())],
            },
            "branches": {name: value for name, value in self.branches.items() if name != "untaken"},
            "pins": dict(self.pins),
        }

    def not_executed(self, most: int = 8) -> list[str]:
        """Return how much of the code was executed, and which branches were not, bounded; nothing if unmeasured."""
        found = self.branches
        if not found:
            return []
        untaken = found["untaken"]
        lines = [f"{one['path']}:{one['line']} not executed: {one['needs']}" for one in untaken[:most]]
        more = (
            [f"{counted(len(untaken) - most, 'more branch')} not executed: see the JSON"] if len(untaken) > most else []
        )
        apart = Counter(one["apart"] for one in found["apart"])
        left = ", ".join(f"{count} {reason}" for reason, count in apart.most_common())
        return [f"{found['figure']}{f'; not counted: {left}' if left else ''}", *lines, *more]

    def dumps(self, signer: Signer | None = None) -> str:
        """Return the card as a file, with a checksum of its content and, with a key, a signature of the checksum."""
        body = {"schema": SCHEMA, **self.to_json()}
        checksum = _checksum(body)
        signed = {"signature": signer.sign(checksum)} if signer is not None else {}
        return json.dumps({**body, "checksum": checksum, **signed}, indent=2, ensure_ascii=False) + "\n"

    def markdown(self, signer: Signer | None = None) -> str:
        """Return the card as a block for a pull request."""
        word = "passed" if self.passed else "failed" if self.exit_code == 1 else "nothing passed"
        lines = [
            f"**omni-kit verify**: {_plain(self.path)} {word}{'' if self.complete else ', not complete'}"
            f"{self.resumed and f', {self.resumed}'}",
            "",
            "| stage | | figure, or why |",
            "|---|---|---|",
            *(
                f"| {stage.stage} | {_MARKS[stage.status]} {stage.status} | {_plain(stage.reason or stage.figure)} |"
                for stage in self.stages
            ),
            "",
            f"{counted(self.suppressions, 'finding')} suppressed; baseline: {_plain(self.baseline) or 'none'}.",
            *(f"{_plain(line)}  " for line in self.not_executed()),
            "",
            "<details><summary>card</summary>",
            "",
            "```json",
            self.dumps(signer).rstrip(),
            "```",
            "",
            "</details>",
        ]
        return "\n".join(lines) + "\n"


def _plain(words: str) -> str:
    """Return other people's words as one line of Markdown in which no markup counts."""
    return _MARKUP.sub(_ESCAPED, " ".join(words.split()))


@dataclass(frozen=True)
class LoadedCard:
    """A card as a file holds it.

    Attributes:
        signer: the fingerprint of the key that signed it; empty for a card without a signature.
    """

    card: Card
    signer: str


def load_card(file: Path) -> LoadedCard:
    """Return the card in a file, from JSON or from the block of a pull request.

    Raises:
        BadInput: the file is not a card, its checksum does not match its content, or its signature does not.
        MissingRequirement: the card is signed and `cryptography` is not installed.
    """
    text = _text_of(file)
    if file.suffix == ".md":
        text = text.partition("```json\n")[2].partition("\n```")[0]
    try:
        body = read_json(text)
        signature = str(body.pop("signature", ""))
        # Cards of earlier versions name the checksum "seal".
        checksum = body.pop("seal") if "seal" in body else body.pop("checksum")
        card = _read(body)
        unchanged = checksum == _checksum(body)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BadInput(f"{file} is not a card", _HINT) from error
    derived = {"schema": SCHEMA, "passed": card.passed, "complete": card.complete, "left_out": card.left_out}
    # Cards of earlier versions have no "left_out".
    if not unchanged or any(body.get(name, value) != value for name, value in derived.items()):
        raise BadInput(f"{file} was changed after it was written: its checksum does not match", "verify again")
    return LoadedCard(card, signer_of(checksum, signature) if signature else "")


def _text_of(file: Path) -> str:
    if file.exists() and not is_file(file):
        raise BadInput(f"cannot read {file}: it is not a regular file", _HINT)
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"cannot read {file}: {reason(error)}", _HINT) from error


def _read(body: Mapping[str, Any]) -> Card:
    """Return the card of a file's content.

    Raises:
        TypeError, KeyError: the content is not that of a card.
    """
    _check(body, _CARD)
    _check({name: value for name, value in body["options"].items() if value is not None}, _OPTIONS)
    stages = []
    for one in body["stages"]:
        _check(one, _STAGE)
        stages.append(Stage(**{**one, "untried": list(one.get("untried", ()))}))
    if strange := {stage.status for stage in stages} - _MARKS.keys():
        raise TypeError(f"a stage is {strange.pop()}")
    # Cards of earlier versions say nothing of branches.
    untaken = body.get("not_tried", {}).get("branches", [])
    branches = {**body["branches"], "untaken": untaken} if body.get("branches") else {}
    return Card(body["path"], body["options"], stages, body["suppressions"], body["baseline"], body["pins"], branches)


def _check(found: Any, kinds: Mapping[str, type]) -> None:
    """Raise TypeError unless what is named in `kinds` is of that kind, as far as it is there."""
    if not isinstance(found, Mapping):
        raise TypeError(f"a mapping is needed, not {found!r}")
    if strange := [name for name, kind in kinds.items() if name in found and type(found[name]) is not kind]:
        raise TypeError(f"{strange[0]} is not of type {kinds[strange[0]].__name__}")


def _checksum(body: Mapping[str, Any]) -> str:
    text = json.dumps(body, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
