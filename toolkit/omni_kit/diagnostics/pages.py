"""Markdown pages of definitions: what an ID asks for, why, when not to comply, and a short diff from bad to good."""

from collections.abc import Iterator, Sequence
from difflib import unified_diff

from omni_kit.diagnostics.definition import Definition, Example
from omni_kit.plurals import counted

LONGEST = 40
"""Lines of the diff on one page."""
_WIDEST = 160  # characters of a line of the diff
_CONTEXT = (3, 2, 1, 0)


def page(one: Definition, detectors: Sequence[Definition] = ()) -> str:
    """Return the page of one ID; that of a family has a section for each detector."""
    said = one.documentation
    parts = [f"# {one.id}: {one.name}", said.summary, said.details]
    parts += ["## Why", _sentence(said.why), "## When it is fine not to comply", _sentence(said.fine_when)]
    facts = {
        "Severity": one.severity.value,
        "Target": "skills" if one.target == "skill" else one.target,
        "Kinds of model": ", ".join(one.kinds) or "all",
        "Level": one.level,
        "Fixable": "yes, with `--fix`" if one.fixable else "no",
        "Can be ignored": "yes" if one.suppressible else "no",
        "Obligations": ", ".join(one.obligations) or "none",
        "Since": one.since,
        "Status": one.status,
    }
    parts.append("\n".join(f"- {key}: {value}" for key, value in facts.items()))
    if one.suppressible:
        parts.append(_ignoring(one))
    if detectors:
        parts += ["## Detectors", f"`{one.id}` selects, ignores and silences all of them."]
    for each in detectors:
        parts += [f"### {each.id}: {each.name}", each.documentation.summary, each.documentation.details]
    if diff := example_diff(one.bad, one.good):
        markdown = any(path.endswith(".md") for example in one.bad for path in example)
        fence = "````" if markdown else "```"  # pages of skills have fences themselves
        parts += ["## Example", "Lines with `-` are wrong, lines with `+` are right.", f"{fence}diff\n{diff}\n{fence}"]
    return "\n\n".join(part for part in parts if part) + "\n"


def _ignoring(one: Definition) -> str:
    """Return how to ignore a finding, in one line."""
    comment = f"omni-kit: ignore[{one.id}] reason"
    form = {"skill": f"`<!-- {comment} -->`", "layout": ""}.get(one.target, f"`# {comment}`")
    first = f"To ignore one finding, write {form} on its line or the line above. " if form else ""
    return f"{first}To ignore all, pass `--ignore {one.id}`, or see [the settings](README.md#ignoring-findings)."


def example_diff(bad: Sequence[Example], good: Sequence[Example]) -> str:
    """Return the diff from bad examples to the good ones next to them, as many as fit; the first one is cut if it is
    longer.

    Files of only one side are shown as a whole.
    """
    shown: list[str] = []
    for wrong in bad:
        right = max(good, key=lambda other: len(wrong.keys() & other.keys()), default={})
        lines = next((found for n in _CONTEXT if len(found := _diff(wrong, right, n)) <= LONGEST), None)
        if lines is None:
            lines = _cut(_diff(wrong, right, 0))
        if lines == shown or len(shown) + len(lines) > LONGEST:
            continue
        shown += lines
    return "\n".join(shown)


def _diff(wrong: Example, right: Example, context: int) -> list[str]:
    return [_short(line) for path in _paths(wrong, right) for line in _of_file(path, wrong, right, context)]


def _paths(wrong: Example, right: Example) -> list[str]:
    """Return files of both sides first: those show the mistake."""
    shared = [path for path in wrong if path in right]
    return shared or [*wrong, *(path for path in right if path not in wrong)]


def _of_file(path: str, wrong: Example, right: Example, context: int) -> Iterator[str]:
    before, after = wrong.get(path, "").splitlines(), right.get(path, "").splitlines()
    yield from unified_diff(before, after, path, path, lineterm="", n=context)


def _cut(lines: list[str]) -> list[str]:
    left = len(lines) - LONGEST + 1
    return [
        *lines[: LONGEST - 1],
        f"# {counted(left, 'more line')}: omni-kit rules explain shows both sides as a whole",
    ]


def _short(line: str) -> str:
    return line if len(line) <= _WIDEST else f"{line[:_WIDEST]} ..."


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
