"""Copies of a function, changed in one way each: what is a slip is told, what is meant is not."""

import ast
import textwrap

import pytest

from omni_checkers.codediff.align import ClonePair
from omni_checkers.codediff.changes import alterations, discarded, exchanged, left_out, recut

ORIGINAL = """
def forward(self, hidden_states, mask=None, scale=1.0, **kwargs):
    shape = hidden_states.shape
    query = self.q_proj(hidden_states).view(*shape[:-1], -1, self.head_dim).transpose(1, 2)
    key = self.k_proj(hidden_states).view(*shape[:-1], -1, self.head_dim).transpose(1, 2)
    rows, columns = mask.shape
    kind = self.kinds[rows]
    query = self.rotated(query, kind)
    weights = torch.matmul(query, key.transpose(2, 3)) * self.scaling
    if mask is not None and self.masked:
        weights = weights + mask[:, :, :, : key.shape[-2]]
    weights = weights.softmax(dim=-1, dtype=torch.float32).to(query.dtype)
    weights = self.dropout(weights)
    total = scale - weights.sum()
    answer = self.o_proj(weights, query, residual=hidden_states)
    return AttentionOutput(answer=answer, weights=weights, total=total)
"""
SLIPS = {
    "a number": ("transpose(1, 2)\n    key", "transpose(1, 3)\n    key"),
    "a negative number": ("dim=-1", "dim=1"),
    "an operator": ("* self.scaling", "/ self.scaling"),
    "a comparison": ("mask is not None", "mask is None"),
    "another attribute": ("torch.float32", "torch.float16"),
    "a name for another": ("self.k_proj(hidden_states)", "self.k_proj(mask)"),
    "a cast": (".to(query.dtype)", ""),
    "a factor": (" * self.scaling", ""),
    "a condition": ("mask is not None and self.masked", "mask is not None"),
    "an argument": (", residual=hidden_states", ""),
    "an argument by its place": ("self.o_proj(weights, query,", "self.o_proj(weights,"),
    "arguments exchanged": ("torch.matmul(query, key.transpose(2, 3))", "torch.matmul(key.transpose(2, 3), query)"),
    "sides exchanged": ("scale - weights.sum()", "weights.sum() - scale"),
    "a field": (", weights=weights", ""),
    "a field from elsewhere": ("answer=answer", "answer=query"),
    "an index": ("mask[:, :, :, : key.shape[-2]]", "mask"),
    "one module for another": ("self.k_proj", "self.q_proj"),
    "parts in another order": (
        "self.q_proj(hidden_states).view(*shape[:-1], -1, self.head_dim)",
        "self.head_dim(hidden_states).view(*shape[:-1], -1, self.q_proj)",
    ),
    "names that take other values": ("rows, columns = mask.shape", "columns, rows = mask.shape"),
    "a word for a name": ("self.rotated(query, kind)", "self.rotated(query, 'full')"),
}
MEANT = {
    "nothing": ("", ""),
    "a local name": ("key", "keys"),
    "sides that commute": (
        "torch.matmul(query, key.transpose(2, 3)) * self.scaling",
        "self.scaling * torch.matmul(query, key.transpose(2, 3))",
    ),
    "another argument": ("residual=hidden_states", "residual=hidden_states, gate=self.gate"),
    "a kernel": ("weights.softmax(dim=-1, dtype=torch.float32).to(query.dtype)", "fused_softmax(weights, query.dtype)"),
    "another field": ("total=total", "total=total, extra=self.extra"),
    "another output": ("AttentionOutput(", "AttentionOutputWithLogs("),
    "an annotation": ("    shape = hidden_states.shape", "    shape: torch.Size = hidden_states.shape"),
    "a statement more": ("    weights = self.dropout", "    gather(weights)\n    weights = self.dropout"),
    "a message": ("    shape =", "    logger.info('first')\n    shape ="),
    "two that are set in one": ("rows, columns = mask.shape", "rows, columns = mask.shape[0], mask.shape[1]"),
    "a number of another type": ("scale=1.0", "scale=1"),
    "another spelling": ("-1, self.head_dim).transpose(1, 2)", "-1, self.head_dim).swapaxes(2, 1)"),
    "a wrapper": ("self.k_proj(hidden_states)", "self.k_proj(gathered(hidden_states))"),
}


def function(text: str) -> ast.FunctionDef:
    """The function that a text holds."""
    node = ast.parse(textwrap.dedent(text)).body[0]
    assert isinstance(node, ast.FunctionDef)
    return node


def _copy(old: str, new: str) -> ClonePair:
    assert old in ORIGINAL
    return ClonePair(function(ORIGINAL.replace(old, new) if old else ORIGINAL), function(ORIGINAL))


@pytest.mark.parametrize("slip", SLIPS)
def test_a_slip_is_told_once(slip: str) -> None:
    found = list(alterations(_copy(*SLIPS[slip])))
    assert len(found) == 1
    assert len(found[0].edits) == 1


def test_what_is_named_only_to_be_returned() -> None:
    named = ORIGINAL.replace("    return AttentionOutput(", "    output = AttentionOutput(") + "    return output\n"
    assert list(alterations(ClonePair(function(named), function(ORIGINAL)))) == []
    slip = named.replace("weights=weights", "weights=query")
    assert len(list(alterations(ClonePair(function(slip), function(ORIGINAL))))) == 1


@pytest.mark.parametrize("meant", MEANT)
def test_what_is_meant_is_not(meant: str) -> None:
    copy = _copy(*MEANT[meant])
    assert list(alterations(copy)) == []
    assert list(left_out(copy)) == []


@pytest.mark.parametrize(
    "lines",
    [
        "    weights = self.dropout(weights)\n",
        "    if mask is not None and self.masked:\n        weights = weights + mask[:, :, :, : key.shape[-2]]\n",
    ],
)
def test_what_is_left_out_is_told(lines: str) -> None:
    copy = _copy(lines, "")
    (found,) = left_out(copy)
    assert found[0].text == ast.unparse(ast.parse(lines.strip().splitlines()[-1].strip()))
    assert list(alterations(copy)) == []


def test_what_was_written_anew_is_no_copy() -> None:
    ours = function("def forward(self, hidden_states):\n    weights = kernel(hidden_states)\n    return weights\n")
    copy = ClonePair(ours, function(ORIGINAL))
    assert copy.likeness == 0
    assert list(alterations(copy)) == []
    assert list(left_out(copy)) == []


def test_two_lines_the_other_way_round() -> None:
    first, second = "    weights = self.dropout(weights)\n", "    total = scale - weights.sum()\n"
    turned = _copy(f"{first}{second}", f"{second}{first}")
    assert [one.what.split("'")[1::2] for one in exchanged(turned)] == [[second.strip(), first.strip()]]
    free = "    total = scale - weights.sum()\n    answer = self.o_proj(weights, query, residual=hidden_states)\n"
    lines = free.splitlines(keepends=True)
    assert list(exchanged(_copy(free, "".join(reversed(lines))))) == []


def test_a_link_of_a_chain() -> None:
    without = ORIGINAL.replace("    weights = self.dropout(weights)\n", "").replace("if mask is not None", "if mask")
    copy = ClonePair(function(without), function(ORIGINAL))
    assert [line.text for line in copy.missing_updates()] == ["weights = self.dropout(weights)"]
    assert list(_copy("", "").missing_updates()) == []


def test_a_slip_in_a_line_that_stands_elsewhere() -> None:
    line = "    weights = torch.matmul(query, key.transpose(2, 3)) * self.scaling\n"
    moved = ORIGINAL.replace(line, "").replace(
        "    total =", f"    if self.late:\n    {line.replace('2, 3', '1, 2')}    gather(weights)\n    total ="
    )
    found = list(alterations(ClonePair(function(moved), function(ORIGINAL))))
    assert [one.there.text for one in found] == [line.strip()]


def _both(ours: str, theirs: str) -> ClonePair:
    made = (ast.parse(f"def cut(self, both, seen):\n    {body}\n    return both").body[0] for body in (ours, theirs))
    one, other = (node for node in made if isinstance(node, ast.FunctionDef))
    return ClonePair(one, other)


EVEN = "gate, up = both[..., ::2], both[..., 1::2]"


@pytest.mark.parametrize(
    ("ours", "theirs", "told"),
    [
        ("gate, up = both.chunk(2, dim=-1)", EVEN, True),
        (EVEN, "gate, up = both[..., :4], both[..., 4:]", True),
        ("gate, up = both[..., 0::2], both[..., 1::2]", EVEN, False),
        ("gate, up = both.unflatten(-1, (-1, 2)).unbind(-1)", EVEN, False),
        ("first, last = both.chunk(2, dim=-1)", EVEN, False),
    ],
)
def test_halves_are_no_even_elements(ours: str, theirs: str, told: bool) -> None:
    assert bool(list(recut(_both(ours, theirs)))) is told


@pytest.mark.parametrize(
    ("ours", "theirs", "told"),
    [
        ("self.replayed(both, seen)", "both = self.replayed(both, seen)", True),
        ("self.replayed(both)", "both = self.replayed(both, seen)", False),
        ("self.replayed(both, seen)", "self.replayed(both, seen)", False),
        ("self.replayed(both, seen); both = self.replayed(both, seen)", "both = self.replayed(both, seen)", False),
    ],
)
def test_what_a_call_gives_is_thrown_away(ours: str, theirs: str, told: bool) -> None:
    assert bool(list(discarded(_both(ours, theirs)))) is told
