"""Lines among lines that other integrations have, too, and where all of those say something else between them."""

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from omni_checkers.engine.files import File, walked
from omni_checkers.engine.rule import NotApplicable
from omni_checkers.symbolic.differences import Difference, differences
from omni_checkers.symbolic.lines import Line, lines_of, parameters
from omni_checkers.veomni.facts.cousins import Function, by_hand, directories_beside, functions_in, functions_of
from omni_kit.targets.veomni.model_dir import ModelDir

# Nodes of the lines around it: shorter ones are alike by chance.
_LEAST = 25
# Lines before and after the one that is looked at.
_AROUND = ((2, 1), (1, 2), (3, 0))
Neighbours = tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Echo:
    """A line, and the one that another integration has between the same lines.

    Attributes:
        difference: the one small thing in which they differ.
    """

    function: Function
    line: Line
    other: Function
    there: Line
    difference: Difference


def echoes(model_dir: ModelDir, files: dict[Path, File]) -> list[Echo]:
    """The lines of the directory that differ by one small thing from what stands in their place everywhere else.

    Raises:
        NotApplicable: no other integration has lines of this directory.
    """
    directories = directories_beside(model_dir)
    if not directories:
        raise NotApplicable("there is no other integration to compare with")
    places = [_neighbourhoods(directory) for directory in directories]
    said = {line for directory in directories for function in functions_in(directory) for line in function.lines}
    return [
        echo
        for file in files.values()
        if by_hand(file.path, model_dir.path)
        for function in functions_of(file)
        for echo in _of_function(function, places, said)
    ]


def _of_function(
    function: Function, places: Sequence[Mapping[Neighbours, list[tuple[Function, Line]]]], said: set[str]
) -> Iterator[Echo]:
    lines = lines_of(function.node)
    for number, line in enumerate(lines):
        if line.text in said:
            continue
        keys = list(_around(lines, number))
        found = [place for key in keys for directory in places for place in directory.get(key, ())]
        for other, there in found:
            alike = line.kind is there.kind and (line.inside == there.inside or {*line.inside} & {*there.inside})
            if alike and (only := _only(function, line, other, there)) is not None:
                yield Echo(function, line, other, there, only)
                break


def _only(function: Function, line: Line, other: Function, there: Line) -> Difference | None:
    """The one small thing in which two lines differ; None where there are several, or larger ones."""
    known = {node.id for node in walked(other.node) if isinstance(node, ast.Name)} | parameters(other.node)
    raw = list(differences(line.node, there.node, known, {}))
    found = list(differences(line.plain, there.plain, known, {})) if raw else []
    return found[0] if len(found) == 1 else None


@cache
def _neighbourhoods(directory: Path) -> Mapping[Neighbours, list[tuple[Function, Line]]]:
    """The lines of an integration, by those around them."""
    found: defaultdict[Neighbours, list[tuple[Function, Line]]] = defaultdict(list)
    for function in functions_in(directory):
        lines = lines_of(function.node)
        for number, line in enumerate(lines):
            for key in _around(lines, number):
                found[key].append((function, line))
    return found


def _around(lines: list[Line], number: int) -> Iterator[Neighbours]:
    """The lines around one, in each of the ways in which they are enough to know the place again."""
    for before, after in _AROUND:
        near = [*lines[number - before : number], *lines[number + 1 : number + 1 + after]]
        whole = number >= before and number + after < len(lines)
        if whole and sum(len(walked(line.node)) for line in near) >= _LEAST:
            yield (f"{before} {after}", *(line.text for line in near))
