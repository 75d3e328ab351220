"""torch's attention is replaced where the authors make it."""

from pathlib import Path

import pytest

from tests.targets.diffusers.porting.small_models import ported

DECODER = """
class Net(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.decoder = nn.TransformerDecoderLayer(dim, 2)
        self.own = nn.Linear(dim, dim)

    def trained(self):
        return [one for one in self.modules() if isinstance(one, nn.MultiheadAttention)]

    def forward(self, x, t):
        return self.decoder(self.own(x), t) if self.trained() else x
"""


@pytest.mark.parametrize(("made", "replaced", "left"), [
    ("nn.Linear(dim, dim)", False, 0),
    ("nn.MultiheadAttention(dim, 2)", True, 0),
    ("nn.MultiheadAttention(dim, 2, add_bias_kv=True)", False, 1),
])  # fmt: skip
def test_torchs_attention_is_replaced_where_the_authors_make_it(
    made: str, replaced: bool, left: int, tmp_path: Path
) -> None:
    found = ported(tmp_path, DECODER.replace("nn.Linear(dim, dim)", made))
    assert ("class TinyMultiheadAttention" in found.text) is replaced
    assert ("isinstance(one, nn.MultiheadAttention)" in found.text) is not replaced
    assert sum("add_bias_kv" in what for _, what in found.todo) == left
