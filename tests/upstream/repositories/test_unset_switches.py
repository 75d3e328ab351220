"""Switches that methods alone set, and that a constructor turns off."""

from pathlib import Path

import pytest

from omni_kit.upstream.repositories.reference import find_reference
from omni_kit.upstream.repositories.unset_switches import unset_switches

TEXT = """import torch
class Net(torch.nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.known = True
        self.set_up()

    def set_up(self):
        self.early = False

    def cache(self, on=True):
        {enabled}
        self.known = self.early = True

    def plain(self):
        self.cached = False

    def forward(self, x, t):
        {first}
        if self.cached and self.known and self.early:
            return x
        return x + t
"""


def read(folder: Path, enabled: str = "self.cached = True", first: str = "pass") -> tuple[list[str], str]:
    (folder / "m.py").write_text(TEXT.format(enabled=enabled, first=first), encoding="utf-8")
    found = find_reference(f"{folder}::Net")
    return unset_switches(found.cls), found.cls.source.text


def test_a_switch_that_methods_alone_set_is_off(tmp_path: Path) -> None:
    unset, text = read(tmp_path)
    assert unset == []
    assert "super().__init__(); self.cached = False\n" in text


@pytest.mark.parametrize("given", [{"enabled": "self.cached = on"}, {"first": "self.cached = False"}])
def test_what_may_have_other_values_stays_unset(given: dict[str, str], tmp_path: Path) -> None:
    assert "super().__init__()\n" in read(tmp_path, **given)[1]
