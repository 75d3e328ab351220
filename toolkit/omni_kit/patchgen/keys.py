"""Effects of a newer upstream on saved checkpoints: renamed, reshaped, removed and added parameters.

Both versions are read from source, without torch; see `omni_kit.upstream.skeleton`.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from omni_kit.errors import BadInput
from omni_kit.files import write_atomic
from omni_kit.pysource.library import Library
from omni_kit.upstream.skeleton import Parameter
from omni_kit.upstream.transformers.configs import config_class, model_types
from omni_kit.upstream.transformers.defaults import default_config
from omni_kit.upstream.transformers.models import upstream_model

_NUMBER = re.compile(r"(?<=\.)\d+(?=\.|$)")
_LEAF = 2  # the last parts of a name that say what a parameter is: "k_proj.weight"


@dataclass(frozen=True)
class _Side:
    """One version of a model.

    Attributes:
        patterns: name with `*` for numbers -> its first parameter, and how many there are.
        unread: below which modules nothing could be read.
    """

    class_name: str
    patterns: Mapping[str, tuple[Parameter, int]]
    unread: tuple[str, ...]

    def knows(self, name: str) -> bool:
        """Return whether it would have a parameter of that name, if there were one."""
        return not any(name.startswith(f"{path}.") for path in self.unread)

    def sort(self, name: str) -> tuple[object, int]:
        """Return the properties that a renamed parameter keeps: its shape and the number of its copies."""
        parameter, count = self.patterns[name]
        return parameter.shape, count


@dataclass
class KeyDrift:
    """One model's parameters between two versions, at the defaults of its config; numbers of layers are `*`.

    Attributes:
        renamed: what it was called -> what it is called. Only what is sure: the same last words, or the only one of
            its shape; several of one shape are never paired by their places.
        removed, added: those without a sure counterpart.
        reshaped: name, the shape then, the shape now.
        unread: why a version could not be read; nothing is known then.
    """

    model_type: str
    class_name: str = ""
    renamed: dict[str, str] = field(default_factory=dict)
    removed: list[str] = field(default_factory=list)
    added: list[str] = field(default_factory=list)
    reshaped: list[tuple[str, list[int | None], list[int | None]]] = field(default_factory=list)
    unread: str = ""

    @property
    def same(self) -> bool:
        """Return whether a checkpoint that was saved then loads now as it lies."""
        return self.settled and not self.renamed

    @property
    def settled(self) -> bool:
        """Return whether a checkpoint that was saved then loads now, once the map of names is applied to it."""
        return not (self.removed or self.added or self.reshaped or self.unread)

    @property
    def summary(self) -> str:
        """In one line, with the first of each sort."""
        renamed = [f"{old} is {new}" for old, new in self.renamed.items()]
        reshaped = [f"{name} {then} is {now}" for name, then, now in self.reshaped]
        sorts = {"renamed": renamed, "gone": self.removed, "new": self.added, "of another shape": reshaped}
        said = [f"{len(found)} {sort} ({found[0]})" for sort, found in sorts.items() if found]
        return "; ".join([*said, *filter(None, [self.unread])]) or "unchanged"


def key_drift(modules: Sequence[str], before: Library, after: Library) -> list[KeyDrift]:
    """Return the parameter changes of these modeling modules' models, sorted by model_type."""
    folders = {tuple(module.split(".")[1:-1]) for module in modules}
    known = model_types(before)
    wanted = [name for name, files in known.items() if any(_folder(file, before) in folders for file in files)]
    return [_of(name, before, after) for name in sorted(wanted)]


def write_rename_maps(found: Sequence[KeyDrift], folder: Path) -> list[Path]:
    """Write MODEL_TYPE.keys.json for each model whose parameters are named differently.

    Its `model` maps names of parameters; `optimizer` maps the same below the prefixes under which states are saved.
    """
    written = []
    for one in (one for one in found if one.renamed):
        states = {f"state.{old}.*": f"state.{new}.*" for old, new in one.renamed.items()}
        place = folder / f"{one.model_type}.keys.json"
        text = json.dumps({"model": one.renamed, "optimizer": states}, indent=2, ensure_ascii=False)
        write_atomic(place, f"{text}\n")
        written.append(place)
    return written


def _folder(file: Path, library: Library) -> tuple[str, ...]:
    return file.parent.relative_to(library.root).parts


def _of(model_type: str, before: Library, after: Library) -> KeyDrift:
    found = KeyDrift(model_type)
    try:
        then = _side(before, model_type)
    except BadInput:  # a part of others, which no checkpoint is of
        return found
    found.class_name = then.class_name
    try:
        return _compared(found, then, _side(after, model_type))
    except BadInput as why:
        found.unread = why.message
        return found


def _side(library: Library, model_type: str) -> _Side:
    model = upstream_model(library, default_config(config_class(library, model_type)))
    counted: dict[str, tuple[Parameter, int]] = {}
    for parameter in model.skeleton.parameters:
        first, count = counted.get(parameter.pattern, (parameter, 0))
        counted[parameter.pattern] = first, count + 1
    unread = (_NUMBER.sub("*", path) for path, _ in model.skeleton.unresolved)
    return _Side(model.class_name, counted, tuple(dict.fromkeys(unread)))


def _compared(found: KeyDrift, then: _Side, now: _Side) -> KeyDrift:
    for name in sorted(then.patterns.keys() & now.patterns.keys()):
        shapes = then.patterns[name][0].shape, now.patterns[name][0].shape
        if _differ(*shapes):
            found.reshaped.append((name, list(shapes[0] or ()), list(shapes[1] or ())))
    gone = [name for name in then.patterns if name not in now.patterns and now.knows(name)]
    come = [name for name in now.patterns if name not in then.patterns and then.knows(name)]
    found.renamed = dict(_pairs(gone, come, then, now))
    found.removed = [name for name in gone if name not in found.renamed]
    found.added = [name for name in come if name not in found.renamed.values()]
    return found


def _differ(one: tuple[int | None, ...] | None, other: tuple[int | None, ...] | None) -> bool:
    """Return whether two shapes differ in what is known of both."""
    if one is None or other is None:
        return False
    sizes = zip(one, other, strict=False)
    return len(one) != len(other) or any(a != b for a, b in sizes if a is not None and b is not None)


def _pairs(gone: Sequence[str], come: Sequence[str], then: _Side, now: _Side) -> Iterator[tuple[str, str]]:
    for sort in dict.fromkeys(map(then.sort, gone)):
        left = [name for name in gone if then.sort(name) == sort]
        right = [name for name in come if now.sort(name) == sort]
        for old in list(left):
            same = [new for new in right if _leaf(new) == _leaf(old)]
            if len(same) == 1 and sum(_leaf(other) == _leaf(old) for other in left) == 1:
                left.remove(old)
                right.remove(same[0])
                yield old, same[0]
        if len(left) == len(right) == 1:
            yield left[0], right[0]


def _leaf(name: str) -> list[str]:
    return name.split(".")[-_LEAF:]
