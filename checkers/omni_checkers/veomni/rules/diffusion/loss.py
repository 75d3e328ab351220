"""The rule about the loss of a transformer: VEO629."""

from collections.abc import Iterator

from omni_checkers.engine.rule import Finding, Findings, NotApplicable, Rule, Severity
from omni_checkers.symbolic import Call, Class
from omni_checkers.veomni.examples_diffusion import FORWARD, MODEL, MODELING
from omni_checkers.veomni.facts.diffusion import Diffusion
from omni_checkers.veomni.facts.diffusion.conditions import returned_keys
from omni_checkers.veomni.facts.diffusion.losses import SAMPLES, SIZES, Answer, answers
from omni_checkers.veomni.facts.diffusion.numbers import Flat, Joined
from omni_checkers.veomni.facts.diffusion.sides import is_symbol
from omni_kit.pysource.signatures import parameters, required, signature
from omni_kit.upstream.kinds import Kind

_MEAN = sum(SAMPLES) / len(SAMPLES)
_KNOWN = {
    sum(SAMPLES): "it is the sum over the samples, and not their mean",
    _MEAN / len(SAMPLES): "it is divided by the number of samples twice",
    SAMPLES[0]: "it is the loss of the first sample only",
    SAMPLES[1]: "it is the loss of the last sample only",
    sum(one * count for one, count in zip(SAMPLES, SIZES, strict=True)): "it is the sum over all elements",
}
_NEAR = 1e-6
_WEIGHED = sum(one * count for one, count in zip(SAMPLES, SIZES, strict=True)) / sum(SIZES)


def _without(old: str, new: str) -> dict[str, str]:
    return {MODEL: MODELING.replace(FORWARD, FORWARD.replace(old, new))}


class LossIsMeanOverSamples(Rule):
    """Return the mean of the samples' losses, in float32, in a dict of a ModelOutput.

    The rule evaluates forward with numbers instead of tensors, for two samples of different size. Each input must reach
    diffusers' forward under its own name.

    Why: DiTTrainer divides each entry of the dict by the number of micro-batches and adds them. A sum, or an extra
    division, changes the learning rate with the batch size. A skipped sample is never learned, and the curve looks
    fine. A tensor instead of the dict raises AttributeError.

    Fine when: samples are weighted on purpose, for example by tokens or timestep; then suppress the finding.
    """

    id = "VEO629"
    name = "loss-is-mean-over-samples"
    target = "veomni"
    kinds = frozenset({Kind.dit})
    obligations = ("DIT-25", "DIT-26")
    failure_modes = ("loss-normalisation", "bf16-numerics")
    example_of = "wan_t2v"
    BAD = (
        _without("torch.stack(losses).mean()", "torch.stack(losses).mean() / len(losses)"),
        _without("torch.stack(losses).mean()", "losses[-1]"),
        _without('loss={"mse_loss": torch.stack(losses).mean()}', "loss=torch.stack(losses).mean()"),
    )
    GOOD = ({MODEL: MODELING},)

    def check(self, diffusion: Diffusion) -> Findings:
        upstream, transformer, condition = diffusion.upstream, diffusion.transformer, diffusion.condition
        forward = diffusion.method(transformer.model, "forward") if transformer is not None else None
        process = diffusion.method(condition.model, "process_condition") if condition is not None else None
        if upstream is None or forward is None:
            raise NotApplicable("no wrapper over a class of diffusers has a forward that can be read")
        keys = returned_keys(process).possible if process is not None else {}
        needed = required(signature(forward.node, bound=True))
        fed = [name for name in parameters(forward.node) if name in keys or name in needed]
        found = [one for one in answers(diffusion, forward, upstream.node.name, fed) if _told(one)]
        if not found:
            raise NotApplicable("forward's return value cannot be computed")
        told = [dict(_wrong(diffusion, one)) for one in found]
        for message, severity in told[0].items():
            if all(message in other for other in told):
                yield Finding(message, forward.path, forward.node.lineno, severity=severity)


def _told(answer: Answer) -> bool:
    """Return whether an answer is known well enough to be judged."""
    if not answer.output:
        return isinstance(answer.value, (Flat, Joined, dict, tuple))
    if isinstance(answer.loss, dict):
        return bool(answer.loss) and all(isinstance(value, (Flat, Joined)) for value in answer.loss.values())
    return isinstance(answer.loss, (Flat, Joined))


def _wrong(diffusion: Diffusion, answer: Answer) -> Iterator[tuple[str, Severity | None]]:
    """Yield the faults of one output, and their severity."""
    if not answer.output:
        yield "forward does not return a ModelOutput: the trainer reads its field `loss`", None
        return
    made = answer.value.function if isinstance(answer.value, Call) else None
    if (
        isinstance(made, Class)
        and not any(is_symbol(one, "ModelOutput") for one in diffusion.lineage(made))
        and not diffusion.inherits_unseen(made)
    ):
        yield f"{made.name} is not a ModelOutput: FSDP2 does not find the tensors in it", Severity.warning
    if not isinstance(answer.loss, dict):
        yield "the loss is a tensor: the trainer expects a dict of named losses", None
        return
    for name, other in sorted(answer.crossed):
        yield f"diffusers' forward receives '{other}' as its '{name}'", None
    if answer.low:
        yield (
            "the loss is computed in the dtype of the model, bfloat16 in training: call .float() first",
            Severity.warning,
        )
    for name, value in answer.loss.items() if len(answer.loss) == 1 else ():
        yield from _amount(name, value)


def _amount(name: str, value: Flat | Joined) -> Iterator[tuple[str, Severity | None]]:
    if isinstance(value, Joined):
        yield f"'{name}' has one number a sample: the trainer needs their mean", None
        return
    if not value.trained:
        yield f"'{name}' is detached from the model: no gradient flows back", None
    if abs(value.value - _MEAN) < _NEAR:
        return
    known = next((what for amount, what in _KNOWN.items() if abs(value.value - amount) < _NEAR), None)
    if known is not None:
        yield f"'{name}' is not the mean over the samples: {known}", None
    elif abs(value.value - _WEIGHED) < _NEAR:
        yield f"'{name}' weighs samples by their size: large ones count for more", Severity.warning
    else:
        message = f"'{name}' is {value.value:g} where the mean over the samples is {_MEAN:g}"
        yield message, Severity.warning
