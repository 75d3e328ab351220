"""Names of tensors, and the arguments of a forward that they stand for.

A sample holds tensors alone, under names that say where they belong:
    hidden_states              the argument itself
    x[0], x[1]                 an argument that is a list
    image_rotary_emb(0)        one that is a tuple
    added_cond_kwargs{size}    one that is a dict; digits are numbers; {} is an empty one
    states[0](1)               one that holds others
    num_frames#                plain numbers as Python has them: 3, or [[1, 4, 6]]
"""

import inspect
import re
from collections.abc import Iterable, Mapping
from dataclasses import is_dataclass
from typing import Any

import torch

from omni_kit.toys.batches.denoiser.kept_state import without_kept_state
from omni_kit.toys.tensors import Tensors

TARGET = "training_target"
SHAPES = "img_shapes"  # lists of (frames, rows, columns), one for each picture; numbers without the sign
PLAIN = "#"
"""End of the name of plain numbers."""
_SEED = 0
_STEP = re.compile(r"\[(\d+)\]|\((\d+)\)|\{(\w*)\}")
_HEAD = re.compile(r"\w+")


def as_arguments(sample: Tensors) -> dict[str, Any]:
    """Return the arguments of forward: the tensors where their names say, and sizes as plain numbers."""
    groups: dict[str, list[tuple[list[tuple[str, Any]], Any]]] = {}
    for key, value in sample.items():
        if key == TARGET:
            continue
        name = _HEAD.match(key)[0]  # type: ignore[index]
        groups.setdefault(name, []).append((_steps(key), _value(key, value)))
    return {name: _nested(items) for name, items in groups.items()}


def _steps(key: str) -> list[tuple[str, Any]]:
    """Return the way from an argument to a tensor: what kind of container, and where in it."""
    found: list[tuple[str, Any]] = []
    for row, pair, name in _STEP.findall(key):
        if not row and not pair:
            found.append(("{", int(name) if name.isdigit() else name))
        else:
            found.append(("[", int(row)) if row else ("(", int(pair)))
    return found


def _value(key: str, value: torch.Tensor) -> Any:
    if key == SHAPES:
        return [[tuple(size) for size in one] for one in value.tolist()]
    return value.tolist() if key.endswith(PLAIN) else value


def _nested(items: list[tuple[list[tuple[str, Any]], Any]]) -> Any:
    """Return one value, or the container that its items say."""
    if not items[0][0]:
        return items[0][1]
    if items[0][0][0] == ("{", ""):
        return {}
    kind = items[0][0][0][0]
    inner: dict[Any, list[tuple[list[tuple[str, Any]], Any]]] = {}
    for steps, value in items:
        inner.setdefault(steps[0][1], []).append((steps[1:], value))
    if kind == "{":
        return {key: _nested(inner[key]) for key in inner}
    ordered = [_nested(inner[key]) for key in sorted(inner)]
    return ordered if kind == "[" else tuple(ordered)


def ask(model: Any, sample: Tensors) -> torch.Tensor:
    """Return the output of a diffusers model for a sample.

    Returns:
        The prediction as the model gives it; several, as pictures and sound, laid out one after the other as [1, N].
    """
    return answer(model, as_arguments(sample))


def answer(model: Any, given: Mapping[str, Any]) -> torch.Tensor:
    """Call a model with arguments as they are, and return its prediction; it remembers nothing of the call."""
    return prediction_of(answered(model, given))


def answered(model: Any, given: Mapping[str, Any]) -> Any:
    """Call a model as `answer` does, and return what it returns."""
    plain = {} if "return_dict" not in _parameters(model) else {"return_dict": False}
    with without_kept_state(model):
        return model(**given, **plain)


def tensors_in(returned: Any) -> list[torch.Tensor]:
    """Return every tensor of what a model returns."""
    return [*_tensors(returned)]


def prediction_of(answer: Any) -> torch.Tensor:
    """Return the one tensor of an output; several tensors are concatenated as [1, N]."""
    answers = list(_tensors(answer))
    return answers[0] if len(answers) == 1 else torch.cat([one.flatten() for one in answers])[None]


def ask_again(model: Any, sample: Tensors) -> torch.Tensor:
    """Call a model as `ask` does, with a fixed seed: some models drop classes at random in training."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(_SEED)
        # Where CUDA is not in use, torch.manual_seed formats a stack, which costs more than a small model.
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            torch.cuda.manual_seed_all(_SEED)
        return ask(model, sample)


def _parameters(model: Any) -> Iterable[str]:
    return inspect.signature(inspect.unwrap(type(model).forward)).parameters


def _tensors(answer: Any) -> Iterable[torch.Tensor]:
    """Yield the tensors of an answer, in order; those in lists, tuples, mappings and dataclasses, too."""
    if is_dataclass(answer) and not isinstance(answer, Mapping):
        answer = vars(answer)
    if isinstance(answer, torch.Tensor):
        yield answer
    elif isinstance(answer, (list, tuple, Mapping)):
        for one in answer.values() if isinstance(answer, Mapping) else answer:
            yield from _tensors(one)
