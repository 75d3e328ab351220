"""The same parts in another order: told where the order means something, and there alone."""

import ast

import pytest

from omni_checkers.symbolic.arrangement import rearranged, same_values


def _told(ours: str, theirs: str) -> bool:
    return rearranged(ast.parse(ours).body[0], ast.parse(theirs).body[0])


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("x = self.act(self.up(x)) * self.gate(x)", "x = self.act(self.gate(x)) * self.up(x)"),
        ("value, key = both.split([b, a])", "key, value = both.split([a, b])"),
        ("x = a / (b + c)", "x = (a + b) / c"),
        ("x = stack([a, c, b, d])", "x = stack([a, b, c, d])"),
    ],
)
def test_another_meaning(ours: str, theirs: str) -> None:
    assert _told(ours, theirs)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("x = b * (d + c) * a", "x = a * b * (c + d)"),
        ("x = f(b=2, a=1)", "x = f(a=1, b=2)"),
        ("b, a = y, x", "a, b = x, y"),
        ("x = 0 == n and m", "x = m and n == 0"),
        ("x = {'b': 1, 'a': 2}", "x = {'a': 2, 'b': 1}"),
        ("x = a.contiguous().view(2)", "x = a.view(2).contiguous()"),
        ("x = f(a, c)", "x = f(a, b)"),
    ],
)
def test_the_same_meaning_or_other_parts(ours: str, theirs: str) -> None:
    assert not _told(ours, theirs)


@pytest.mark.parametrize(
    ("ours", "theirs", "same"),
    [
        ("x = a.to('cpu') + b", "x = b + a.cpu()", True),
        ("x = b + a.clone()", "x = a.contiguous() + b", True),
        ("x = b - a.clone()", "x = a - b", False),
        ("x = f(ids, mask=mask, n=2)", "x = f(ids=ids, mask=mask, n=2)", True),
        ("x = f(ids, mask)", "x = f(mask=mask, ids=ids)", True),
        ("x = f(ids, mask)", "x = f(mask, ids)", False),
        ("x = f(ids=mask)", "x = f(ids=ids)", False),
        ("x = cat((a, b), dim=-2)", "x = cat((a, b), dim=1)", True),
        ("x = torch.cat((a, b), dim=-2)", "x = torch.cat([a, b], dim=1)", True),
        ("x = torch.cat([b, a], dim=1)", "x = torch.cat((a, b), dim=1)", False),
        ("x = a.softmax(dim=-1)", "x = a.softmax(dim=0)", False),
        ("x = a.softmax(dim=2)", "x = a.softmax(dim=1)", False),
        ("x = a.transpose(-1, 1)", "x = a.transpose(2, 1)", True),
        ("x = a[1]", "x = a[-1]", False),
        ("x = a.reshape(4, n * m, 1)", "x = a.reshape(4, -1, 1)", True),
        ("x = a.reshape(4, n, 1)", "x = a.reshape(4, m, 1)", False),
        ("x = a.reshape(4, -1)", "x = a.reshape(-1, 4)", False),
    ],
)
def test_copies_and_casts_keep_the_values(ours: str, theirs: str, same: bool) -> None:
    assert same_values(ast.parse(ours).body[0], ast.parse(theirs).body[0]) is same
