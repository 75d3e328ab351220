"""Queries, keys and values with heads among the samples get an axis for heads, which the library's dispatch needs."""

import ast
import re

from omni_kit.upstream.repositories.attention import SDPA

HEADED = re.compile(
    r"transpose\(1, 2\)|permute\(2, 0, 3, 1, 4\)|permute\(0, 2, 1, 3\)|->\s*(\w+ )?b\w* (h|heads?|nh) \w+ \w+['\"]"
)
"""Ways in which queries get heads in front of tokens: only then are the axes those that the kernel takes."""
TOGETHER = re.compile(r"(reshape|view)\(\(?\w+ \* \w+,|flatten\(0, 1\)|\(b\w* (h|heads?|nh)\)")
"""Ways in which heads are put among the samples of a batch, where kernels take one axis less."""
_TENSORS = ("query", "key", "value")
_MASK, _MASKED = "attn_mask", 3  # by name, and by place


def with_axis_of_heads(function: ast.FunctionDef) -> bool:
    """Rewrite the calls of torch's kernel for tensors with three axes; return whether there was one.

    A mask has the axes of queries and keys, with or without that of samples in front.
    """
    before, called, _ = ast.unparse(function).partition(SDPA)
    last, headed = (max((one.start() for one in form.finditer(before)), default=-1) for form in (TOGETHER, HEADED))
    if not called or last <= headed:
        return False
    added = _Added()
    added.visit(function)
    ast.fix_missing_locations(function)
    return added.done


def then(node: ast.expr, method: str) -> ast.expr:
    """Return the call of a method of a tensor."""
    return ast.parse(f"({ast.unparse(node)}).{method}", mode="eval").body


class _Added(ast.NodeTransformer):
    """The axis, in calls of the kernel."""

    done = False

    def visit_Call(self, node: ast.Call) -> ast.expr:
        """Return the call with the axis, which its result loses."""
        self.generic_visit(node)
        if getattr(node.func, "attr", getattr(node.func, "id", "")) != SDPA:
            return node
        self.done = True
        node.args = [self._added(one, at == _MASKED) if at <= _MASKED else one for at, one in enumerate(node.args)]
        for word in node.keywords:
            if word.arg in (*_TENSORS, _MASK):
                word.value = self._added(word.value, word.arg == _MASK)
        return then(node, "squeeze(1)")

    def _added(self, node: ast.expr, mask: bool) -> ast.expr:
        if not mask:
            return then(node, "unsqueeze(1)")
        if isinstance(node, ast.Constant):
            return node
        text = ast.unparse(node)
        return ast.parse(f"None if {text} is None else ({text}).unsqueeze(-3)", mode="eval").body
