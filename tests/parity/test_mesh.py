"""Norms of gradients on a mesh: judged by the rounding of the gradients that they are of."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from omni_kit.parity.levels.mesh import judge_trained
from omni_kit.parity.processes.training import Trained
from omni_kit.targets.sides import Mesh
from omni_kit.toys.tensors import Tensors
from omni_kit.toys.weights import shuffled_ramp

GRADIENTS = {"w": shuffled_ramp("w", torch.Size([8, 8]))}


def trained(name: str, processes: int, off: float) -> Trained:
    norm = torch.linalg.vector_norm(GRADIENTS["w"]) * (1 + off)
    figures = {"loss": torch.tensor(2.5), "gradient_norm": norm}
    return Trained(Mesh(name, processes, {}), [(figures, GRADIENTS)], [""], 0.0)


def case(nudge: float) -> Any:
    """What a float32 step in each weight does to upstream's gradients."""

    def results_of(side: str, what: str) -> Tensors:
        assert what == "gradients"
        return {"w": GRADIENTS["w"] * (1 + nudge * side.endswith("nudged"))}

    return SimpleNamespace(pair=SimpleNamespace(results_of=results_of))


@pytest.mark.parametrize(("nudge", "off", "ok"), [
    (1e-7, 4e-5, False),  # a model that magnifies nothing
    (5e-6, 4e-5, True),
    (5e-6, 4e-4, False),
    (1e-2, 4e-3, False),  # never so much that a fault passes for rounding
])  # fmt: skip
def test_a_norm_may_round_as_its_gradients_do(nudge: float, off: float, ok: bool) -> None:
    verdict = judge_trained(case(nudge), [trained("one", 1, 0.0), trained("ulysses=2", 2, off)])
    assert verdict.comparison.ok == ok
    assert ("gradient_norm" in verdict.reason) != ok
