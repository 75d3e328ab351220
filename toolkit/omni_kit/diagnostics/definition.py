"""Definitions: what each ID means.

An ID is a prefix of capitals and a number, such as VEO201. A rule with several detectors is a family: each detector has
the family's ID, a dot and a number of its own, such as VEO415.2. Findings carry the detector's ID. Wherever IDs are
listed (select, ignore, comments, baselines), the family's ID stands for all of its detectors.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from omni_kit.diagnostics.finding import Severity

Example = Mapping[str, str]
"""Files of an example: path inside the model directory -> text."""


@dataclass(frozen=True)
class Documentation:
    """The documentation of an ID: the norm, the consequence and the exceptions."""

    summary: str
    details: str = ""
    why: str = ""
    fine_when: str = ""


@cache
def documentation(text: str) -> Documentation:
    """Return the parts of a docstring: summary, details, `Why:` and `Fine when:`; missing parts are empty."""
    summary, _, rest = text.partition("\n\n")
    parts = re.split(r"^(Why|Fine when):\s*", rest, flags=re.MULTILINE)
    named = dict(zip(parts[1::2], parts[2::2], strict=True))
    return Documentation(
        summary=" ".join(summary.split()),
        details=parts[0].strip(),
        why=" ".join(named.get("Why", "").split()),
        fine_when=" ".join(named.get("Fine when", "").split()),
    )


@dataclass(frozen=True)
class Definition:
    """The definition of one ID.

    Attributes:
        severity: of its findings, unless one of them differs.
        target: a framework, or "patchgen", "layout", "skill" or "any".
        level: how far a rule goes: "static", "import" or "toy".
        kinds: of model; empty for all.
        family: the ID of the family that it is a detector of; empty for all others.
        suppressible: whether it can be ignored; a diagnostic that says why nothing was produced cannot.
    """

    id: str
    name: str
    severity: Severity
    target: str
    documentation: Documentation
    level: str = "static"
    kinds: tuple[str, ...] = ()
    obligations: tuple[str, ...] = ()
    fixable: bool = False
    since: str = "0.1"
    status: str = "stable"
    family: str = ""
    suppressible: bool = True
    bad: tuple[Example, ...] = ()
    good: tuple[Example, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return one entry of `omni-kit rules`; the ID says which family a detector belongs to."""
        return {
            "id": self.id,
            "name": self.name,
            "severity": self.severity.value,
            "target": self.target,
            "kinds": list(self.kinds),
            "level": self.level,
            "summary": self.documentation.summary,
            "obligations": list(self.obligations),
            "fixable": self.fixable,
            "since": self.since,
            "status": self.status,
        }


def family_of(rule_id: str) -> str:
    """Return the ID of the family of a detector; any other ID itself."""
    return rule_id.partition(".")[0]


def names(listed: str, rule_id: str) -> bool:
    """Return whether an ID in a comment or baseline means `rule_id`: it is the same, or its family's."""
    return listed.upper() in (rule_id, family_of(rule_id))


def begins(prefix: str, rule_id: str) -> bool:
    """Return whether a prefix in `select` or `ignore` means `rule_id`.

    The whole ID of a detector means only that one.
    """
    prefix = prefix.upper()
    return rule_id == prefix or ("." not in prefix and rule_id.startswith(prefix))


@dataclass(frozen=True)
class Selection:
    """The IDs that are reported: those that begin with one of `select`, all without any, and with none of `ignore`."""

    select: Sequence[str] = ()
    ignore: Sequence[str] = ()

    def __contains__(self, rule_id: str) -> bool:
        return (not self.select or _any(self.select, rule_id)) and not _any(self.ignore, rule_id)

    def unknown(self, known: Iterable[str]) -> list[str]:
        """Return the prefixes that no known ID begins with."""
        ids = list(known)
        return [prefix for prefix in (*self.select, *self.ignore) if not any(begins(prefix, one) for one in ids)]


def _any(prefixes: Iterable[str], rule_id: str) -> bool:
    return any(begins(prefix, rule_id) for prefix in prefixes)
