"""What is generated in README and skills is what the code says today, stamped with its version."""

from pathlib import Path

import pytest

from omni_kit import __version__
from tools.made_tables import PAGES, written


@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parent.name}/{page.name}")
def test_it_is_up_to_date(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert written(text) == text, "run `make docs`"


def test_drift_is_seen() -> None:
    made = written("<!-- made: commands doctor; omni-kit 0.0.0 -->\nold\n<!-- /made -->\n")
    assert f"omni-kit {__version__} -->" in made
    assert "| `omni-kit doctor` | " in made
    assert "old" not in made


def test_every_skill_has_its_commands() -> None:
    skills = [page for page in PAGES if page.name == "SKILL.md"]
    assert [page.parent.name for page in skills if "<!-- made: commands " not in page.read_text(encoding="utf-8")] == []
