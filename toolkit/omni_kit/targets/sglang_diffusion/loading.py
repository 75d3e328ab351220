"""Mapping of a checkpoint's keys by SGLang's own loader, on the meta device, in a process of its own."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from omni_kit.errors import BadInput, MissingRequirement
from omni_kit.isolation.requests import run_worker
from omni_kit.isolation.worker import StepError
from omni_kit.layout.accounting import Accounting, Ignored
from omni_kit.layout.checkpoint import Checkpoint
from omni_kit.layout.consumer import accounted
from omni_kit.layout.fitting import Misfit
from omni_kit.layout.verdict import LayoutVerdict
from omni_kit.targets.sglang_diffusion.installing import INSTALL_SGLANG
from omni_kit.upstream.diffusers.pipelines import INDEX
from omni_kit.upstream.skeleton import Parameter
from omni_kit.upstream.subject import Subject

_WORKER = "omni_kit.targets.sglang_diffusion.runtime.loading_worker"
_TIMEOUT = 600.0
_SHOWN = 300


class SGLangConsumer:
    """Judges the denoiser of a pipeline by the class and the mapping of names with which SGLang loads it."""

    name = "sglang-diffusion"

    def consume(self, subject: Subject, checkpoint: Checkpoint, verdict: LayoutVerdict) -> LayoutVerdict:
        """See `Consumer.consume`."""
        directory = subject.directory
        if subject.library.name != "diffusers" or directory is None or not (directory.parent / INDEX).is_file():
            hint = f"pass a pipeline's directory, or a component's in it: {INDEX} says which pipeline serves it"
            raise BadInput(f"SGLang loads whole pipelines of diffusers, and {subject.given} is none", hint)
        if checkpoint.names_only:
            raise BadInput("SGLang's loader needs shapes, but an index has none", "pass the shards")
        if find_spec("sglang") is None:
            raise MissingRequirement("--for sglang-diffusion asks SGLang's own loader: it is not installed",
                                     INSTALL_SGLANG)  # fmt: skip
        tensors = {key: [info.dtype, list(info.shape)] for key, info in checkpoint.tensors.items() if info is not None}
        answer = _asked({"pipeline": str(directory.parent), "component": directory.name, "tensors": tensors})
        return accounted(verdict, account(answer, len(checkpoint.tensors)))


def _asked(job: Mapping[str, Any]) -> dict[str, Any]:
    try:
        answer: dict[str, Any] = run_worker(f"{_WORKER}:load", dict(job), timeout=_TIMEOUT)
    except StepError as error:
        raise BadInput(f"SGLang cannot build {job['component']}: {str(error)[:_SHOWN]}") from error
    return answer


@dataclass(frozen=True)
class Write:
    """One key, as the mapping sends it.

    Attributes:
        target: the parameter; empty if the mapping drops the key on purpose.
        part, parts: which of how many that are joined along the first dimension; 0 of 0 where it is the whole.
    """

    key: str
    target: str
    part: int
    parts: int


def account(answer: Mapping[str, Any], total: int) -> Accounting:
    """Match the keys of a checkpoint with the parameters that they fill.

    Args:
        answer: what the worker found: `class`, `version`, `parameters` (name -> shape), `filled` (name -> what the
            model itself fills it with when no key does), `writes` (rows of `Write`) and `refused` (target -> why what
            is written does not fit).
        total: how many keys the checkpoint has.
    """
    sizes = {name: tuple(shape) for name, shape in answer["parameters"].items()}
    writes = [Write(*row) for row in answer["writes"]]
    by_target: dict[str, list[Write]] = defaultdict(list)
    for write in writes:
        by_target[write.target].append(write)
    dropped = [write.key for write in by_target.pop("", [])]
    parameters = {name: Parameter(name, shape, answer["class"], "SGLang's model") for name, shape in sizes.items()}
    misfits = tuple(_misfits(by_target, parameters, answer["refused"]))
    unfit = {misfit.parameter.name for misfit in misfits if misfit.code != "fed-twice"}
    left_out = {name: how for name, how in answer["filled"].items() if name not in by_target}
    return Accounting(
        total=total,
        feeds={write.key: (write.target,) for write in writes if write.target in sizes},
        mapped=sum(write.target in sizes for write in writes),
        unmapped=tuple(write.key for write in writes if write.target and write.target not in sizes),
        missing=tuple(n for n in sizes if n in unfit or (n not in by_target and n not in left_out)),
        misfits=misfits,
        ignored=tuple(_ignored(dropped, left_out)),
        ignored_keys=frozenset(dropped),
        proof=f"{len(sizes)} parameters of SGLang {answer['version']}'s {answer['class']}, by its loader's mapping",
    )


def _ignored(dropped: Sequence[str], left_out: Mapping[str, str]) -> Iterator[Ignored]:
    if dropped:
        yield Ignored(dropped[0], "the model's mapping drops it", len(dropped))
    for how in sorted(set(left_out.values())):
        names = [name for name, value in left_out.items() if value == how]
        yield Ignored(names[0], f"no key has it, and the model initialises it as {how}", len(names))


def _misfits(
    by_target: Mapping[str, Sequence[Write]], parameters: Mapping[str, Parameter], refused: Mapping[str, str]
) -> Iterator[Misfit]:
    for name, parameter in parameters.items():
        writes = by_target.get(name, ())
        if not writes:
            continue
        keys = ", ".join(write.key for write in writes)
        parts = max(write.parts for write in writes)
        numbers = [write.part for write in writes if write.parts]
        if parts and (lost := sorted(set(range(parts)) - set(numbers))):
            yield Misfit(parameter, "half-fed", f"is made of {parts} parts, and {keys} is not part {lost[0]}")
        elif len(writes) > max(parts, 1) or len(set(numbers)) != len(numbers):
            yield Misfit(parameter, "fed-twice", f"is written by {keys}: the last one wins")
        elif name in refused:
            yield Misfit(parameter, "shape-mismatch", f"cannot be made of {keys}: {refused[name]}")
