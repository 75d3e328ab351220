"""The level `stages`: a pipeline's answers in the order in which they come about."""

from typing import TYPE_CHECKING

from omni_kit.parity.compare.comparison import Comparison
from omni_kit.parity.levels.level import Level, LevelVerdict
from omni_kit.parity.levels.variants import varied
from omni_kit.plurals import counted
from omni_kit.targets.sides import Ability

if TYPE_CHECKING:
    from omni_kit.parity.case import Case
    from omni_kit.toys.tensors import Tensors

_NUMBER = 4  # characters before a stage's name
# Both sides begin with the same noise and go the same steps, which a target may shift in float64 and round afterwards.
_EXACT = {"noise": 0, "timesteps": 2, "sigmas": 2}


class Stages(Level):
    """Noise bit for bit, steps and sigmas to two float32 steps; the rest within rounding."""

    name = "stages"
    says = "a pipeline's noise, timesteps, conditions, outputs and images equal upstream's, stage by stage"
    needs = frozenset({Ability.stages})
    default = True

    def judge(self, case: "Case") -> LevelVerdict:
        """See `Level.judge`."""
        from omni_kit.parity.compare.closeness import closeness

        answers = case.evidence.results("outputs")
        found = compared_stages(case, answers)
        scenarios = {name.partition("/")[0] for name in answers}
        seen = closeness(
            case.batch_builder.frames(case.pair.inputs(), reference_of(case)),
            case.batch_builder.frames(case.pair.inputs(), answers),
        )
        said = f"{counted(answers, 'answer')} in {counted(scenarios, 'scenario')}{seen}"
        reason = "" if found.ok else _first(found) + seen
        results = [varied(name, pair, _served, found) for name, pair in case.pair.variants()] if case.thorough else []
        wrong = [f"{one.name}: {one.reason}" for one in results if one.status == "fail"]
        return LevelVerdict(
            found, "; ".join(filter(None, [reason, *wrong])), found.tolerance, said, scenarios=tuple(results)
        )


def _served(case: "Case", compared: Comparison) -> str:
    """Return another checkpoint of the same pipeline, such as a distilled one; the first stages that diverge."""
    one = compared_stages(case, case.evidence.results("outputs"))
    compared.absorb(one)
    return "" if one.ok else _first(one)


def reference_of(case: "Case") -> "Tensors":
    """Return upstream's outputs, stage by stage."""
    from omni_kit.parity.processes.outcomes import REFERENCE

    return case.pair.results_of(REFERENCE, "outputs")


def compared_stages(case: "Case", candidate: "Tensors") -> Comparison:
    """Return every stage of a run of the candidate: exactly, or within rounding."""
    from omni_kit.parity.compare.tensors import compare_exactly

    found, reference = Comparison(), reference_of(case)
    for stage, steps in _EXACT.items():
        exact = {name: tensor for name, tensor in reference.items() if name.endswith(stage)}
        found.absorb(compare_exactly(exact, {name: candidate[name] for name in exact if name in candidate}, steps))
    found.absorb(case.compared_outputs(candidate))
    return found


def first_stages(found: Comparison) -> dict[str, str]:
    """Scenario -> the first stage that diverges, of those in which one does."""
    names = (name.partition("/") for name in _first_names(found))
    return {scenario: stage[_NUMBER:] for scenario, _, stage in names}


def _first(found: Comparison) -> str:
    """Return the first stage that diverges, in each scenario, and by how much."""
    by_name = {worst.name: worst for worst in found.worst}
    said = []
    for name in _first_names(found):
        scenario, _, stage = name.partition("/")
        if name in by_name:
            how = by_name[name].why or f"off by {by_name[name].max_rel:.1e}"
        else:
            how = "missing" if name in found.missing else "upstream has none"
        said.append(f"{scenario}: {stage[_NUMBER:]} ({how})")
    return "first to diverge: " + "; ".join(said)


def _first_names(found: Comparison) -> list[str]:
    firsts: dict[str, str] = {}
    for name in sorted({*found.missing, *found.unexpected, *(worst.name for worst in found.worst)}):
        firsts.setdefault(name.partition("/")[0], name)
    return list(firsts.values())
