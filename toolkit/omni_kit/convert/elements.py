"""The position of every element of a checkpoint after a conversion, and the way back.

A conversion that only renames, cuts, joins, turns and reorders moves elements. Fed with numbers instead of
weights, it shows where each one goes; so what was converted can be put back without a second function.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from omni_kit.errors import BadInput
from omni_kit.toys.tensors import Tensors

Conversion = Callable[[dict[str, torch.Tensor]], Mapping[str, torch.Tensor]]


@dataclass(frozen=True)
class Placement:
    """The new positions of the elements of a checkpoint.

    Attributes:
        shapes: name -> shape of what is converted.
        numbers: name -> for every element of what comes out, its number among all that went in.
    """

    shapes: Mapping[str, Sequence[int]]
    numbers: Mapping[str, torch.Tensor]

    def lost(self) -> list[str]:
        """Return the tensors of which elements go nowhere."""
        kept = torch.zeros(sum(map(math.prod, self.shapes.values())), dtype=torch.bool)
        for numbers in self.numbers.values():
            kept[numbers.flatten()] = True
        return [name for name, part in self._parts(kept).items() if not bool(part.all())]

    def doubled(self) -> list[str]:
        """Return the tensors of which elements go to several places."""
        count = torch.zeros(sum(map(math.prod, self.shapes.values())), dtype=torch.long)
        for numbers in self.numbers.values():
            count += torch.bincount(numbers.flatten(), minlength=len(count))
        return [name for name, part in self._parts(count).items() if part.numel() and int(part.max()) > 1]

    def sources(self, name: str) -> list[str]:
        """Return the tensors that the elements of one that comes out are of."""
        marked = torch.zeros(sum(map(math.prod, self.shapes.values())), dtype=torch.bool)
        marked[self.numbers[name].flatten()] = True
        return [one for one, part in self._parts(marked).items() if bool(part.any())]

    def back(self, tensors: Tensors) -> Tensors:
        """Undo a conversion. Tensors without any converted element are omitted; other missing elements are zero."""
        kinds = dict.fromkeys(tensor.dtype for tensor in tensors.values())
        if len(kinds) > 1:  # weights, and buffers of whole numbers
            apart = (self.back({name: t for name, t in tensors.items() if t.dtype == kind}) for kind in kinds)
            return {name: tensor for found in apart for name, tensor in found.items()}
        example = next(iter(tensors.values()), torch.zeros(0))
        whole = torch.zeros(sum(map(math.prod, self.shapes.values())), dtype=example.dtype, device=example.device)
        given = torch.zeros(len(whole), dtype=torch.bool)
        for name, numbers in self.numbers.items():
            if name in tensors and tensors[name].shape == numbers.shape:
                flat = numbers.flatten()
                whole[flat.to(whole.device)] = tensors[name].detach().flatten().to(whole.dtype)
                given[flat] = True
        known = self._parts(given)
        return {name: part for name, part in self._parts(whole).items() if not part.numel() or bool(known[name].any())}

    def _parts(self, flat: torch.Tensor) -> Tensors:
        """Return a flat tensor of all elements, cut into the tensors that went in."""
        sizes = [math.prod(shape) for shape in self.shapes.values()]
        cut = torch.split(flat, sizes) if sizes else ()
        return {name: part.reshape(tuple(shape)) for (name, shape), part in zip(self.shapes.items(), cut, strict=True)}


def placement_of(convert: Conversion, shapes: Mapping[str, Sequence[int]]) -> Placement:
    """Return where a conversion puts every element of tensors of these shapes.

    Raises:
        BadInput: it computes with them: what comes out holds other numbers than went in.
    """
    total = sum(map(math.prod, shapes.values()))
    numbers = Placement(shapes, {})._parts(torch.arange(1, total + 1, dtype=torch.float64))
    converted = convert({name: part.clone() for name, part in numbers.items()})
    found = {}
    for name, tensor in converted.items():
        exact = tensor.double()
        if not bool((exact == exact.round()).all()) or not bool(((exact >= 1) & (exact <= total)).all()):
            raise BadInput(f"the conversion computes {name}, which is more than moving checkpoint tensors")
        found[name] = tensor.long() - 1
    return Placement(shapes, found)
