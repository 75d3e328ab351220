"""What can be written in several ways is one thing; what only looks alike is not."""

import ast

import pytest
import torch

from omni_checkers.codediff.fingerprint import fingerprint, unparse_cached
from omni_checkers.codediff.normalize import normalize

SAME = [
    ("a.view(2, 8)", "a.reshape(2, 8)"),
    ("a.contiguous().view(2, 8)", "a.reshape(2, 8)"),
    ("torch.concat([a, b], dim=-1)", "torch.cat([a, b], dim=-1)"),
    ("a.float()", "a.to(torch.float32)"),
    ("a.to(torch.float)", "a.to(torch.float32)"),
    ("torch.split(a, 2, dim=-1)", "a.split(2, dim=-1)"),
    ("torch.sum(a, dim=1)", "a.sum(1)"),
    ("a.swapaxes(0, 1)", "a.transpose(1, 0)"),
    ("a.square()", "a.pow(2)"),
    ("a.masked_fill(a > b, 0)", "a.masked_fill(b < a, 0)"),
    ("a if a is not None else b", "b if a is None else a"),
    ("a / 2", "a * 0.5"),
    ("a * a", "a**2"),
    ("a.size(0)", "a.shape[0]"),
    ("a.type_as(b)", "a.to(b.dtype)"),
    ("a @ b.T", "torch.matmul(a, b.T)"),
    ("torch.softmax(a, dim=-1)", "a.softmax(-1)"),
    ("ends[1:] - ends[:-1]", "torch.diff(ends)"),
]
OTHER = [
    ("a.transpose(0, 1)", "a.reshape(4, 4)"),
    ("a.pow(3)", "a.pow(2)"),
    ("a.to(torch.float16)", "a.to(torch.float32)"),
    ("torch.sum(a, dim=0)", "a.sum(1)"),
    ("a.repeat(2, 1)", "a.repeat_interleave(2, 1)"),
    ("a / 3", "a * 3"),
    ("a[1:] - b[:-1]", "torch.diff(a)"),
    ("a[:-1] - a[1:]", "torch.diff(a)"),
    ("a if a is None else b", "b if a is None else a"),
    ("a.softmax(-1)", "a.sigmoid()"),
]


def _plain(text: str) -> str:
    return unparse_cached(normalize(ast.parse(text, mode="eval").body))


@pytest.mark.parametrize(("ours", "theirs"), SAME)
def test_the_same_in_other_words(ours: str, theirs: str) -> None:
    assert _plain(ours) == _plain(theirs)


@pytest.mark.parametrize(("ours", "theirs"), SAME)
def test_torch_says_so_too(ours: str, theirs: str) -> None:
    a, b = torch.arange(16.0).reshape(4, 4) - 7.0, torch.full((4, 4), 0.25)
    names = {"torch": torch, "a": a, "b": b, "ends": torch.tensor([0, 3, 4, 9])}
    one, other, spelt = (eval(text, dict(names)) for text in (ours, theirs, _plain(ours)))
    for left, right, third in zip(*(x if isinstance(x, tuple) else (x,) for x in (one, other, spelt)), strict=True):
        assert torch.equal(torch.as_tensor(left), torch.as_tensor(right))
        assert torch.equal(torch.as_tensor(left), torch.as_tensor(third))


@pytest.mark.parametrize(("ours", "theirs"), OTHER)
def test_what_only_looks_alike(ours: str, theirs: str) -> None:
    assert _plain(ours) != _plain(theirs)


def test_a_statement_stays_one() -> None:
    statement = ast.parse("x = a.view(2)").body[0]
    assert unparse_cached(normalize(statement)) == "x = a.reshape(2)"
    assert unparse_cached(statement) == "x = a.view(2)"  # and is left as it was


@pytest.mark.parametrize("text", ["x = a + b.c(1)", "if a: pass", "x = [one for one in a]"])
def test_what_has_one_spelling_is_shared(text: str) -> None:
    statement = ast.parse(text).body[0]
    assert normalize(statement) is statement


def test_equal_constants_of_other_types_are_other_code() -> None:
    one, whole, true = (ast.parse(f"f({text})").body[0] for text in ("1", "1.0", "True"))
    assert len({fingerprint(one), fingerprint(whole), fingerprint(true)}) == 3
    assert fingerprint(one) == fingerprint(ast.parse("f( 1 )").body[0])
