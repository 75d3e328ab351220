"""Comparison of derived conversions of authors' checkpoints with diffusers' own."""

import ast
import copy
import importlib
import inspect
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omni_kit.coverage.ports import TARGET, Repository, fetched
from omni_kit.errors import BadInput, OmniKitError
from omni_kit.parity.run import run_parity
from omni_kit.pysource.library import find_library
from omni_kit.scaffold import new_model
from omni_kit.upstream.diffusers.classes import find_class
from omni_kit.upstream.diffusers.models import ComponentModel
from omni_kit.upstream.diffusers.originals import converters, share_of

if TYPE_CHECKING:
    import torch

Tensors = Mapping[str, "torch.Tensor"]
_LOADERS = "diffusers.loaders.single_file_utils"
_LEAST, _SHOWN = 0.9, 3
# What a comparison of keys leaves behind: the authors' toy, and what the port has made of it.
_AUTHORS, _OURS = "checkpoint/*.safetensors", "candidate/export/diffusers/*.safetensors"


@dataclass(frozen=True)
class Own:
    """The result of diffusers' own conversion.

    Attributes:
        class_name: the class whose parameters it names.
        function: that of diffusers.
        tensors: by diffusers' names.
        numbers: the hard-coded size that was replaced by the toy's; empty if none was.
    """

    class_name: str
    function: str
    tensors: Tensors
    numbers: str = ""


@dataclass(frozen=True)
class Difference:
    """The difference of two conversions of one checkpoint.

    Attributes:
        same: the number of tensors that have the same name and the same values.
        renamed: pairs of names, ours and diffusers', of the same values.
        shared: names of ours whose rows diffusers has in several tensors, or in another order.
        ours, theirs: names of tensors with rows that the other does not have.
    """

    same: int
    renamed: Sequence[tuple[str, str]]
    shared: Sequence[str]
    ours: Sequence[str]
    theirs: Sequence[str]


def own_conversion(authors: Tensors) -> Own | None:
    """Return what diffusers makes of a checkpoint, by the function whose names fit its class best; None without one."""
    library, found = find_library(TARGET), dict[str, tuple[float, Own]]()
    for class_name, (function, _) in converters(library).items():
        cls = find_class(library, class_name)
        if cls is None:
            continue
        model = ComponentModel(library, cls)
        for numbers, convert in _variants(function, authors):
            try:
                tensors = convert(dict(authors))
            except Exception:  # it is made for another layout, or for other sizes
                continue
            if isinstance(tensors, dict) and (share := share_of(model, tensors)) > _LEAST:
                found[class_name] = share, Own(class_name, function, tensors, numbers)
                break
    return max(found.values(), key=lambda pair: pair[0], default=(0.0, None))[1]


def _variants(function: str, authors: Tensors) -> Iterator[tuple[str, Callable[[dict[str, Any]], Any]]]:
    """Yield the function, then copies in which a size of the toy replaces one that it hard-codes."""
    module = importlib.import_module(_LOADERS)
    original = getattr(module, function, None)
    if original is None:
        return
    yield "", original
    (tree,) = ast.parse(inspect.getsource(original)).body
    said = {
        node.value.value: node.targets[0].id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        if isinstance(node.value, ast.Constant) and type(node.value.value) is int and node.value.value > 1
    }
    for published, name in said.items():
        for size in _sizes(authors):
            changed = copy.deepcopy(tree)
            for node in ast.walk(changed):
                if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
                    node.value.value = size if node.value.value == published else node.value.value
            namespace = dict(vars(module))
            exec(compile(ast.Module([changed], []), _LOADERS, "exec"), namespace)
            yield f"{name} = {size} for {published}", namespace[function]


def _sizes(authors: Tensors) -> list[int]:
    """Return widths, the most frequent first, and numbers of layers."""
    widths = Counter(size for tensor in authors.values() for size in tensor.shape if size > 1)
    layers = {int(part) + 1 for name in authors for part in name.split(".") if part.isdigit()}
    return [*(size for size, _ in widths.most_common()), *sorted(layers, reverse=True)]


def compared(ours: Tensors, theirs: Tensors) -> Difference:
    """Compare two conversions, by names and values."""
    same = {name for name in ours.keys() & theirs.keys() if _key(ours[name]) == _key(theirs[name])}
    places: dict[object, list[str]] = {}
    for name, tensor in theirs.items():
        if name not in same:
            places.setdefault(_key(tensor), []).append(name)
    pairs = [(name, found.pop(0)) for name in ours if name not in same and (found := places.get(_key(ours[name])))]
    told = {*same, *(name for name, _ in pairs)}
    left = {name: _rows(tensor) for name, tensor in ours.items() if name not in told}
    others = {name: _rows(theirs[name]) for names in places.values() for name in sorted(names)}
    rows, their_rows = frozenset().union(*left.values()), frozenset().union(*others.values())
    shared = [name for name, own in left.items() if own <= their_rows]
    alone = [name for name in left if name not in shared]
    return Difference(len(same), pairs, shared, alone, sorted(name for name, own in others.items() if not own <= rows))


def _rows(tensor: "torch.Tensor") -> frozenset[bytes]:
    return frozenset(map(_values, tensor))


def _key(tensor: "torch.Tensor") -> object:
    """Values in their order, and the shape without dimensions of one: pointwise convolutions equal linear layers."""
    return tuple(size for size in tensor.shape if size != 1), _values(tensor)


def _values(tensor: "torch.Tensor") -> bytes:
    return tensor.detach().float().contiguous().numpy().tobytes()


def cover(wanted: Sequence[Repository]) -> Iterator[Sequence[str]]:
    """Yield a row for each repository whose model diffusers has ported, and can load from the authors' file."""
    from safetensors.torch import load_file

    for repository in wanted:
        files = fetched(repository)
        if files is None:
            continue
        with tempfile.TemporaryDirectory(prefix="omni-kit-conversions-") as place:
            try:
                new_model("ported", f"{files / repository.model}", target=TARGET, into=Path(place))
                run_parity(Path(place) / "ported", ["keys", "roundtrip"], work_dir=Path(place) / "run")
            except OmniKitError as error:
                print(f"{repository.name}: {error}", file=sys.stderr, flush=True)
                continue
            both = [
                {
                    name: tensor
                    for file in (Path(place) / "run").glob(pattern)
                    for name, tensor in load_file(file).items()
                }
                for pattern in (_AUTHORS, _OURS)
            ]
        own = own_conversion(both[0]) if all(both) else None
        print(f"{repository.name}: {own and own.class_name}", file=sys.stderr, flush=True)
        if own is not None:
            yield _row(repository, own, compared(both[1], own.tensors))


def _row(repository: Repository, own: Own, difference: Difference) -> Sequence[str]:
    patterns = {re.sub(r"\d+", "N", one): re.sub(r"\d+", "N", other) for one, other in difference.renamed}
    examples = [f"`{one}` is `{other}`" for one, other in patterns.items() if one.endswith("weight")][:_SHOWN]
    for names, what in ((difference.shared, "shared out"), (difference.ours, "ours"), (difference.theirs, "theirs")):
        examples += [f"`{name}`: {what}" for name in names if name.endswith("weight")][:1]
    counts = [len(one) for one in (difference.renamed, difference.shared, difference.ours, difference.theirs)]
    function = f"`{own.function}`" + (f", {own.numbers}" if own.numbers else "")
    model = repository.model.rpartition("::")[2]
    return repository.name, model, own.class_name, function, *map(str, [difference.same, *counts]), "; ".join(examples)


def page(rows: Sequence[Sequence[str]]) -> str:
    """Return the table.

    Raises:
        BadInput: no repository has a model that diffusers loads from the authors' file.
    """
    if not rows:
        raise BadInput("diffusers loads the model of none of these repositories from the authors' file")
    equal = sum({*row[5:9]} == {"0"} for row in rows)
    return "\n".join(
        [
            "# Conversions of authors' checkpoints, compared with diffusers' own",
            "",
            "Made by `make coverage-conversions`: a toy checkpoint of the authors' class goes through the conversion",
            "that `new-model` has derived, and through the function of the installed diffusers that reads the authors'",
            "file. Sizes that a function hard-codes for the published model are replaced by the toy's. Tensors are",
            "compared by value; those that differ are compared row by row, as for a fused layer that one side splits",
            f"or halves in another order. Of {len(rows)} models {equal} have every tensor under diffusers' own name.",
            "",
            "| repository | model | class of diffusers | its function | same name and values | same values, other name"
            " | same rows, shared out otherwise | ours alone | theirs alone | examples |",
            "|---|---|---|---|---|---|---|---|---|---|",
            *(f"| {' | '.join(row)} |" for row in rows),
            "",
        ]
    )
