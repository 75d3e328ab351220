"""Pages about all IDs, made from their definitions: `python -m omni_checkers.engine.docs docs/rules [--check]`."""

import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from omni_checkers.engine.registry import RETIRED, all_definitions
from omni_kit.diagnostics.definition import Definition
from omni_kit.diagnostics.pages import page
from omni_kit.files import write_atomic

_MADE = "<!-- Made from the definition itself; change it there. -->\n"
_HEAD = """\
# Rules

`omni-kit check` judges by these, `omni-kit skills check` by those of SKL, `omni-kit patchgen` by those of PGN, and
`omni-kit check-layout` by those of LAY. `omni-kit rules explain ID` prints the same.

An ID means one thing. A rule with several detectors is a family: each detector has the family's ID, a dot and a number
of its own, such as VEO415.2. Findings carry the detector's ID. The family's ID selects, ignores, baselines and silences
all its detectors.

## Ignoring findings

- One finding: `# omni-kit: ignore[VEO123] reason` at the end of its line, or alone on the line above. Several IDs are
  separated by commas; a family's ID stands for all its detectors; without a reason it ignores nothing. In Markdown of
  a skill the form is `<!-- omni-kit: ignore[SKL123] reason -->`.
- All findings of an ID, or of all IDs that begin so: `--ignore VEO123`, or `select`, `ignore` and `per-file-ignores`
  in `[tool.omni-kit.check]` of the pyproject.toml:

```toml
[tool.omni-kit.check]
ignore = ["VEO427"]
per-file-ignores = { "legacy/*" = ["VEO4"] }
```

- What is there today: `--write-baseline FILE`, then `--baseline FILE` reports only what is new.

## All IDs

| Rule | Severity | Level | Name | What it asks for |
|---|---|---|---|---|
"""


@cache
def pages() -> Mapping[str, str]:
    """File name -> text: one page an ID, detectors on that of their family, and the index."""
    families: dict[str, list[Definition]] = {}
    for one in all_definitions().values():
        families.setdefault(one.family or one.id, []).append(one)
    made = {f"{own.id}.md": _MADE + page(own, detectors) for own, *detectors in families.values()}
    return {"README.md": index(list(families.values())), **made}


def index(families: Sequence[Sequence[Definition]]) -> str:
    """Return the table of all IDs; of a family, how many detectors it has."""
    text = _MADE + _HEAD
    for one, *detectors in families:
        name = f"{one.name} ({len(detectors)} detectors)" if detectors else one.name
        summary = one.documentation.summary.replace("|", "\\|")
        text += f"| [{one.id}]({one.id}.md) | {one.severity.value} | {one.level} | {name} | {summary} |\n"
    text += "\nIDs of rules that are gone are never used again.\n"
    return text + "".join(f"- {rule_id}: {what}\n" for rule_id, what in sorted(RETIRED.items()))


def differences(directory: Path) -> list[str]:
    """Return names of pages that are missing, out of date, or about no ID."""
    wanted = pages()
    present = {path.name for path in directory.glob("*.md")}
    stale = [n for n, text in wanted.items() if n in present and (directory / n).read_text(encoding="utf-8") != text]
    return sorted({*stale, *(wanted.keys() - present), *(present - wanted.keys())})


def main(arguments: list[str]) -> int:
    """Write the pages into a directory, or with --check says which differ."""
    directory = Path(arguments[0])
    if "--check" in arguments:
        wrong = differences(directory)
        print("\n".join(wrong) if wrong else "all pages are up to date")
        return 1 if wrong else 0
    made = pages()
    for name, text in made.items():
        write_atomic(directory / name, text)
    for path in directory.glob("*.md"):
        if path.name not in made:
            path.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
