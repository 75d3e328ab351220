"""Methods that only patches call: carried where upstream drops them, or changes what the patch leaves out."""

import ast
from pathlib import Path

import pytest

from omni_kit.patchgen.upgrade.configs import upgrade_configs
from omni_kit.patchgen.upgrade.outcome import PatchOutcome
from omni_kit.patchgen.upgrade.unchanged_bodies import makes_already

from .libraries import write_libraries

MODELING = """
from torch import nn


class Tower(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.size = size

    def mask(self, ids, embeds=None):
        if ids is None:
            found = embeds == self.size
        else:
            found = ids == self.size
        check(found.numel() == embeds.numel())
        found = found.expand_as(embeds)
        return found

    def forward(self, ids, embeds):
        found = self.mask(ids, embeds=embeds)
        return embeds.masked_fill(found, 0)
"""
CONFIG = """
from omni_kit.patchgen import PatchConfig

config = PatchConfig(source_module="small.modeling", target_file="patched.py")


@config.override_method("Tower.mask")
def mask(self, ids, embeds=None):
    found = ids == self.size
    return found
"""
FORWARD = """

@config.override_method("Tower.forward")
def forward(self, ids, embeds):
    found = self.mask(ids, embeds=embeds)
    return embeds.masked_fill(found.unsqueeze(-1), 0)
"""
OTHER = MODELING.replace("        found = found.expand_as(embeds)\n", "        found = found.to(embeds.device)\n")
GONE = f"""{MODELING[: MODELING.index("    def mask")]}    def forward(self, ids, embeds):
        return embeds.masked_fill(placeholders(ids, embeds, self.size), 0)
"""


def upgraded(folder: Path, new: str, config: str) -> tuple[dict[str, PatchOutcome], str]:
    """The outcome of each patch, and the config's new text."""
    libraries = write_libraries(folder, "small", {"modeling": MODELING}, {"modeling": new})
    path = folder / "a_patch_gen_config.py"
    path.write_text(config, encoding="utf-8")
    (result,) = upgrade_configs([path], *libraries, "small").configs
    return {one.target: one for one in result.patches}, path.read_text(encoding="utf-8")


def test_a_method_that_patches_alone_call_keeps_what_it_leaves_out(tmp_path: Path) -> None:
    found, text = upgraded(tmp_path, OTHER, CONFIG + FORWARD)
    assert found["Tower.mask"].status == "carried"
    assert text == CONFIG + FORWARD


@pytest.mark.parametrize("new", ["ids = ids.long()\n", "found = found & self.more\n"])
def test_what_upstream_adds_to_code_that_stays_is_left_to_a_person(tmp_path: Path, new: str) -> None:
    added = OTHER.replace("        return found\n", f"        {new}        return found\n")
    found, _ = upgraded(tmp_path, added, CONFIG + FORWARD)
    assert found["Tower.mask"].status == "conflict"


@pytest.mark.parametrize(
    "config",
    [
        CONFIG,
        (CONFIG + FORWARD).replace("found = ids == self.size\n    return", "found = ids == self.size + 1\n    return"),
    ],
    ids=["upstream calls it", "the patch changes it, too"],
)
def test_a_method_that_others_call_or_the_patch_changes_is_left_to_a_person(tmp_path: Path, config: str) -> None:
    found, _ = upgraded(tmp_path, OTHER, config)
    assert found["Tower.mask"].status == "conflict"


def test_a_dropped_method_that_another_patch_calls_is_injected(tmp_path: Path) -> None:
    found, text = upgraded(tmp_path, GONE, CONFIG + FORWARD.replace("masked_fill(found", "index_fill(found"))
    assert found["Tower.mask"].status == "merged"
    assert '"Tower.mask", inject=True' in text


def test_a_dropped_method_that_no_patch_calls_is_left_to_a_person(tmp_path: Path) -> None:
    found, _ = upgraded(tmp_path, GONE, CONFIG)
    assert found["Tower.mask"].status == "conflict"


def test_a_patch_that_only_raises_is_carried(tmp_path: Path) -> None:
    refusing = CONFIG.replace(
        "    found = ids == self.size\n    return found\n", '    raise NotImplementedError("not trained")\n'
    )
    found, text = upgraded(tmp_path, OTHER, refusing)
    assert found["Tower.mask"].status == "carried"
    assert text == refusing


DELEGATED = (
    MODELING.replace("class Tower(", "class Inner(")
    + """

class Tower(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.inner = Inner(size)

    def mask(self, ids, embeds=None):
        return self.inner.mask(ids, embeds)

    def forward(self, ids, embeds):
        return self.inner(ids, embeds)
"""
)


def test_a_patch_follows_the_method_to_the_part_that_has_it_now(tmp_path: Path) -> None:
    config = CONFIG.replace("    found = ids == self.size\n", "    found = ids == self.size\n    note(found)\n")
    found, _ = upgraded(tmp_path, DELEGATED.replace("embeds == self.size", "embeds == 0"), config)
    assert "Inner.mask" in found
    assert found["Inner.mask"].was == "Tower.mask"


def test_a_method_that_passes_something_else_on_stays(tmp_path: Path) -> None:
    found, _ = upgraded(tmp_path, DELEGATED.replace("mask(ids, embeds)\n", "mask(ids, None)\n"), CONFIG)
    assert "Tower.mask" in found


GATED = "def forward(self, x):\n    return self.down(self.act(self.gate(x)) * self.up(x))\n"
CAPPED = """\
def forward(self, x):
    gate = self.gate(x).clamp(max=self.limit)
    return self.down(self.act(gate) * self.up(x))
"""
OWN_CAP = """\
def forward(self, x):
    gate = quantized(self.gate, x).float().clamp(max=self.config.cap)
    if fused:
        return fused(gate, self.up(x))
    return quantized(self.down, self.act(gate) * self.up(x))
"""
KEEPS = ast.parse("class A:\n    def __init__(self, config):\n        self.limit = config.cap\n")


def test_a_patch_that_makes_upstreams_change_stays() -> None:
    assert makes_already(GATED, OWN_CAP, CAPPED, KEEPS)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("max=self.config.cap", "max=self.config.other"),
        (".clamp(max=self.config.cap)", ""),
        ("fused(gate,", "fused(self.gate(x),"),
        ("quantized(self.gate, x)", "quantized(self.up, x)"),
    ],
    ids=["other limit", "not made", "not everywhere", "other part"],
)
def test_a_patch_that_makes_another_change_does_not(old: str, new: str) -> None:
    assert not makes_already(GATED, OWN_CAP.replace(old, new), CAPPED, KEEPS)
    assert not makes_already(GATED, OWN_CAP, GATED, KEEPS)
