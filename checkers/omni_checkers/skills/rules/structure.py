"""The links between the pages of a skill."""

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

from omni_checkers.engine.rule import Finding, Findings, Rule, Severity
from omni_checkers.skills.examples import HEAD
from omni_checkers.skills.subject import Subject
from omni_kit.skillpack.page import Page

_LEFT_OUT = re.compile(r"\.|LICEN[CS]E|NOTICE|COPYING|README|CHANGELOG|requirements\.txt$|__init__\.py$|plugin\.json$")


class Unreferenced(Rule):
    """Name every page and script in a page that the agent reads.

    A file is named if SKILL.md, or a named page or script, contains its path, its name, its module name, or its folder.

    Why: an agent opens only the pages that others link. Unlinked files are installed and never read.

    Fine when: another program reads the file; suppress the finding in SKILL.md with the reason.
    """

    id = "SKL206"
    name = "unreferenced-file"
    target = "skill"
    severity = Severity.warning
    BAD = (
        {"SKILL.md": HEAD, "references/details.md": "# Details\n"},
        {"SKILL.md": f"{HEAD}<!-- see references/details.md -->\n", "references/details.md": "# Details\n"},
        {"SKILL.md": f"{HEAD}See `more-sums.csv`.\n", "more-sums.csv": "1,2\n", "sums.csv": "1,2\n"},
    )
    GOOD = (
        {
            "SKILL.md": f"{HEAD}When a sum overflows, read `references/details.md`.\n",
            "references/details.md": "# More\n",
        },
    )

    def check(self, skill: Subject) -> Findings:
        files = [path for path in skill.files if not _LEFT_OUT.match(path.name)]
        reached, pending = {skill.file}, [skill.file]
        while pending:
            text = _visible(pending.pop().read_text(encoding="utf-8", errors="replace"))
            for path in files:
                if path not in reached and _names(text, path.relative_to(skill.path)):
                    reached.add(path)
                    pending.append(path)
        for path in files:
            if path not in reached:
                yield Finding(f"no page names '{path.relative_to(skill.path)}'", path)


def _names(text: str, path: Path) -> bool:
    """Return whether a text contains a file's name, a folder of it, or an import of its module."""
    patterns = [rf"(?<![\w.-]){re.escape(path.name)}(?![\w-])"]
    for folder in (re.escape(one.as_posix()) for one in path.parents if one != Path()):
        patterns += [rf"(?<![\w-]){folder}/(?![\w.-])", rf"[`'\"/]{folder}[`'\"]"]
    if path.suffix == ".py":
        patterns.append(rf"\b(?:import|from)\s+[\w.]*\b{re.escape(path.stem)}\b")
    return any(re.search(pattern, text) for pattern in patterns)


def _visible(text: str) -> str:
    return re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)


class MissingAnchor(Rule):
    """Link to headings that exist.

    Why: the reader lands at the top of a long page and takes another section for the intended one.

    Fine when: a tool creates the anchor; write it as `<a id="...">` in the page.
    """

    id = "SKL207"
    name = "missing-anchor"
    target = "skill"
    BAD = (
        {"SKILL.md": f"{HEAD}See [below](#limits).\n"},
        {"SKILL.md": f"{HEAD}See [below](#gr%C3%B6%C3%9Fe).\n"},
        {"SKILL.md": f"{HEAD}See <a href='#limits'>below</a>.\n"},
        {"SKILL.md": f"{HEAD}See [limits](references/more.md#limits).\n", "references/more.md": "# More\n"},
    )
    GOOD = (
        {"SKILL.md": f"{HEAD}See [below](#what-it-can-do).\n\n## What it can do?\n"},
        {"SKILL.md": f"{HEAD}See [below](#gr%C3%B6%C3%9Fe).\n\n## Größe\n"},
    )

    def check(self, skill: Subject) -> Findings:
        pages = {page.path.resolve(): page for page in skill.pages}
        for page in skill.pages:
            for link in page.links:
                target, mark, anchor = link.text.partition("#")
                if not mark or not anchor or re.match(r"[a-z][a-z0-9+.-]*:|//", target):
                    continue
                other = pages.get((page.path.parent / target).resolve()) if target else page
                if other is not None and unquote(anchor).lower() not in anchors(other):
                    yield Finding(f"'{link.text}' leads to no heading of {other.path.name}", page.path, link.line)


def anchors(page: Page) -> set[str]:
    """Return the anchors of a page, as GitHub makes them of headings, and those written as `id` or `name`."""
    found: set[str] = set()
    for heading in _headings(page):
        words = re.sub(r"[`*]|!?\[([^\]]*)\]\([^)]*\)", lambda match: match[1] or "", heading).strip().lower()
        slug = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        count = sum(one == slug or re.fullmatch(rf"{re.escape(slug)}-\d+", one) is not None for one in found)
        found.add(f"{slug}-{count}" if count else slug)
    return found | {match.lower() for match in re.findall(r"""<a\s[^>]*\b(?:id|name)=["']([^"']+)""", page.body)}


def _headings(page: Page) -> Iterator[str]:
    fenced = {number for block in page.blocks for number in range(block.line, block.line + block.text.count("\n"))}
    lines = page.text.splitlines()
    for number, line in enumerate(lines, 1):
        match = re.match(r" {0,3}#{1,6}\s+(.*?)(?:\s+#+)?\s*$", line)
        if match and number not in fenced:
            yield match[1]
        elif (
            number > 1 and re.fullmatch(r"=+\s*|-{2,}\s*", line) and lines[number - 2].strip() and number not in fenced
        ):
            yield lines[number - 2]


class Nested(Rule):
    """Link every page and reference from SKILL.md directly.

    Why: agents read pages that only another page links partially, or not at all.

    Fine when: SKILL.md names the inner page too.
    """

    id = "SKL208"
    name = "nested-reference"
    target = "skill"
    severity = Severity.warning
    BAD = (
        {
            "SKILL.md": f"{HEAD}See [more](references/more.md).\n",
            "references/more.md": "See [details](details.md).\n",
            "references/details.md": "# Details\n",
        },
    )
    GOOD = (
        {
            "SKILL.md": f"{HEAD}See [more](references/more.md), for edge cases [details](references/details.md).\n",
            "references/more.md": "See [details](details.md).\n",
            "references/details.md": "# Details\n",
        },
    )

    def check(self, skill: Subject) -> Findings:
        pages = [page for page in skill.pages if page.path != skill.file]
        others = {page.path for page in pages} | {path for path in skill.files if path.parent.name == "references"}
        for path in sorted(others):
            inner = path.relative_to(skill.path)
            by = [page.path for page in pages if page.path != path and _names(_visible(page.text), inner)]
            if by and not _names(_visible(skill.page.text), inner):
                yield Finding(f"only '{by[0].relative_to(skill.path)}' names '{inner}'; name it in SKILL.md", path)
