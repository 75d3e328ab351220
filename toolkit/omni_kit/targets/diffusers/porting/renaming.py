"""What became of the names of parameters, as rows of the table that the conversion script has."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from omni_kit.targets.diffusers.porting import multihead
from omni_kit.targets.diffusers.porting.projections import Projections

_ANYWHERE = r".+"
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


def rows_of(projections: Mapping[str, Projections], places: Mapping[str, list[str]], joined: str) -> list[Row]:
    """The table of a model.

    Args:
        projections: class -> what its layers are called now.
        places: class -> patterns of where it stands.
        joined: the class that stands in the place of torch's attention; empty without one.
    """
    found = [row for name, one in projections.items() for row in _of_class(one, places.get(name, [_ANYWHERE]))]
    if joined:
        found += [row for place in places.get(joined, [_ANYWHERE]) for row in _of_multihead(place)]
    return list(dict.fromkeys(found))


def _of_class(one: Projections, places: list[str]) -> Iterator[Row]:
    for place in places:
        if one.fused:
            yield Row(rf"({place})\.{one.fused}\.{_KINDS}", tuple(rf"\1.{part}.\2" for part in _QKV), one.groups)
        for old, new in one.renamed.items():
            if old != new:
                yield Row(rf"({place})\.{old}\.{_KINDS}", (rf"\1.{new}.\2",))
        if one.out:
            yield Row(rf"({place})\.{one.out}\.{_KINDS}", (r"\1.to_out.0.\2",))


def _of_multihead(place: str) -> Iterator[Row]:
    for old, kind in multihead.SPLIT.items():
        yield Row(rf"({place})\.{old}", tuple(rf"\1.{part}.{kind}" for part in _QKV))
    for old, new in multihead.RENAMED.items():
        yield Row(rf"({place})\.{old}", (rf"\1.{new}",))
    yield Row(rf"({place})\.{multihead.OUT}\.{_KINDS}", (r"\1.to_out.0.\2",))
