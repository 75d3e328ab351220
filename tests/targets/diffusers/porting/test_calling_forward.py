"""Methods that call the model's forward get what the authors' returned."""

from pathlib import Path

import pytest

from tests.targets.diffusers.porting.small_models import ASKED, NET, SPLIT, attention, ported


@pytest.mark.parametrize(("returned", "asked", "written"), [
    ("{'x': x}", "self.forward(x, t, context)['x']", "self.forward(x, t, context, return_dict=False)[0]"),
    ("{'x': x}", "self.forward(x, t,  # (theirs\n            context)['x']",
     "self.forward(x, t, context, return_dict=False)[0]"),
    ("{'x': x}", "self(x, t, context)", "{'x': self(x, t, context, return_dict=False)[0]}"),
    ("{'x': x, 'y': t}", "self(x, t, context)['y']",
     "dict(zip(('x', 'y'), self(x, t, context, return_dict=False)))['y']"),
])  # fmt: skip
def test_a_method_that_asks_for_a_mapping_gets_one(returned: str, asked: str, written: str, tmp_path: Path) -> None:
    method = f"    def forward_with_cfg(self, x, t, context, cfg_scale):\n        return {asked}"
    guided = f"        return {returned}\n\n{method}"
    text = ported(tmp_path, attention(SPLIT, ASKED).replace(NET, NET.replace("        return x", guided))).text
    assert f"return {written}" in text.replace('"', "'")
