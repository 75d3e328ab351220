"""Forwards whose only argument is a tuple."""

from pathlib import Path

import pytest

from omni_kit.upstream.repositories.reference import find_reference

TEXT = """import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, {given}):
        \"\"\"Return it.\"\"\"
        {first}
        return audio + steps{more}

    def last(self):
        return 1
"""
UNPACKED = "audio, steps = data"


@pytest.mark.parametrize(("given", "first", "more", "names"), [
    ("data", UNPACKED, "", ["audio", "steps"]),
    ("data: tuple", UNPACKED, "", ["audio", "steps"]),
    ("data", UNPACKED, " + data[0]", ["data"]),
    ("data, audio=1", UNPACKED, "", ["data", "audio"]),
    ("data=None", UNPACKED, "", ["data"]),
    ("data", "audio, (steps, _) = data", "", ["data"]),
])  # fmt: skip
def test_the_parts_are_the_arguments(given: str, first: str, more: str, names: list[str], tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(text := TEXT.format(given=given, first=first, more=more), encoding="utf-8")
    found = find_reference(f"{tmp_path}::Net")
    assert [*found.forward] == names
    last = found.cls.defines("last")
    assert last is not None
    assert last.lineno == text.split("\n").index("    def last(self):") + 1
