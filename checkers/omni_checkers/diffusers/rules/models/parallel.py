"""The rule about tensors that are sharded with the tokens: DFU124."""

import ast

from omni_checkers.diffusers.examples import LUMEN, TRANSFORMER, changed
from omni_checkers.diffusers.facts.building import held
from omni_checkers.engine.files import walked
from omni_checkers.engine.places import at
from omni_checkers.engine.rule import Findings, Rule
from omni_kit.pysource.classes import ClassRef
from omni_kit.pysource.nodes import calls, last_name, methods
from omni_kit.pysource.signatures import parameters
from omni_kit.pysource.source import dotted

_ROPE = '        "rope": {0: ContextParallelInput(split_dim=1, expected_dims=4, split_output=True)},\n'
_ABOUT = frozenset({"shape", "device", "dtype", "ndim"})
_OF_TIME = frozenset({"get_timestep_embedding"})
_WAVES = frozenset({"cos", "sin", "polar"})


class PositionsAreSharedOut(Rule):
    """Add the positions of tokens to the context-parallel plan together with the tokens.

    Positions are the output of a module that computes cosines and sines in `forward` and that every block receives. The
    plan names this module, its input, or the blocks' argument. With several such modules, for example for images and
    audio, one entry is enough: the rule does not infer which tokens each belongs to.

    Why: each device has a part of the tokens but all positions. Shapes do not fit, or broadcasting gives every device
    the positions of the first tokens.

    Fine when: the blocks slice the positions themselves.
    """

    id = "DFU124"
    name = "positions-are-shared-out"
    target = "diffusers"
    obligations = ("DIF-38",)
    failure_modes = ("diffusers-capability-flags",)
    BAD = (changed(TRANSFORMER, (_ROPE, "")),)
    GOOD = ({TRANSFORMER: LUMEN[TRANSFORMER]},)

    def check(self, models: list[ClassRef]) -> Findings:
        for cls in models:
            plan, forward = cls.assigned("_cp_plan"), cls.defines("forward")
            if plan is None or plan[0].node is not cls.node or not isinstance(plan[1], ast.Dict) or forward is None:
                continue
            made = {
                name: call
                for name, call in _made(forward).items()
                if _given_to_blocks(forward, name) and _waves(held(cls, last_name(call.func)))
            }
            if not any(_shared(cls, forward, name, call, plan[1]) for name, call in made.items()):
                for module in dict.fromkeys(last_name(call.func) for call in made.values()):
                    yield at(cls.source, plan[1], f"the plan splits tokens, but not the output of self.{module}")


def _shared(cls: ClassRef, forward: ast.FunctionDef, name: str, call: ast.Call, plan: ast.Dict) -> bool:
    """Return whether a plan names a module, what its output is made from, or the argument that blocks take it as."""
    modules, arguments, own = _planned(plan)
    return bool(
        last_name(call.func) in modules or _sources(forward, call) & own or _taken_as(cls, forward, name) & arguments
    )


def _planned(plan: ast.Dict) -> tuple[set[str], set[str], set[str]]:
    """Return the names in a plan: modules whose whole output it shards; arguments of blocks; the model's own."""
    modules, arguments, own = set[str](), set[str](), set[str]()
    for key, value in zip(plan.keys, plan.values, strict=True):
        path = getattr(key, "value", None)
        names = {getattr(one, "value", None) for one in getattr(value, "keys", [])}
        if path == "":
            own |= {name for name in names if isinstance(name, str)}
        elif isinstance(path, str):
            arguments |= {name for name in names if isinstance(name, str)}
            modules.add(path.partition(".")[0])
    return modules, arguments, own


def _made(forward: ast.FunctionDef) -> dict[str, ast.Call]:
    """Return variables that hold what a module of the model gives."""
    found = {}
    for node in walked(forward):
        if isinstance(node, ast.Assign):
            for call in (one for one in walked(node.value) if isinstance(one, ast.Call)):
                if (dotted(call.func) or "").startswith("self.") and (dotted(call.func) or "").count(".") == 1:
                    found.update({one.id: call for target in node.targets for one in _names(target)})
    return found


def _names(node: ast.AST) -> list[ast.Name]:
    return [one for one in walked(node) if isinstance(one, ast.Name)]


def _sources(forward: ast.FunctionDef, call: ast.Call) -> set[str]:
    """Return the variables that the arguments of a call are made from."""
    todo = {name for given in [*call.args, *(word.value for word in call.keywords)] for name in _contents(given)}
    seen, given_from_outside = set[str](), set(parameters(forward))
    while todo:
        name = todo.pop()
        seen.add(name)
        for node in walked(forward) if name not in given_from_outside else ():
            if isinstance(node, ast.Assign) and name in {one.id for target in node.targets for one in _names(target)}:
                todo |= _contents(node.value) - seen
    return seen - {"self"}


def _contents(node: ast.AST) -> set[str]:
    """Return the variables whose contents an expression takes, and not only their shape or device."""
    about = {id(one.value) for one in walked(node) if isinstance(one, ast.Attribute) and one.attr in _ABOUT}
    return {one.id for one in _names(node) if id(one) not in about}


def _block_calls(forward: ast.FunctionDef) -> list[ast.Call]:
    """The calls of blocks in loops over them."""
    return [
        node
        for loop in walked(forward)
        if isinstance(loop, ast.For)
        for node in walked(loop)
        if isinstance(node, ast.Call) and {one.id for one in _names(loop.target)} & {one.id for one in _names(node)}
    ]


def _given_to_blocks(forward: ast.FunctionDef, name: str) -> bool:
    return any(name in {one.id for one in _names(call)} for call in _block_calls(forward))


def _taken_as(cls: ClassRef, forward: ast.FunctionDef, name: str) -> set[str]:
    """Return the arguments of blocks that a variable is given as."""
    found = {name}
    for call in _block_calls(forward):
        found |= {word.arg for word in call.keywords if word.arg and name in {one.id for one in _names(word.value)}}
        places = [place for place, given in enumerate(call.args) if name in {one.id for one in _names(given)}]
        for loop in (node for node in walked(forward) if isinstance(node, ast.For)):
            attributes = [last_name(node) for node in walked(loop.iter) if isinstance(node, ast.Attribute)]
            block = held(cls, attributes[0]) if attributes else None
            taken = block.method("forward") if block is not None else None
            names = parameters(taken[1]) if taken is not None else []
            found |= {names[here] for place in places if 0 <= (here := place - _handed(call, loop)) < len(names)}
    return found


def _handed(call: ast.Call, loop: ast.For) -> int:
    """Return by how many places a block's arguments are shifted: one if the block itself is passed."""
    return int(bool(call.args) and dotted(call.args[0]) in {one.id for one in _names(loop.target)})


def _waves(module: ClassRef | None) -> bool:
    """Return whether a module computes cosines and sines, itself or by a function that it calls."""
    own = methods(module.node) if module is not None else []
    named = {dotted(call.func) or "" for function in own for call in calls(function)}
    found = (module.source.resolve_function(name) for name in named) if module is not None else ()
    every = [*own, *(one[1] for one in found if one is not None and one[1].name not in _OF_TIME)]
    return any(last_name(call.func) in _WAVES for function in every for call in calls(function))
