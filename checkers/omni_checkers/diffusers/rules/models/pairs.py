"""The rule about what queries, keys and values have in common: DFU114."""

import ast
import re
from collections.abc import Iterator
from functools import cache

from omni_checkers.codediff.fingerprint import unpacks
from omni_checkers.diffusers.examples import LUMEN, TRANSFORMER, changed
from omni_checkers.engine.files import walked
from omni_checkers.engine.places import at
from omni_checkers.engine.rule import Findings, Rule
from omni_kit.pysource.classes import ClassRef
from omni_kit.pysource.nodes import calls, last_name, methods

_LETTERS = {"query": "q", "key": "k", "value": "v", "q": "q", "k": "k", "v": "v"}
_KIND = re.compile(r"(^|_)(query|key|value|q|k|v)(_|$)")
_NORM, _ROTARY = re.compile(r"norm_(\w+_)?[qk]"), re.compile(r"rotary|rope")
_HELD = re.compile(r"(^|_)([qkv])$")
_KEY = "key = attn.to_k(hidden_states).unflatten(-1, (attn.heads, -1)) * rotary"
_VALUE = "value = attn.to_v(hidden_states).unflatten(-1, (attn.heads, -1))"


class QueriesAndKeysHaveTheirOwn(Rule):
    """Project queries, keys and values with their own layers, and join streams in one order.

    In `key = attn.norm_q(...)` the layer's last letter must match the result. Where a function joins text and image
    streams, queries, keys and values use the same order. A norm on queries needs one on keys, and rotary positions
    apply to both with the same arguments.

    Why: shapes agree, so nothing fails. The wrong norm has other weights, and keys in another order than values pair
    each token with the value of another token.

    Fine when: queries and keys share the layer on purpose.
    """

    id = "DFU114"
    name = "queries-and-keys-have-their-own"
    target = "diffusers"
    failure_modes = ("conversion-script-permutation",)
    BAD = (
        changed(TRANSFORMER, (_KEY, _KEY + "\n        key = attn.norm_q(key)")),
        changed(TRANSFORMER, (_KEY, _KEY.replace("to_k", "to_q"))),
        changed(TRANSFORMER, (_VALUE, _VALUE + "\n        key = torch.cat([text_key, key], dim=1)"
                                               "\n        value = torch.cat([value, text_value], dim=1)")),
    )  # fmt: skip
    GOOD = (
        {TRANSFORMER: LUMEN[TRANSFORMER]},
        changed(TRANSFORMER, (_KEY, _KEY + "\n        query, key = attn.norm_q(query), attn.norm_k(key)")),
    )

    def check(self, classes: list[ClassRef]) -> Findings:
        for cls in classes:
            for function in methods(cls.node):
                if len(_letters(function)) < 2:
                    continue
                for node, what in (*_others(function), *_joined(function), *_alone(function), *_unlike(function)):
                    yield at(cls.source, node, what)


def _others(function: ast.FunctionDef) -> Iterator[tuple[ast.AST, str]]:
    for node in walked(function):
        if not isinstance(node, ast.Assign) or len(node.targets) != 1 or not isinstance(node.targets[0], ast.Name):
            continue
        letter = _letter(node.targets[0].id)
        for call in calls(node.value) if letter else ():
            held = _HELD.search(call.func.attr) if isinstance(call.func, ast.Attribute) else None
            if held is not None and held[2] != letter:
                yield call, f"{node.targets[0].id} comes from {last_name(call)}, the layer of another projection"


def _alone(function: ast.FunctionDef) -> Iterator[tuple[ast.AST, str]]:
    """Queries that are normalised where keys are not, and the other way round."""
    named = {one.attr for one in walked(function) if isinstance(one, ast.Attribute)}
    norms = {one for one in named if _NORM.fullmatch(one) and not _lone(one)}
    for call in calls(function) if norms and _letters(function) >= {"q", "k"} else ():
        part = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        other = {"q": "k", "k": "q"}.get(part[-1:], "") if part in norms else ""
        if other and f"{part[:-1]}{other}" not in named:
            yield call, f"{part} is called, but {part[:-1]}{other} is not"


def _lone(part: str) -> bool:
    """Return keys of a text that has no queries of its own: a cross attention's."""
    return "added" in part or "cross" in part


def _letters(function: ast.FunctionDef) -> set[str]:
    """Of which of the three there are variables."""
    names = {one.id for one in walked(function) if isinstance(one, ast.Name)}
    return {letter for name in names if (letter := _letter(name))}


def _unlike(function: ast.FunctionDef) -> Iterator[tuple[ast.AST, str]]:
    """Rotary positions that are applied to queries in one way, and to keys of the same name in another."""
    first: dict[tuple[str, str], tuple[int, str]] = {}
    for call in sorted(calls(function), key=lambda one: one.lineno):
        name = last_name(call)
        letter = _letter(last_name(call.args[0])) if call.args and _ROTARY.search(name) else ""
        if letter not in ("q", "k"):
            continue
        stream = _KIND.sub("_", last_name(call.args[0])).strip("_")
        count = len(call.args) + len(call.keywords)
        told, other = first.setdefault((name, stream), (count, letter))
        if told != count and other != letter and not unpacks(call):
            yield call, f"{name} has other arguments for keys than for queries"


@cache
def _letter(name: str) -> str:
    found = {_LETTERS[one[1]] for one in _KIND.findall(name)}
    return found.pop() if len(found) == 1 else ""


def _joined(function: ast.FunctionDef) -> Iterator[tuple[ast.AST, str]]:
    orders: dict[frozenset[str], tuple[str, list[str]]] = {}
    for node in sorted((one for one in walked(function) if isinstance(one, ast.Assign)), key=lambda one: one.lineno):
        call = node.value
        if not isinstance(call, ast.Call) or last_name(call) not in ("cat", "concat") or not call.args:
            continue
        names = [last_name(one) for one in getattr(call.args[0], "elts", [])]
        letters = {_letter(name) for name in names}
        if len(names) != 2 or len(letters) != 1 or "" in letters:
            continue
        streams = [_KIND.sub("_", name).strip("_") for name in names]
        said, first = orders.setdefault(frozenset(streams), (ast.unparse(node.targets[0]), streams))
        if streams != first and len({*streams}) == 2:
            yield call, f"joined in another order than {said}"
