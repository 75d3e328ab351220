"""The library's dispatch of attention stands without turns that undo each other."""

from pathlib import Path

import pytest

from tests.targets.diffusers.test_porting import SPLIT, attention, ported

HEADS = "q, k, v = (f(x).unflatten(-1, (2, -1)).transpose(1, 2) for f in (self.q, self.k, self.v))\n"
ASKED = "y = F.scaled_dot_product_attention(q, k, v)\n"


@pytest.mark.parametrize(
    ("after", "turned"),
    [
        ("return self.o(y.transpose(1, 2).flatten(2))", False),
        ("y = y.transpose(1, 2).flatten(2)\nreturn self.o(y)", False),
        ("z = y.transpose(1, 2).flatten(2)\nreturn self.o(z) + y.mean()", True),
        ("return self.o(y.transpose(1, 2).flatten(2)) * y.mean()", True),
        ("return self.o(y.permute(0, 2, 1, 3).flatten(2))", True),
    ],
)
def test_a_result_is_turned_where_something_reads_it_so(after: str, turned: bool, tmp_path: Path) -> None:
    text = ported(tmp_path, attention(SPLIT, HEADS + ASKED + after)).text
    result = text.partition("dispatch_attention_fn(")[2].partition("class ")[0]
    assert (").transpose(1, 2)" in result) is turned
    assert ("y.flatten(2)" in result) is not turned
