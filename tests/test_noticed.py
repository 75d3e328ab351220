"""The page of injected mistakes keeps the rows that it has, and counts them."""

import sys
from pathlib import Path

import pytest
import yaml

from tools.noticed import main

ENTRY = {"id": "a", "model": "olmoe", "what": "one | other", "edits": {"file.py": [["old", "new"]]}}


def test_entries_with_a_row_are_not_run_again_and_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mistakes, page, kept = tmp_path / "few.yaml", tmp_path / "page.md", tmp_path / "kept.jsonl"
    entries = {"first_run": {"detected": 0, "not detected": 2}, "wrong": [ENTRY, {**ENTRY, "id": "b", "what": "more"}]}
    mistakes.write_text(yaml.safe_dump(entries))
    page.write_text("| edit | x | y |\n| olmoe: one \\| other | check | VEO1: why |\n| olmoe: more | nothing | |\n")
    monkeypatch.setattr(sys, "argv", ["noticed", str(mistakes), "--into", str(page), "--kept", str(kept)])

    main()

    lines = page.read_text().splitlines()
    assert "2 tried, 1 failed a stage." in lines
    assert "- `few.yaml`: 0 detected, 2 not detected." in lines
    assert "| olmoe: one \\| other | check | VEO1: why |" in lines
    assert not kept.exists()
