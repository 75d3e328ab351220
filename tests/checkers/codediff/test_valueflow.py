"""Which value goes where, whatever it is called."""

import ast
from textwrap import dedent

import pytest

from omni_checkers.codediff.valueflow import misplaced, rearranged, same_values

ROUTER = """
def forward(self, states):
    flat = states.reshape(-1, self.width)
    logits = F.linear(flat, self.weight)
    scores = self.score(logits)
    chosen = torch.topk(scores + self.bias, self.top_k, dim=-1).indices
    weights = scores.gather(1, chosen)
    return logits, weights * self.scale, chosen
"""
LOOP = """
def forward(self, states, mask):
    gate = self.gate(states)
    up = self.up(states)
    for layer in self.layers:
        states = layer(states, mask, gate)
    rows, columns = torch.where(mask)
    return self.act(gate) * up, states[rows], columns
"""


def function(text: str) -> ast.FunctionDef:
    node = ast.parse(dedent(text)).body[0]
    assert isinstance(node, ast.FunctionDef)
    return node


def found(original: str, copy: str) -> list[tuple[str, int]]:
    return [(one.what, one.line) for one in misplaced(function(copy), function(original))]


# Each an original, and a copy in other words in which one value goes into the place of another.
EXCHANGED = {
    "the biased scores are gathered": (
        ROUTER,
        """
        def forward(self, x):
            x = x.reshape(-1, self.width)
            out = torch.nn.functional.linear(x.float(), self.weight.float())
            s = self.score(out) + self.bias
            chosen = s.topk(self.top_k, dim=-1).indices
            return out, s.gather(1, chosen) * self.scale, chosen
        """.replace("self, x", "self, states").replace("x = x.resh", "x = states.resh"),
        "'s' goes into gather instead of 'scores'",
    ),
    "the scores are returned for the logits": (
        ROUTER,
        ROUTER.replace("scores", "s").replace("return logits", "return s"),
        "'s' is returned instead of 'logits'",
    ),
    "rows for columns": (LOOP, LOOP.replace("states[rows], columns", "states[columns], rows"), "instead of"),
    "what comes before a branch": (
        ROUTER,
        ROUTER.replace(
            "    weights = scores",
            "    if self.replay:\n        chosen = self.replay(chosen)\n    weights = (scores + self.bias)",
        ),
        "goes into gather",
    ),
}  # fmt: skip
ALIKE = {
    "the same": ROUTER,
    "other names": ROUTER.replace("logits", "a").replace("scores", "b").replace("chosen", "c").replace("flat", "d"),
    "casts": ROUTER.replace("self.weight)", "self.weight.float()).contiguous()"),
    "in one expression": """
        def forward(self, states):
            logits = F.linear(states.reshape(-1, self.width), self.weight)
            chosen = (self.score(logits) + self.bias).topk(self.top_k, dim=-1).indices
            return logits, self.score(logits).gather(1, chosen) * self.scale, chosen
        """,
    "another order": ROUTER.replace("scores + self.bias", "self.bias + scores"),
    "a replay": ROUTER.replace(
        "    weights =", "    if self.replay is not None:\n        chosen = self.replay(chosen)\n    weights ="
    ),
    "a kernel in between": ROUTER.replace(
        "    scores =", "    if self.kernel:\n        return self.kernel(flat)\n    scores ="
    ),
    "something anew": ROUTER.replace("self.score(logits)", "self.score(logits / self.temperature)"),
}


@pytest.mark.parametrize("name", EXCHANGED)
def test_a_value_in_the_place_of_another_is_told(name: str) -> None:
    original, copy, what = EXCHANGED[name]
    said = found(original, copy)
    assert said
    assert any(what in message for message, _ in said)


@pytest.mark.parametrize("name", ALIKE)
def test_the_same_in_other_words_is_quiet(name: str) -> None:
    assert found(ROUTER, ALIKE[name]) == []


def test_the_line_is_that_of_the_copy() -> None:
    said = found(LOOP, LOOP.replace("states[rows], columns", "states[columns], columns"))
    assert [line for _, line in said] == [8]


@pytest.mark.parametrize(
    "body",
    [
        "with a as b:\n        x = b(x)",
        "while x:\n        x -= 1",
        "x[0], self.y = x, 1",
        "(z := x).y = [a for a in z if a]",
        "try:\n        pass\n    finally:\n        x = {k: v for k, v in x}",
        "x = lambda *a: a\n    async_ = [*x]",
        "match x:\n        case 1:\n            pass",
        "def inner(): return x\n    return inner",
        "del x\n    return x",
    ],
)
def test_any_python_is_read(body: str) -> None:
    text = f"def forward(self, x, a):\n    {body}\n"
    try:
        ast.parse(text)
    except SyntaxError:
        pytest.skip("not of this version")
    assert found(text, text) == []


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


INDEXER = """
def forward(self, hidden_states, weights):
    scores = self.scores(hidden_states)
    scores = F.relu(scores)
    total = torch.einsum("bsht,bsh->bst", scores, weights)
    return self.out(total)
"""
STEPS = """\
    scores = F.relu(scores)
    total = torch.einsum("bsht,bsh->bst", scores, weights)
"""


def _reordered(lines: str, original: str = INDEXER) -> list[str]:
    copy = INDEXER.replace(STEPS, lines)
    return [what for what, _ in found(original, copy) if "in another order" in what]


@pytest.mark.parametrize(
    "lines",
    [
        '    total = F.relu(torch.einsum("bsht,bsh->bst", scores, weights))\n',
        '    total = torch.einsum("bsht,bsh->bst", scores, F.relu(weights))\n',
    ],
)
def test_another_order_of_steps_is_told(lines: str) -> None:
    assert len(_reordered(lines)) == 1
    assert len(_reordered(STEPS, INDEXER.replace(STEPS, lines))) == 1


@pytest.mark.parametrize(
    "lines",
    [
        STEPS,
        '    total = torch.einsum("bsht,bsh->bst", F.relu(scores), weights)\n',
        '    total = torch.einsum("bsht,bsh->bst", scores.relu(), weights)\n',
        '    active = F.relu(scores)\n    total = torch.einsum("bsht,bsh->bst", active, weights)\n',
        '    total = fused(F.relu(torch.einsum("bsht,bsh->bst", scores, weights)))\n',
        "    total = kernel(scores, weights)\n",
    ],
)
def test_the_same_steps_and_other_steps_are_not(lines: str) -> None:
    assert _reordered(lines) == []


def test_where_values_only_change_their_shape_nothing_is_said() -> None:
    original = INDEXER.replace(STEPS, "    scores = F.silu(scores)\n    total = scores.reshape(-1, weights.shape[0])\n")
    copy = INDEXER.replace(STEPS, "    total = F.silu(scores.reshape(-1, weights.shape[0]))\n")
    assert found(original, copy) == []
