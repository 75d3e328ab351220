"""Lines among lines that other integrations have, too, and where all of those say something else between them."""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from omni_checkers.engine.files import File, walked
from omni_checkers.engine.rule import NotApplicable
from omni_checkers.symbolic.differences import Difference, differences
from omni_checkers.symbolic.lines import Line, lines_of, parameters
from omni_checkers.veomni.facts.cousins import Function, Places, by_hand, directories_beside, functions_of, places_in
from omni_kit.targets.veomni.model_dir import ModelDir

# Nodes of the lines around it: shorter ones are alike by chance.
_LEAST = 25
# Lines before and after the one that is looked at; there is always one before.
_AROUND = ((2, 1), (1, 2), (3, 0))


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
    places = [places_in(directory) for directory in directories]
    return [
        echo
        for file in files.values()
        if by_hand(file.path, model_dir.path)
        for function in functions_of(file)
        for echo in _of_function(function, places)
    ]


def _of_function(function: Function, places: Sequence[Places]) -> Iterator[Echo]:
    lines = lines_of(function.node)
    for number, line in enumerate(lines):
        if any(line.code in known for known in places):
            continue
        for other, there in _alike_around(lines, number, places):
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


def _alike_around(lines: Sequence[Line], number: int, places: Sequence[Places]) -> Iterator[tuple[Function, Line]]:
    """The lines of others that stand between the same lines as this one, where these are enough to know the place."""
    for before, after in _AROUND:
        near = _near(lines, number, before, after)
        codes = [line.code for line in near]
        for known in places if near else ():
            for other, starts in known.get(codes[0], {}).items():
                theirs = lines_of(other.node)
                for place in (start + before for start in starts):
                    same = [line.code for line in _near(theirs, place, before, after)] == codes
                    if same and sum(len(walked(line.node)) for line in near) >= _LEAST:
                        yield other, theirs[place]


def _near(lines: Sequence[Line], number: int, before: int, after: int) -> Sequence[Line]:
    """The lines around one; none where there are not so many."""
    whole = number >= before and number + after < len(lines)
    return [*lines[number - before : number], *lines[number + 1 : number + 1 + after]] if whole else []
