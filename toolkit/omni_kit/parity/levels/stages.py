"""The level `stages`: a pipeline's answers in the order in which they come about."""

from typing import TYPE_CHECKING

from omni_kit.parity.compare.comparison import Comparison
from omni_kit.parity.levels.level import Level, LevelVerdict
from omni_kit.targets.sides import Ability

if TYPE_CHECKING:
    from omni_kit.parity.case import Case

# What no rounding excuses: both sides begin with the same noise, and go the same steps.
_EXACT = ("noise", "timesteps", "sigmas")


class Stages(Level):
    """Noise, steps and sigmas bit for bit; conditions, answers, latents and pictures within rounding."""

    name = "stages"
    says = "a pipeline's noise, steps, conditions, answers and pictures are upstream's, stage by stage"
    needs = frozenset({Ability.stages})
    default = True

    def judge(self, case: "Case") -> LevelVerdict:
        """See `Level.judge`."""
        from omni_kit.parity.compare.tensors import compare_exactly
        from omni_kit.parity.processes.pair import REFERENCE

        found, reference = Comparison(), case.pair.results_of(REFERENCE, "outputs")
        candidate = case.evidence.results("outputs")
        exact = {name: tensor for name, tensor in reference.items() if name.endswith(_EXACT)}
        found.absorb(compare_exactly(exact, {name: candidate[name] for name in exact if name in candidate}))
        found.absorb(case.compared_outputs(candidate))
        wrong = sorted({*found.missing, *found.unexpected, *(worst.name for worst in found.worst)})
        scenarios = {name.partition("/")[0] for name in reference}
        said = f"{len(reference)} answers in {len(scenarios)} scenarios"
        return LevelVerdict(found, _first(wrong, found) if wrong else "", found.tolerance, said)


def _first(wrong: list[str], found: Comparison) -> str:
    """The first stage that diverges, in each scenario, and by how much."""
    by_name = {worst.name: worst for worst in found.worst}
    firsts: dict[str, str] = {}
    for name in wrong:
        scenario, _, stage = name.partition("/")
        if name in by_name:
            how = by_name[name].why or f"off by {by_name[name].max_rel:.1e}"
        else:
            how = "missing" if name in found.missing else "upstream has none"
        firsts.setdefault(scenario, f"{scenario}: {stage[4:]} ({how})")
    return "first to diverge: " + "; ".join(firsts.values())
