"""A three-way merge of lines: small, and honest about conflicts."""

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_Chunk = tuple[Sequence[str], Sequence[str], Sequence[str]]


@dataclass(frozen=True)
class Merge:
    """`lines` with git's conflict markers where both sides changed the same lines in different ways."""

    lines: tuple[str, ...]
    conflicts: int

    @property
    def clean(self) -> bool:
        """Return whether nothing conflicts."""
        return not self.conflicts


def merge(base: Sequence[str], ours: Sequence[str], theirs: Sequence[str]) -> Merge:
    """Merges two descendants of `base`, line by line."""
    lines: list[str] = []
    conflicts = 0
    for was, mine, their in _chunks(base, ours, theirs):
        if list(mine) == list(was) or list(mine) == list(their):
            lines += their
        elif list(their) == list(was):
            lines += mine
        elif (joined := _around(was, mine, their) or _around(was, their, mine)) is not None:
            lines += joined
        else:
            conflicts += 1
            lines += ["<<<<<<< patch", *mine, "||||||| upstream then", *was, "=======", *their, ">>>>>>> upstream now"]
    return Merge(tuple(lines), conflicts)


def _around(was: Sequence[str], grown: Sequence[str], changed: Sequence[str]) -> list[str] | None:
    """Return one side only added lines before or behind what the other changed: both hold."""
    if was and list(grown[-len(was) :]) == list(was):
        return [*grown[: -len(was)], *changed]
    if was and list(grown[: len(was)]) == list(was):
        return [*changed, *grown[len(was) :]]
    return None


def _chunks(base: Sequence[str], ours: Sequence[str], theirs: Sequence[str]) -> Iterator[_Chunk]:
    """Alternately stretches that at least one side changed and single lines that all three share."""
    in_ours, in_theirs = _matches(base, ours), _matches(base, theirs)
    b = o = t = 0
    for index in range(len(base)):
        if index in in_ours and index in in_theirs:
            yield base[b:index], ours[o : in_ours[index]], theirs[t : in_theirs[index]]
            yield base[index : index + 1], base[index : index + 1], base[index : index + 1]
            b, o, t = index + 1, in_ours[index] + 1, in_theirs[index] + 1
    yield base[b:], ours[o:], theirs[t:]


def _matches(base: Sequence[str], other: Sequence[str]) -> dict[int, int]:
    blocks = difflib.SequenceMatcher(None, base, other, autojunk=False).get_matching_blocks()
    return {block.a + k: block.b + k for block in blocks for k in range(block.size)}
