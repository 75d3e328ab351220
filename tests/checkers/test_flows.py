"""Which value goes where, whatever it is called."""

import ast
from textwrap import dedent

import pytest

from omni_checkers.symbolic.flows import exchanges

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
    return [(one.what, one.ours.line) for one in exchanges(function(copy), function(original))]


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
        "'s' goes into gather in the place of 'scores'",
    ),
    "the scores are returned for the logits": (
        ROUTER,
        ROUTER.replace("scores", "s").replace("return logits", "return s"),
        "'s' is returned in the place of 'logits'",
    ),
    "rows for columns": (LOOP, LOOP.replace("states[rows], columns", "states[columns], rows"), "in the place of"),
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
