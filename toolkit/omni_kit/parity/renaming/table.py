"""A solution as a table of patterns, and as the function of a conversion script."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from omni_kit.parity.renaming.options import Option

_NUMBER = re.compile(r"(?<=\.)\d+(?=\.|$)|^\d+(?=\.)")

_FUNCTION = '''import re

import torch


def {name}(checkpoint, **kwargs):
    """Gives the authors' tensors the names and the forms of the model here."""
    # The name here, the authors' names, and what is done; {{}} is the number of a block.
    moved = [
{rows}
    ]
    converted = {{}}
    for target, sources, how in moved:
        pattern = re.escape(sources[0]).replace(r"\\{{\\}}", r"(\\d+)")
        for match in filter(None, (re.fullmatch(pattern, key) for key in checkpoint)):
            numbers = match.groups()
            parts = [checkpoint[source.format(*numbers)] for source in sources]
            converted[target.format(*numbers)] = how(*parts)
    return converted
'''


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes:
        target: a name here, with {} for the number of a block.
        sources: upstream's names.
        how: an expression of `one`, or of `parts`.
    """

    target: str
    sources: tuple[str, ...]
    how: str

    def __str__(self) -> str:
        plain = " + ".join(self.sources)
        return f"{self.target} <- {plain}" + ("" if self.how == "one" else f" [{self.how}]")


def rows_of(chosen: Mapping[str, Option]) -> list[Row]:
    """Return the lines of a solution, those of blocks that are alike once."""
    return list(dict.fromkeys(_rows(chosen)))


def _rows(chosen: Mapping[str, Option]) -> Iterator[Row]:
    for module, option in chosen.items():
        for own, sources in option.sources.items():
            target = f"{module}.{own}" if module else own
            numbers = _NUMBER.findall(target)
            if all(_NUMBER.findall(source) == numbers for source in sources):
                target, sources = _blocks(target), tuple(map(_blocks, sources))
            elif any(_mixed(numbers, source) for source in sources):
                target, sources = _first_block(target, sources)
            yield Row(target, tuple(sources), option.way[own].text)


def _mixed(numbers: list[str], source: str) -> bool:
    """Return whether a name shares the number of its block with another, but not all its numbers."""
    return bool(numbers) and _NUMBER.findall(source)[:1] == numbers[:1]


def _first_block(target: str, sources: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    if not all(_mixed(_NUMBER.findall(target), source) for source in sources):
        return target, sources
    return _NUMBER.sub("{}", target, count=1), tuple(_NUMBER.sub("{}", source, count=1) for source in sources)


def _blocks(name: str) -> str:
    return _NUMBER.sub("{}", name)


def function_of(name: str, rows: list[Row]) -> str:
    """Return the text of a module with the function that does what the table says."""
    return _FUNCTION.format(name=name, rows="\n".join(f"        {_shown(row)}," for row in rows))


def _shown(row: Row) -> str:
    taken = "*parts" if "parts" in row.how else "one"
    sources = ", ".join(f'"{source}"' for source in row.sources)
    return f'("{row.target}", [{sources}], lambda {taken}: {row.how})'
