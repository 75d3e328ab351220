"""The level `scenarios`: the model is called in the ways in which real runs call it."""

from typing import TYPE_CHECKING

from omni_kit.isolation.worker import StepError
from omni_kit.parity.compare.comparison import Comparison, NothingToCompare
from omni_kit.parity.levels.backward import Backward
from omni_kit.parity.levels.beginning import beginnings
from omni_kit.parity.levels.forward import Forward
from omni_kit.parity.levels.level import Level, LevelVerdict
from omni_kit.parity.levels.roundtrip import Roundtrip
from omni_kit.parity.levels.variants import varied
from omni_kit.parity.places import Places
from omni_kit.parity.report.report import ScenarioResult, fields_said, listed
from omni_kit.plurals import counted
from omni_kit.targets.sides import Ability
from omni_kit.toys.configs.variants import Extent

if TYPE_CHECKING:
    from omni_kit.parity.case import Case
    from omni_kit.parity.processes.outcomes import ScenarioOutcome

_ASKED_OF_VARIANTS: tuple[Level, ...] = (Roundtrip(), Forward(), Backward())


class Scenarios(Level):
    """Every tensor that upstream answers, in every way in which upstream can be called.

    Where the level is asked for by name, also by the code for devices that are not here, and with other configs:
    loading, answers and gradients of each.
    """

    name = "scenarios"
    says = "its outputs equal upstream's with padding, packing, a cache, config switches and masked labels"
    needs = frozenset({Ability.scenarios})
    default = True

    def judge(self, case: "Case") -> LevelVerdict:
        """See `Level.judge`."""
        found, results = Comparison(), []
        ways = {called.name: called for called in case.pair.called()}
        results += [compared_way(case, called, found) for called in ways.values()]
        if results and all(one.status == "refused" for one in results):
            raise NothingToCompare(f"no scenario could be compared; {results[0].name}: {results[0].reason}")
        results += beginnings(case)
        if case.thorough:
            results += [_on_branch(case, *branch, found) for branch in case.pair.branches().items()]
        if case.thorough and case.pair.given is None:
            results += [varied(name, pair, _loaded_and_run, found) for name, pair in case.pair.variants()]
        elif case.pair.given is None:
            results += [
                varied(name, pair, _loaded_and_run, found) for name, pair in case.pair.variants(Extent.together)
            ]
        wrong = [one for one in results if one.status == "fail"]
        passed = sum(one.status == "pass" for one in results)
        refused = [one.name for one in results if one.status == "refused"]
        fields = tuple(case.pair.fields)
        left_out = f"left out: {listed(refused)}" if refused else ""
        said = "; ".join(filter(None, [counted(passed, "scenario"), fields_said(fields), left_out]))
        reason = "; ".join(f"{one.name}: {one.reason}" for one in wrong)
        first = ways.get(wrong[0].name) if wrong else None
        place = (first.place or Places(case).of_way(first)) if first is not None else ""
        return LevelVerdict(found, reason, found.tolerance, said, scenarios=tuple(results), fields=fields, place=place)


def compared_way(
    case: "Case", called: "ScenarioOutcome", found: Comparison, place: str = "candidate/ways"
) -> ScenarioResult:
    """Return one way; what is wrong is added to `found` under its name.

    Args:
        place: the folder of the candidate's answers.
    """
    from omni_kit.parity.compare.tensors import compare_closely
    from omni_kit.parity.processes.outcomes import NUDGED, REFERENCE

    if called.refused:
        return ScenarioResult(called.name, "refused", f"upstream refuses it: {called.refused}")
    if called.wants:
        return ScenarioResult(called.name, "refused", f"the integration was not called: {called.wants}")
    if called.failed:
        return ScenarioResult(called.name, "fail", f"it fails: {called.failed}")
    reference, nudged, candidate = (
        case.pair.answers_of(folder, called.folder) for folder in (f"{REFERENCE}/ways", f"{NUDGED}/ways", place)
    )
    try:
        one = compare_closely(reference, {name: candidate[name] for name in candidate if name in reference}, nudged)
    except NothingToCompare as why:
        return ScenarioResult(called.name, "refused", str(why))
    found.absorb(one.under(called.name))
    return ScenarioResult(
        called.name, "pass" if one.ok else "fail", "" if one.ok else one.reason("answer"), one.compared, one.max_rel
    )


def _on_branch(case: "Case", branch: str, lacks: str, found: Comparison) -> ScenarioResult:
    """Return all ways of calling what another device would run; those that this device's code fails are left out."""
    if lacks:
        return ScenarioResult(branch, "refused", f"not tested: its code needs {lacks}")
    here = {one.name for one in case.pair.called() if compared_way(case, one, Comparison()).status == "pass"}
    place, compared = f"candidate/branches/{branch}", Comparison()
    try:
        told = [one for one in case.pair.outcomes_on(branch, place) if one.name in here]
    except StepError as error:
        return ScenarioResult(branch, "fail", str(error))
    results = [compared_way(case, one, compared, place) for one in told]
    found.absorb(compared.under(branch))
    wrong = [f"{one.name}: {one.reason}" for one in results if one.status == "fail"]
    if not compared.compared and not wrong and told:
        return ScenarioResult(branch, "refused", f"not tested: {told[0].wants}")
    more = f", and {len(wrong) - 1} more" if wrong[1:] else ""
    reason = f"{wrong[0]}{more}" if wrong else ""
    return ScenarioResult(branch, "fail" if wrong else "pass", reason, compared.compared, compared.max_rel)


def _loaded_and_run(case: "Case", compared: Comparison) -> str:
    """Loading, answers and gradients of another config; the first level that fails."""
    for level in _ASKED_OF_VARIANTS:
        verdict = level.judge(case)
        compared.absorb(verdict.comparison)
        if verdict.reason:
            return f"{level.name}: {verdict.reason}"
    return ""
