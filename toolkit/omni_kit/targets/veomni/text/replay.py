"""Places where a model chooses experts for its tokens, and the calls that VeOmni needs there.

VeOmni's monitor counts how often each expert is chosen, and reinforcement learning replays the choice of an earlier
pass. Both need a call after the choice; what follows upstream's `topk` makes the weights of the chosen experts.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from omni_kit.pysource.nodes import calls, last_name, within
from omni_kit.pysource.source import SourceFile, dotted, parse_file

REPLAY, MONITOR = "veomni.utils.moe_router_replay", "veomni.utils.moe_monitor"
REPLAYING, RECORDING = ("get_active_replay", "maybe_replay_indices"), "record_router_indices"
_TOPK = "topk"
_LAST = (-1, 1)  # the dimension of experts, of [tokens, experts]


@dataclass(frozen=True)
class Choice:
    """One statement that chooses experts.

    Attributes:
        scores: what the largest are taken of, as text.
        indices: the variable that then holds the chosen experts.
        values: the variable that holds their scores; empty if these are not used.
    """

    statement: ast.Assign
    scores: str
    indices: str
    values: str

    @property
    def overwrites(self) -> bool:
        """Return whether the variable of all scores holds those of the chosen ones afterwards."""
        return self.values == self.scores


def choices(function: ast.FunctionDef) -> list[Choice]:
    """Return the statements of a function that choose experts: its last `topk`, and others with the same variable.

    Earlier ones choose groups. None if what follows could not be told from the variables.
    """
    found = [choice for node in within(function, ast.Assign) if (choice := _choice(node)) is not None]
    last = max(found, key=lambda one: one.statement.lineno, default=None)
    same = [one for one in found if last is not None and one.indices == last.indices]
    return same if all(not one.values or one.scores.isidentifier() for one in same) else []


def _choice(node: ast.Assign) -> Choice | None:
    target, value, values, indices = node.targets[0], node.value, "", ""
    if isinstance(target, ast.Tuple) and len(target.elts) == 2:
        values, indices = (one.id if isinstance(one, ast.Name) else "" for one in target.elts)
    elif isinstance(target, ast.Name):
        second = isinstance(value, ast.Subscript) and isinstance(value.slice, ast.Constant) and value.slice.value == 1
        if second or (isinstance(value, ast.Attribute) and value.attr == "indices"):
            assert isinstance(value, ast.Subscript | ast.Attribute)
            value, indices = value.value, target.id
    if not indices or not isinstance(value, ast.Call) or last_name(value.func) != _TOPK or not _over_experts(value):
        return None
    assert isinstance(value.func, ast.Attribute | ast.Name)
    own = isinstance(value.func, ast.Attribute) and dotted(value.func) != f"torch.{_TOPK}"
    scores = value.func.value if own and isinstance(value.func, ast.Attribute) else next(iter(value.args), None)
    return Choice(node, ast.unparse(scores), indices, "" if values == "_" else values) if scores is not None else None


def _over_experts(call: ast.Call) -> bool:
    named = [keyword.value for keyword in call.keywords if keyword.arg == "dim"]
    given = [ast.unparse(one) for one in named]
    return not given or given[0] in map(str, _LAST)


def called_after(choice: Choice, router: str, *, records: bool) -> str:
    """Return the lines after a choice, with `router` as the module that VeOmni knows the layer by."""
    scores = "router_scores_of_all" if choice.overwrites else choice.scores
    lines = [
        "# Modification: VeOmni may replay an earlier choice of experts, and counts how often each is chosen.",
        f"if {REPLAYING[0]}() is not None:",
        f"    {choice.indices} = {REPLAYING[1]}({router}, {scores}, {choice.indices})",
    ]
    lines += [f"    {choice.values} = {scores}.gather(-1, {choice.indices})"] if choice.values else []
    lines += [f"{RECORDING}({router}, {choice.indices})"] if records else []
    return "\n".join(lines)


def called_before(choice: Choice) -> str:
    """Return the line before a choice that keeps the scores of all experts; empty if they stay."""
    return f"router_scores_of_all = {choice.scores}" if choice.overwrites else ""


def is_installed() -> bool:
    """Return whether there is a VeOmni whose functions can be read."""
    return find_spec(REPLAY.partition(".")[0]) is not None


@cache
def known_features() -> dict[str, frozenset[str]]:
    """Module of the installed VeOmni -> the functions that it has for routers, of those that are called here."""
    found: dict[str, frozenset[str]] = {}
    for module, wanted in ((REPLAY, REPLAYING), (MONITOR, (RECORDING,))):
        tree = _tree(module)
        there = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)} if tree is not None else set()
        if there.issuperset(wanted):
            found[module] = frozenset(wanted)
    return found


@cache
def watched_routers() -> frozenset[str]:
    """Return the router classes whose results VeOmni's monitor reads by itself."""
    tree = _tree(MONITOR)
    decorators = [one for node in within(tree, ast.FunctionDef) for one in node.decorator_list] if tree else []
    made = [
        one for one in decorators if isinstance(one, ast.Call) and last_name(one.func) == "register_router_extractor"
    ]
    return frozenset(str(one.args[0].value) for one in made if one.args and isinstance(one.args[0], ast.Constant))


def _tree(module: str) -> ast.Module | None:
    package = find_spec(module.partition(".")[0])
    for place in (package.submodule_search_locations or ()) if package is not None else ():
        file = Path(place).joinpath(*module.split(".")[1:]).with_suffix(".py")
        if file.is_file():
            return parse_file(file)[1]
    return None


def routing_methods(source: SourceFile, owners: list[str]) -> Iterator[tuple[str, ast.FunctionDef]]:
    """Class and method of the first of these classes whose code chooses experts."""
    for owner in owners:
        node = source.classes.get(owner)
        for item in node.body if node is not None else ():
            if isinstance(item, ast.FunctionDef) and any(True for _ in calls(item, _TOPK)) and choices(item):
                yield owner, item
                return
