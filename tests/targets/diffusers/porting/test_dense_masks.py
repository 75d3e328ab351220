"""Flex attention in authors' code: a dense mask and the library's dispatch, where a mask is all that it does."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from omni_kit.parity import run_parity
from omni_kit.parity.processes.workers import Sides
from omni_kit.scaffold import new_model
from tests.targets.diffusers.test_attention_forms import FUSED, NET

IMPORTS = """\
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

flex_attention = torch.compile(flex_attention, dynamic=False)


def masked(length: int, device) -> BlockMask:
    def seen(b, h, query, key):
        return key // 4 <= query // 4

    return create_block_mask(seen, B=None, H=None, Q_LEN=length, KV_LEN=length, device=device, _compile=True)


def further(score, b, h, query, key):
    return score - (query - key).abs()


class Attention("""
SPLIT = "q, k, v = self.qkv(x).reshape(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)"
MASKED = "y = flex_attention(q, k, v, block_mask=masked(n, x.device))"
SCORED = "y = flex_attention(q, k, v, score_mod=further, block_mask=masked(n, x.device))"
LEVELS = ("keys", "roundtrip", "forward", "backward", "modules", "steps")


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sides]:
    with Sides(tmp_path_factory.mktemp("sides")) as both:
        yield both


def ported(place: Path, name: str, attends: str) -> Path:
    text = NET.replace("{init}", f"        {FUSED}").replace("{forward}", f"        {SPLIT}\n        {attends}")
    (place / f"{name}.py").write_text(text.replace("class Attention(", IMPORTS, 1), encoding="utf-8")
    new_model(name, f"{place / name}.py::Net", target="diffusers", into=place / "plugins")
    return place / "plugins" / name


def test_a_block_mask_becomes_a_dense_one(tmp_path: Path, sides: Sides) -> None:
    package = ported(tmp_path, "seen_blocks", MASKED)
    model = (package / "transformer_seen_blocks.py").read_text(encoding="utf-8")
    assert "from torch.nn.attention.flex_attention import create_mask\n" in model
    assert "return create_mask(seen, None, None, length, length, device=device)" in model
    assert "def masked(length: int, device) -> torch.Tensor:" in model
    assert "attn_mask=masked(n, x.device)" in model
    assert "dispatch_attention_fn(" in model
    assert not any(word in model for word in ("create_block_mask", "BlockMask", "flex_attention(", "torch.compile"))
    report = run_parity(package, LEVELS, sides=sides)
    assert report.ok, report.levels


def test_scores_that_are_changed_keep_flex_attention(tmp_path: Path, sides: Sides) -> None:
    package = ported(tmp_path, "changed_scores", SCORED)
    model = (package / "transformer_changed_scores.py").read_text(encoding="utf-8")
    assert "score_mod=further" in model
    assert "create_block_mask(" in model
    assert "create_mask(" not in model
    report = run_parity(package, LEVELS, sides=sides)
    assert report.ok, report.levels
