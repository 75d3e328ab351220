"""Shared part of the levels with several processes: each mesh must reproduce the results of one process."""

import math
from typing import TYPE_CHECKING

from omni_kit.parity.compare.comparison import Comparison
from omni_kit.parity.levels.level import Level, LevelVerdict
from omni_kit.parity.report.report import Worst
from omni_kit.targets.sides import Ability
from omni_kit.toys.tensors import Tensors

if TYPE_CHECKING:
    from omni_kit.parity.case import Case
    from omni_kit.parity.processes.training import Trained, TrainedStep

_NORM = "gradient_norm"  # see `Distributed.train`


class MeshLevel(Level):
    """Loss, norm of the gradients and every gradient of each mesh against those of one process."""

    needs = frozenset({Ability.gradient, Ability.mesh})

    def judge(self, case: "Case") -> LevelVerdict:
        """See `Level.judge`."""
        return judge_trained(case, case.pair.trained(self.name))


def judge_trained(case: "Case", trained: "list[Trained] | str") -> LevelVerdict:
    """Return the verdict on what training on the meshes of a level gave, or on why there was nothing to train."""
    if isinstance(trained, str):
        return LevelVerdict(Comparison(), trained, skip=True)
    alone, *others = trained
    measures = {one.mesh.dtype: one for one in reversed(trained) if one.alone}
    found, reasons = Comparison(), []
    for other in (one for one in others if not one.alone):
        exact = other.mesh.dtype == alone.mesh.dtype
        for index, pair in enumerate(zip(alone.steps, measures[other.mesh.dtype].steps, other.steps, strict=True)):
            about = f" ({other.about[index]})" if other.about[index] else ""
            batch = f", batch {index + 1} of {len(alone.steps)}{about}" if len(alone.steps) > 1 else ""
            compared = _exactly(pair[0], pair[2], case) if exact else _by_ratio(*pair, other.mesh.dtype)
            for what, comparison in compared.items():
                found.absorb(comparison)
                if not comparison.ok:
                    reasons.append(f"{other.mesh.name}{batch}: {comparison.reason(what.removesuffix('s'))}")
    said = f"{', '.join(other.mesh.name for other in others if not other.alone)} as one process"
    return LevelVerdict(found, "; ".join(reasons), found.tolerance, said)


def _exactly(alone: "TrainedStep", other: "TrainedStep", case: "Case") -> dict[str, Comparison]:
    """Up to rounding."""
    from omni_kit.parity.compare.tensors import compare_closely

    (figures, gradients), (their_figures, their_gradients) = alone, other
    if not gradients:  # a pipeline that serves has none
        return {"figures": compare_closely(figures, their_figures, figures)}
    nudged = _nudged(gradients, case)
    moved = {name: nudged[name] - gradient for name, gradient in gradients.items()}
    share = 1 + _norm(moved) / _norm(gradients)  # a norm moves by no more than the norm of what moves
    figures_nudged = {name: figure * share if name == _NORM else figure for name, figure in figures.items()}
    return {
        "figures": compare_closely(figures, their_figures, figures_nudged),
        "gradients": compare_closely(gradients, their_gradients, nudged),
    }


def _norm(tensors: Tensors) -> float:
    return math.sqrt(sum(float(one.double().square().sum()) for one in tensors.values()))


def _by_ratio(alone: "TrainedStep", measure: "TrainedStep", other: "TrainedStep", dtype: str) -> dict[str, Comparison]:
    """In low precision: hardly further from float32 than one process is."""
    from omni_kit.parity.compare.precision import total_loss

    found = {}
    for what, exact, reference, candidate in zip(("figures", "gradients"), alone, measure, other, strict=True):
        loss = total_loss(what, exact, reference, candidate, dtype)
        found[what] = Comparison(compared=len(exact), tolerance=1.0, max_rel=loss.excess)
        if loss.excess > 1:
            why = f"off by {loss.candidate:.1e} in {dtype}, one process by {loss.reference:.1e}"
            found[what].worst.append(Worst(what, loss.candidate, loss.excess, why))
    return found


def _nudged(gradients: Tensors, case: "Case") -> Tensors:
    """Return the gradients moved by what one step in each weight does to those of upstream's model."""
    exact, nudged = (case.pair.results_of(side, "gradients") for side in ("reference", "reference/nudged"))
    return {
        name: gradient + (nudged[name] - exact[name]) if name in nudged and name in exact else gradient
        for name, gradient in gradients.items()
    }
