"""Definition of a level: a name, the abilities it needs of both sides, and a judge."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from omni_kit.parity.compare.comparison import Comparison
from omni_kit.parity.report.report import LevelResult, ScenarioResult, Status
from omni_kit.targets.sides import Ability
from omni_kit.toys.configs.variants import FieldVaried

if TYPE_CHECKING:
    from omni_kit.parity.case import Case

_WORST_SHOWN = 20


@dataclass(frozen=True)
class LevelVerdict:
    """A comparison, what is wrong with it, and what was allowed.

    Attributes:
        reason: why the level does not pass; empty if it does.
        said: what a level that passes tried, in one line.
        skip: nothing was compared, for that reason.
        untested: what could not be tried, why, and what to install; with it a level does not pass.
        scenarios: what came of each, where there are several.
        fields: of each field of the config that upstream's code reads, what was tried.
        place: the own line that is responsible; see `LevelResult`.
    """

    comparison: Comparison
    reason: str = ""
    tolerance: float | None = None
    said: str = ""
    skip: bool = False
    untested: str = ""
    scenarios: tuple[ScenarioResult, ...] = ()
    fields: tuple[FieldVaried, ...] = ()
    place: str = ""

    def result(self, level: str) -> LevelResult:
        """Return the level's line of the report; of a level that fails, figures only where those are what failed."""
        if self.skip:
            return LevelResult(level, "skip", self.reason, applicable=False)
        status: Status = "fail" if self.reason else "skip" if self.untested else "pass"
        reason = self.reason or (f"not tested: {self.untested}" if self.untested else self.said)
        found = self.comparison
        if not found.compared or (self.reason and self._within):
            return LevelResult(level, status, reason, scenarios=self.scenarios, fields=self.fields, place=self.place)
        return LevelResult(
            level,
            status,
            reason,
            max_abs=found.max_abs,
            max_rel=found.max_rel,
            tolerance=self.tolerance,
            worst=tuple(found.worst[:_WORST_SHOWN]),
            scenarios=self.scenarios,
            fields=self.fields,
            place=self.place,
        )

    @property
    def _within(self) -> bool:
        """Return whether every figure is within what is allowed."""
        return self.tolerance is not None and not self.comparison.worst and self.comparison.max_rel <= self.tolerance


class Level(ABC):
    """Something that is compared. Importing one imports no torch: its judge asks the case for what does."""

    name: ClassVar[str]
    says: ClassVar[str]
    """Behaviour of a candidate that passes, in one line, for the help text."""
    needs: ClassVar[frozenset[Ability]] = frozenset()
    """Abilities that both sides must have."""
    default: ClassVar[bool] = False
    """True if it runs where no levels are named."""

    default_without: ClassVar[frozenset[Ability]] = frozenset()
    """Abilities with which it runs only where it is named."""

    @property
    def described(self) -> str:
        """Behaviour of a candidate that passes, and of which sides it runs by default, where not of all."""
        lacking = " and ".join(sorted(self.default_without))
        return f"{self.says}; by default only of sides without {lacking}" if lacking else self.says

    def runs_unasked(self, offers: frozenset[Ability]) -> bool:
        """Return whether it runs where no levels are named and both sides can do these."""
        return self.default and self.needs <= offers and self.default_without.isdisjoint(offers)

    @abstractmethod
    def judge(self, case: "Case") -> LevelVerdict:
        """Compare.

        Raises:
            StepError: a step gave no result.
            NothingToCompare: what it compares is not there.
        """
