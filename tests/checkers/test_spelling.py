"""What can be written in several ways is one thing; what only looks alike is not."""

import ast

import pytest
import torch

from omni_checkers.symbolic.lines import said
from omni_checkers.symbolic.spelling import plain

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
    return said(plain(ast.parse(text, mode="eval").body))


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
    assert said(plain(statement)) == "x = a.reshape(2)"
    assert said(statement) == "x = a.view(2)"  # and is left as it was


def test_the_head_of_a_loop_is_read_as_its_text_is() -> None:
    (loop,) = ast.parse("for place, (one, *rest) in enumerate(pairs): pass").body
    assert isinstance(loop, ast.For)
    head = ast.Tuple([loop.target, loop.iter], ast.Load())
    wanted = ast.parse(said(head), mode="eval").body
    assert ast.dump(plain(head)) == ast.dump(wanted)
    assert isinstance(loop.target, ast.Tuple)
    assert isinstance(loop.target.ctx, ast.Store)  # and the loop is left as it was
