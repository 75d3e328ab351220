"""The library's dispatch of attention stands without turns that undo each other."""

from pathlib import Path

import pytest

from tests.targets.diffusers.porting.small_models import SPLIT, attention, ported

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


OWN_BACKEND = """
def attend(q, k, v, scale=None, backend=None):
    if backend == "none":
        return v
    return F.scaled_dot_product_attention(q, k, v, scale=scale)


def plain(*args, **kwargs):
    return attend(*args, **kwargs)


"""


def test_a_backend_that_authors_pass_on_has_another_name(tmp_path: Path) -> None:
    asked = HEADS + "y = plain(q, k, v, backend='native')\nreturn self.o(y.transpose(1, 2).flatten(2))"
    found = ported(tmp_path, OWN_BACKEND + attention(SPLIT, asked)).text
    assert "def attend(q, k, v, scale=None, kernel=None, backend=None, parallel_config=None):" in found
    assert 'if kernel == "none":' in found
    assert "scale=scale, backend=backend, parallel_config=parallel_config" in " ".join(found.split())
    assert 'kernel="native",' in found
