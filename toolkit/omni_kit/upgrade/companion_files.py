"""Files next to a patch config: converters, parallel plans, LoRA patterns, registries and toys that name parameters.

A name that upstream changed for sure is followed; one that is gone without a counterpart is left to a person.
"""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from omni_kit.files import files_matching, write_atomic
from omni_kit.patchgen.keys import KeyDrift
from omni_kit.patchgen.source import read_module
from omni_kit.patchgen.spans import Edit, splice
from omni_kit.upgrade.result import Leftover

_WORD = re.compile(r"[A-Za-z_]\w*")


def follow_names(
    folder: Path, drift: Sequence[KeyDrift], root: Path, *, write: bool
) -> tuple[list[str], list[Leftover]]:
    """Bring the names of parameters in a model's other files up to date.

    Returns:
        The files that changed or would, and the lines that a person has to look at.
    """
    renamed, gone = _parts(drift)
    changed: list[str] = []
    left: list[Leftover] = []
    if not renamed and not gone:
        return changed, left
    for file in _files(folder):
        source = read_module(file.stem, file)
        name = str(file.relative_to(root)) if file.is_relative_to(root) else str(file)
        edits = list(_edits(source.tree, source.text, source, renamed))
        if edits:
            changed.append(name)
            if write:
                write_atomic(file, splice(source.text, edits))
        for line, part in _mentions(source.tree, gone):
            left.append(Leftover(name, line, f"names {part}, which upstream's parameters no longer have"))
    return changed, left


def _files(folder: Path) -> list[Path]:
    """Return a model's own files that may name parameters; patch configs and generated files have their own ways."""
    found = files_matching(folder, "**/*.py")
    return sorted(
        one
        for one in found
        if "generated" not in one.relative_to(folder).parts and not one.name.endswith("_patch_gen_config.py")
    )


def _parts(drift: Sequence[KeyDrift]) -> tuple[dict[str, str], set[str]]:
    """Parts of parameters' names that changed in every name alike, and parts that no name has any more."""
    pairs: dict[str, set[str]] = {}
    lost: set[str] = set()
    kept: set[str] = set()
    for one in drift:
        for old, new in one.renamed.items():
            was, now = old.split("."), new.split(".")
            if len(was) == len(now):
                for before, after in zip(was, now, strict=True):
                    (kept.add(before) if before == after else pairs.setdefault(before, set()).add(after))
        lost |= {part for name in one.removed for part in name.split(".")[-2:-1]}
        kept |= {part for name in one.added for part in name.split(".")}
    renamed = {old: next(iter(new)) for old, new in pairs.items() if len(new) == 1 and old not in kept and len(old) > 2}
    return renamed, {part for part in lost if part not in kept and part not in renamed and len(part) > 3}


def _edits(tree: ast.Module, text: str, source: object, renamed: Mapping[str, str]) -> Iterator[Edit]:
    """Edits of strings that name parameters: dotted, or a single part."""
    for node in _strings(tree):
        start, end = source.start_of(node), source.end_of(node)  # type: ignore[attr-defined]
        for word in _WORD.finditer(text, start, end):
            if word.group() in renamed:
                yield Edit(word.start(), word.end(), renamed[word.group()])


def _mentions(tree: ast.Module, gone: set[str]) -> Iterator[tuple[int, str]]:
    for node in _strings(tree):
        for word in _WORD.findall(str(node.value)):
            if word in gone:
                yield node.lineno, word


def _strings(tree: ast.Module) -> Iterator[ast.Constant]:
    """Strings that are no docstrings and have no blanks: names, patterns, keys."""
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and node.value
            and not re.search(r"\s", node.value)
        ):
            yield node
