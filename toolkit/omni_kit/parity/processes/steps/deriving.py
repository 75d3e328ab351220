"""The step in which the candidate's process finds out which of upstream's weights it is made of."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from omni_kit.parity.compare.files import load_tensors
from omni_kit.parity.compare.trace import Recording
from omni_kit.parity.processes.builder import TargetFault
from omni_kit.parity.processes.side import Side, placed
from omni_kit.parity.processes.step import Step
from omni_kit.parity.renaming.holders import holders_of
from omni_kit.parity.renaming.solve import Solution, solve
from omni_kit.parity.renaming.table import Row, function_of, rows_of
from omni_kit.targets.sides import Blank

_LOSS = "loss"
_MOST_HEADS = 64


@dataclass(frozen=True)
class Derive(Step[dict[str, Any]]):
    """Solves the renaming, and proves the function that it writes: it gives the very weights that were found.

    Answers `rows`, the `text` of the function, `rivals`, `unreached`, `unused`, `runs` and the `reason` of a failure.
    """

    checkpoint: Path
    state: Path
    inputs: Path
    trace: Path
    outputs: Path
    function: str
    seconds: float

    def take(self, side: Side) -> dict[str, Any]:
        """See `Step.take`."""
        if not isinstance(side.builder, Blank):
            raise TargetFault(f"{side.builder_name} cannot build a model without weights")
        model = side.builder.blank(self.checkpoint)
        state, batch = load_tensors(self.state), placed(model, load_tensors(self.inputs))
        answers = {name: one for name, one in load_tensors(self.outputs).items() if name != _LOSS}
        config = json.loads((self.checkpoint / "config.json").read_text(encoding="utf-8"))
        found = solve(
            model, lambda: side.builder.forward(model, batch, loss_only=True), answers,
            holders_of(state, Recording.load(self.trace)), state,
            list(dict.fromkeys(_heads(model, config))), self.seconds,
        )  # fmt: skip
        rows = rows_of(found.chosen)
        text = function_of(self.function, rows) if not found.reason else ""
        wrong = _disproved(text, self.function, found, state) if text else ""
        used = {one for row in found.chosen.values() for names in row.sources.values() for one in names}
        return {
            "rows": [vars(row) for row in rows], "text": text, "rivals": found.rivals, "unreached": found.unreached,
            "unused": sorted(state.keys() - used) if text else [], "runs": found.runs, "reason": found.reason or wrong,
        }  # fmt: skip


def _heads(model: nn.Module, config: dict[str, Any]) -> Iterator[int]:
    """Yield possible numbers of heads, from the model's config and its modules."""
    named = [value for name, value in config.items() if "head" in name]
    held = [value for module in model.modules() for name, value in vars(module).items() if "head" in name]
    found = [one for one in (*named, *held) if isinstance(one, int) and not isinstance(one, bool) and one > 0]
    counts = list(dict.fromkeys(found))
    yield from counts
    widths = {module.out_features for module in model.modules() if isinstance(module, nn.Linear)}
    derived = (width // one for one in counts for width in widths if one > 2 and width % one == 0)
    yield from (one for one in derived if 0 < one <= _MOST_HEADS)


def _disproved(text: str, name: str, found: Solution, state: dict[str, torch.Tensor]) -> str:
    """Return what the function computes differently from the findings; empty for nothing."""
    scope: dict[str, Any] = {}
    exec(compile(text, f"{name}.py", "exec"), scope)
    converted = scope[name](state)
    for module, option in found.chosen.items():
        for own, expected in option.made(state).items():
            target = f"{module}.{own}" if module else own
            if target not in converted or not torch.equal(converted[target], expected):
                return f"the table does not give {target}"
    return ""


def as_rows(said: list[dict[str, Any]]) -> list[Row]:
    """Return the lines of a table that came from another process."""
    return [Row(one["target"], tuple(one["sources"]), one["how"]) for one in said]
