"""Consumers of a checkpoint: a library, or a framework with its own loader, and how each reads the keys."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from omni_kit.errors import BadInput, Refusal
from omni_kit.layout.accounting import Accounting
from omni_kit.layout.checkpoint import Checkpoint
from omni_kit.layout.findings import LayoutFinding, findings_of_keys
from omni_kit.layout.loading import Loading
from omni_kit.layout.verdict import LayoutVerdict
from omni_kit.upstream.subject import Subject


class Consumer(Protocol):
    """Judges a checkpoint as its loader would load it."""

    @property
    def name(self) -> str:
        """Name as typed after --for."""

    def consume(self, subject: Subject, checkpoint: Checkpoint, verdict: LayoutVerdict) -> LayoutVerdict:
        """Return the verdict against what this consumer builds, in which every parameter is written exactly once.

        Raises:
            BadInput: it does not take such a model.
            MissingRequirement: what it loads with is not installed.
        """


@dataclass(frozen=True)
class LibraryConsumer:
    """The library whose classes the model is of: the account as it was made from its source."""

    name: str

    def consume(self, subject: Subject, checkpoint: Checkpoint, verdict: LayoutVerdict) -> LayoutVerdict:
        """See `Consumer.consume`."""
        if subject.library.name != self.name:
            raise BadInput(f"{subject.given} is of {subject.library.name}: {self.name} cannot load it")
        return verdict


@dataclass(frozen=True)
class ConvertingConsumer:
    """A framework with the library's modules that converts experts where a converter exists.

    Attributes:
        needs: what loading a checkpoint needs; raises a Refusal where no converter can make it.
    """

    name: str
    needs: Callable[[LayoutVerdict], Loading]

    def consume(self, subject: Subject, checkpoint: Checkpoint, verdict: LayoutVerdict) -> LayoutVerdict:
        """See `Consumer.consume`."""
        try:
            self.needs(verdict)
        except Refusal as refused:
            said = f"{self.name} cannot load it: {refused.message}" + (f"; {refused.hint}" if refused.hint else "")
            return replace(verdict, findings=(*verdict.findings, LayoutFinding("not-loadable", "error", said)))
        return verdict


def accounted(verdict: LayoutVerdict, accounting: Accounting) -> LayoutVerdict:
    """Return the verdict with a consumer's own account instead of the library's."""
    if verdict.accounting is None:
        replaced: set[LayoutFinding] = {one for one in verdict.findings if one.code == "no-config"}
    else:
        replaced = set(findings_of_keys(verdict.accounting))
    kept = (one for one in verdict.findings if one not in replaced)
    return replace(verdict, accounting=accounting, findings=(*kept, *findings_of_keys(accounting)))
