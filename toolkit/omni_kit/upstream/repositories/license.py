"""The copyright and license notices of the authors' files, which code that is taken from them keeps."""

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass

from omni_kit.pysource.source import SourceFile
from omni_kit.upstream.repositories.repository import Repository

_STATES = re.compile(r"copyright|licen[sc]e|\bSPDX-", re.IGNORECASE)
_NAMES = re.compile(r"licen[sc]ed under|\bSPDX-License|(Apache|MIT|BSD|GPL|Commons)\b[^\n]*licen[sc]e", re.IGNORECASE)
_NON_COMMERCIAL = re.compile(r"non-?commercial|\bBY-NC\b|research\s+(purposes?\s+)?only", re.IGNORECASE)
_OWNER = re.compile(r"\W*(copyright (\(c\)|©|[12]\d{3})\W.*)", re.IGNORECASE)
_NOT_NOTICES = re.compile(r"#!|#.*coding[:=]")
_FILES = re.compile(r"(LICEN[SC]E|COPYING)([-_.]\w+)*", re.IGNORECASE)
# How licenses begin whose files need no title.
_GRANTS = {"Permission is hereby granted, free of charge": "MIT License", "Redistribution and use in": "BSD License"}
_HEAD_LINES = 40  # of a license file, where its owner is named
_WIDTH = 110


def names_license(text: str) -> bool:
    """Return whether a notice says under which license a file is, and not only whose it is."""
    return bool(_NAMES.search(text))


def is_non_commercial(text: str) -> bool:
    """Return whether a notice, or the title of a license, forbids commercial use."""
    return bool(_NON_COMMERCIAL.search(text))


def _notices(sources: Iterable[SourceFile]) -> str:
    """Return the notices at the head of files as comments, each once; empty if none has one."""
    found = dict.fromkeys(notice_of(one) for one in sources)
    return "\n#\n".join(filter(None, found))


def notice_of(source: SourceFile) -> str:
    """Return the comment at the head of a file from its first notice to its last; empty without one."""
    blocks, block = [], list[str]()
    for line in [*_head(source), ""]:
        if line.strip():
            block.append(line.rstrip())
        elif block:
            blocks.append(block)
            block = []
    stating = [at for at, lines in enumerate(blocks) if any(map(_STATES.search, lines))]
    kept = blocks[stating[0] : stating[-1] + 1] if stating else []
    return "\n#\n".join("\n".join(lines) for lines in kept)


def _head(source: SourceFile) -> list[str]:
    """Return the lines before a file's first statement as comments; a docstring is one of them."""
    first = source.tree.body[0] if source.tree.body else None
    lines = source.lines[: first.lineno - 1 if first is not None else None]
    lines = [line for line in lines if not _NOT_NOTICES.match(line)]
    if _STATES.search(said := ast.get_docstring(source.tree) or ""):
        lines += ["", *(f"# {line}" if line.strip() else "" for line in said.splitlines())]
    return lines


@dataclass(frozen=True)
class License:
    """The license of a repository.

    Attributes:
        title: the first line of its file.
        owner: the line that names who has the copyright; empty without one.
        where: its file:line, from the folder in which it lies.
        place: the file that it was looked for, from the same folder.
    """

    title: str
    owner: str
    where: str
    place: str


def license_of(source: SourceFile) -> License | None:
    """Return the license that lies nearest above a file, no further up than its project begins; None without one, and
    for a file of an installed package.
    """
    repository = source.library
    if not isinstance(repository, Repository):
        return None
    within = [folder for folder in source.path.parents if folder.is_relative_to(repository.outermost)]
    files = (file for folder in within for file in sorted(folder.iterdir()) if _FILES.fullmatch(file.name))
    for file in (one for one in files if one.is_file() and one.resolve().is_relative_to(repository.outermost)):
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()[:_HEAD_LINES]
        titles = [line.strip("#*- \t") for line in lines if not _OWNER.fullmatch(line)]
        owner = next((found[1].strip() for line in lines if (found := _OWNER.fullmatch(line))), "")
        for first in filter(None, titles):
            title = next((name for begins, name in _GRANTS.items() if first.startswith(begins)), first)
            place = source.path.relative_to(file.parent).as_posix()
            return License(title[:_WIDTH], owner[:_WIDTH], f"{file.name}:1", place)
    return None


def header_of(own: SourceFile, others: Iterable[SourceFile] = ()) -> str:
    """Return the comments above a file into which code of the authors is taken; empty if they state nothing.

    Args:
        own: the file that most is taken from; where it has no notice, the license of its project is named.
        others: the further files; stand-ins are not the authors'.
    """
    stated = _notices([own, *(one for one in others if isinstance(one.library, Repository))])
    found = license_of(own) if not notice_of(own) else None
    if found is not None:
        adapted = f"# Adapted from {found.place}. License: {found.title}"
        lines = [f"# {found.owner}" if found.owner else "", adapted, f"#\n{stated}" if stated else ""]
        stated = "\n".join(filter(None, lines))
    return f"{stated}\n\n" if stated else ""
