"""Renamings of parameters, as rows of the table in the conversion script."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from omni_kit.targets.diffusers.porting import multihead
from omni_kit.targets.diffusers.porting.feed_forward import Layers
from omni_kit.targets.diffusers.porting.naming import Names
from omni_kit.targets.diffusers.porting.places import Place
from omni_kit.targets.diffusers.porting.projections import Projections

_ANYWHERE = Place(r"(.+)", r"\1")
_KINDS = r"(weight|bias)"
_WHOLE = ("1", "-1")
_QKV = ("to_q", "to_k", "to_v")


@dataclass(frozen=True)
class Row:
    """Parameters of the authors whose name is a pattern.

    Attributes:
        pattern: of the whole name.
        names: what they become, as the pattern's groups say; several where their rows are shared out evenly.
        groups: in which they are shared out: how many groups, and how many rows of each part in one.
    """

    pattern: str
    names: tuple[str, ...]
    groups: tuple[str, str] = _WHOLE

    @property
    def in_turn(self) -> bool:
        """The rows of one part follow those of another."""
        return self.groups == _WHOLE


def rows_of(
    projections: Mapping[str, Projections],
    names: Names,
    layers: Mapping[str, Mapping[str, Layers]],
    places: Mapping[str, list[Place]],
    joined: str,
) -> list[Row]:
    """Return the table of a model: of two rows that fit a name the first one holds.

    Args:
        projections: class -> what its layers are called now.
        names: class -> what its modules are called now.
        layers: class -> feed-forward that is the library's -> what the authors call its layers.
        places: class -> where it stands.
        joined: the class that replaces torch's attention; empty without one.
    """
    found = [row for name, one in projections.items() for row in _of_class(one, places.get(name, [_ANYWHERE]))]
    if joined:
        found += [row for place in places.get(joined, [_ANYWHERE]) for row in _of_multihead(place)]
    for cls, inside in layers.items():
        for place in places[cls]:
            for attribute, one in inside.items():
                found += _of_feed_forward(place.below(attribute, names[cls].get(attribute, attribute)), one)
    moved = [(place.below(old, new), place) for cls, one in names.items() for old, new in one.items()
             for place in places[cls]]  # fmt: skip
    for inner, _ in sorted(moved, key=lambda pair: -pair[0].pattern.count(r"\.")):  # the innermost first
        found.append(Row(rf"{inner.pattern}\.(.+)", (_then(inner, ""),)))
    return list(dict.fromkeys(found))


def _then(place: Place, name: str) -> str:
    """Return the end of a row's pattern, below a name at a place."""
    between = f".{name}." if name else "."
    return f"{place.path}{between}\\{place.groups + 1}"


def _of_class(one: Projections, places: list[Place]) -> Iterator[Row]:
    for place in places:
        if one.fused:
            parts = tuple(_then(place, part) for part in _QKV)
            yield Row(rf"{place.pattern}\.{one.fused}\.{_KINDS}", parts, one.groups)
        if one.paired:
            yield Row(rf"{place.pattern}\.{one.paired}\.{_KINDS}", tuple(_then(place, part) for part in _QKV[1:]))
        for old, new in one.renamed.items():
            if old != new:
                yield Row(rf"{place.pattern}\.{old}\.{_KINDS}", (_then(place, new),))
        if one.out:
            yield Row(rf"{place.pattern}\.{one.out}\.{_KINDS}", (_then(place, "to_out.0"),))


def _of_feed_forward(place: Place, one: Layers) -> Iterator[Row]:
    for old, new in ((one.first, "net.0.proj"), (one.second, "net.2")):
        yield Row(rf"{place.pattern}\.{old}\.{_KINDS}", (_then(place, new),))


def _of_multihead(place: Place) -> Iterator[Row]:
    for old, kind in multihead.SPLIT.items():
        yield Row(rf"{place.pattern}\.{old}", tuple(f"{place.path}.{part}.{kind}" for part in _QKV))
    for old, new in multihead.RENAMED.items():
        yield Row(rf"{place.pattern}\.{old}", (f"{place.path}.{new}",))
    yield Row(rf"{place.pattern}\.{multihead.OUT}\.{_KINDS}", (_then(place, "to_out.0"),))
