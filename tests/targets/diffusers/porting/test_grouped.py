"""Keys and values of grouped heads are shared by the kernel."""

from pathlib import Path

import pytest

from tests.conftest import first
from tests.targets.diffusers.porting.small_models import SPLIT, attention, ported


@pytest.mark.parametrize(("repeated", "shared"), first(2, [
    ("k, v = k.repeat_interleave(2, dim=1), v.repeat_interleave(2, 1)", False),
    ("k = k.repeat_interleave(2, dim=1)\nv = torch.repeat_interleave(v, 2, dim=-3)", True),
    ("k = k.repeat_interleave(2, dim=1)\nv = v.repeat_interleave(4, dim=1)", False),
    ("k = k.repeat_interleave(2, dim=1)\nv = v.repeat_interleave(2, dim=2)", False),
    ("k = k.repeat_interleave(2, dim=1)\nv = v.repeat_interleave(2, dim=1)\nself.seen = k", False),
    ("k = k.repeat(1, 2, 1, 1)\nv = v.repeat(1, 2, 1, 1)", False),
]))  # fmt: skip
def test_keys_and_values_are_shared_where_each_is_repeated_alike(repeated: str, shared: bool, tmp_path: Path) -> None:
    heads = "\n".join(f"{one} = self.{one}(x).unflatten(-1, (-1, 4)).transpose(1, 2)" for one in "qkv")
    own = f"{heads}\n{repeated}\ny = F.scaled_dot_product_attention(q, k, v)\nreturn self.o(y.transpose(1, 2))"
    found = ported(tmp_path, attention(SPLIT, own))
    assert ("enable_gqa=True" in found.text) is shared
    assert ("repeat" not in found.text.replace("_repeated_blocks", "")) is shared
