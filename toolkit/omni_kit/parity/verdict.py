"""What a level's judge says."""

from dataclasses import dataclass

from omni_kit.parity.compare import Comparison
from omni_kit.parity.report import LevelResult, Status

_WORST_SHOWN = 20


@dataclass(frozen=True)
class Verdict:
    """A comparison, what is wrong with it, and what was allowed.

    Attributes:
        reason: why the level does not pass; empty where it does.
        said: what a level that passes says.
        skip: nothing was compared, for that reason.
    """

    comparison: Comparison
    reason: str = ""
    tolerance: float | None = None
    said: str = ""
    skip: bool = False

    def result(self, level: str) -> LevelResult:
        """The level's line of the report."""
        if self.skip:
            return LevelResult(level, "skip", self.reason)
        status: Status = "fail" if self.reason else "pass"
        found = self.comparison
        if not found.compared:
            return LevelResult(level, status, self.reason or self.said)
        return LevelResult(
            level,
            status,
            self.reason or self.said,
            max_abs=found.max_abs,
            max_rel=found.max_rel,
            tolerance=self.tolerance,
            worst=tuple(found.worst[:_WORST_SHOWN]),
        )
