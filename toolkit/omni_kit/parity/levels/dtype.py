"""The level `dtype`."""

from typing import TYPE_CHECKING

from omni_kit.parity.compare.comparison import Comparison
from omni_kit.parity.levels.level import Level, LevelVerdict
from omni_kit.parity.levels.variants import varied
from omni_kit.targets.sides import Ability
from omni_kit.toys.configs.variants import Extent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from omni_kit.parity.case import Case
    from omni_kit.parity.compare.precision import Loss
    from omni_kit.parity.compare.rounding import Rounding


_LOSS = "loss"


class Dtype(Level):
    """In each low dtype, modules round where upstream's do, and the candidate is hardly further from float32."""

    name = "dtype"
    says = "in bfloat16 and float16 it casts where upstream does, and its error stays close to upstream's"
    needs = frozenset({Ability.cast})

    def judge(self, case: "Case") -> LevelVerdict:
        """See `Level.judge`. The figure is the largest difference from upstream's own result in the low dtype."""
        from omni_kit.parity.compare.precision import DTYPES

        found, reasons, said = Comparison(), [], []
        for dtype in case.pair.runs_upstream(DTYPES):
            losses, roundings = _measured(case, dtype)
            found.compared += len(losses)
            found.max_rel = max([found.max_rel, *(one.ulps * _eps(dtype) for one in roundings)])
            if wrong := _wrong(dtype, losses, roundings):
                reasons.append(wrong)
            elif rounded := _rounded_loss(case, dtype):
                reasons.append(f"{dtype}: {rounded}")
            said.append(_said(dtype, roundings))
        if not reasons and case.pair.given is None:
            results = [varied(name, pair, _turned, found) for name, pair in case.pair.variants(Extent.switches)]
            reasons = [f"{one.name}: {one.reason}" for one in results if one.status == "fail"]
        return LevelVerdict(found, "; ".join(reasons), None, "; ".join(said))


def _turned(case: "Case", compared: Comparison) -> str:
    """Return what is wrong in the first low dtype, in a model of another config."""
    from omni_kit.parity.compare.precision import DTYPES

    for dtype in case.pair.runs_upstream(DTYPES[:1]):
        losses, roundings = _measured(case, dtype)
        compared.compared += len(losses)
        if wrong := _wrong(dtype, losses, roundings):
            return wrong
    return ""


def _wrong(dtype: str, losses: "Sequence[Loss]", roundings: "Sequence[Rounding]") -> str:
    if moved := next((one.wrong for one in roundings if one.wrong), ""):
        return f"{dtype}: {moved}"
    if excessive := next((loss for loss in losses if loss.excess > 1), None):
        figures = f"{excessive.candidate:.1e}, upstream {excessive.reference:.1e}"
        return f"{dtype}: {excessive.name or 'the model'} is too far from float32 ({figures})"
    return ""


def _said(dtype: str, roundings: "Sequence[Rounding]") -> str:
    equal = sum(not one.differing for one in roundings)
    ulps = max((one.ulps for one in roundings), default=0.0)
    said = f"{dtype}: {equal} of {len(roundings)} calls of modules equal upstream's bit by bit"
    return said + (f", others within {ulps:.2g} ulp" if ulps else "")


def _rounded_loss(case: "Case", dtype: str) -> str:
    """Return why the loss has fewer digits than upstream's; empty if it has as many."""
    found = [case.pair.results_of(f"{side}/{dtype}", "outputs").get(_LOSS) for side in ("reference", "candidate")]
    kinds = [str(one.dtype).removeprefix("torch.") for one in found if one is not None]
    if len(kinds) < 2 or _eps(kinds[1]) <= _eps(kinds[0]):
        return ""
    return f"the loss is {kinds[1]}, and upstream's {kinds[0]}"


def _eps(dtype: str) -> float:
    import torch

    return float(torch.finfo(getattr(torch, dtype)).eps)


def _measured(case: "Case", dtype: str) -> "tuple[list[Loss], list[Rounding]]":
    """Return modules first, in their order; then answers and gradients."""
    from omni_kit.parity.compare.precision import Replays, judged_losses

    side = f"candidate/{dtype}"
    reference, candidate = (case.pair.replayed_as(one, dtype) for one in ("reference", "candidate"))
    replays = Replays(case.pair.recordings()[0], reference, candidate, case.mask)
    losses = [
        *replays.losses(dtype),
        *judged_losses(case.pair.results_of, case.batch_builder, dtype, side, case.offers),
    ]
    return losses, [*replays.roundings(dtype)]
