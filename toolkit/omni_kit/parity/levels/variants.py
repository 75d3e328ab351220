"""A level on another toy of the same model: what is compared is the level's own, how it can end is the same for all."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from omni_kit.isolation.worker import StepError
from omni_kit.parity.compare.comparison import Comparison, NothingToCompare
from omni_kit.parity.report.report import ScenarioResult

if TYPE_CHECKING:
    from omni_kit.parity.case import Case
    from omni_kit.parity.processes.pair import Pair


def varied(
    name: str, pair: "Pair | StepError", compare: "Callable[[Case, Comparison], str]", found: Comparison
) -> ScenarioResult:
    """Return the result of one variant; upstream errors and rounding that upstream amplifies exclude it.

    Args:
        name: what is different.
        pair: both sides with it, or why upstream has none.
        compare: adds what it compares to a comparison, and says why the variant fails; empty if it does not.
        found: gets everything that was compared, under the variant's name.
    """
    from omni_kit.parity.case import Case

    if isinstance(pair, StepError):
        return ScenarioResult(name, "refused", f"upstream refuses it: {pair}")
    compared = Comparison()
    try:
        pair.imported()
        reason = compare(Case(pair), compared)
    except StepError as error:
        return ScenarioResult(name, "fail" if error.blames_candidate else "refused", str(error))
    except NothingToCompare as why:
        return ScenarioResult(name, "refused", str(why))
    if reason and compared.proves_nothing:
        return ScenarioResult(name, "refused", f"upstream itself magnifies rounding as much: {reason}")
    found.absorb(compared.under(name))
    return ScenarioResult(name, "fail" if reason else "pass", reason, compared.compared, compared.max_rel)
