"""The page of faults in released frameworks lists what its commands show now."""

import datetime
from pathlib import Path

from tools.found import Entry, Outcome, entries, line_of, page, tried

LIST = Path(__file__).parents[1] / "bench" / "found.yaml"


def _entry(script: str) -> Entry:
    return Entry("A fault", "typer", ("core.py", "import "), "It hurts.", (), script, "visible", "run")


def test_each_entry_has_a_command_or_a_script() -> None:
    found = entries(LIST.read_text(encoding="utf-8"))
    assert len(found) >= 8
    assert all(bool(one.command) is not bool(one.script) for one in found)


def test_a_script_that_prints_the_text_shows_the_fault() -> None:
    assert tried(_entry("print('a visible difference')")).shown
    assert not tried(_entry("print('none')")).shown


def test_only_a_shown_fault_has_a_section() -> None:
    shown, gone = _entry("print('a visible difference')"), _entry("print('none')")
    text = page([(shown, Outcome(True, "", 1.0)), (gone, Outcome(False, "none", 1.0))], datetime.date(2026, 1, 2))
    assert text.count("## A fault") == 1
    assert "```python\nprint('a visible difference')\n```" in text
    assert "## No longer shown\n\n- A fault" in text
    assert f"`{line_of(shown)}`. It hurts." in text
