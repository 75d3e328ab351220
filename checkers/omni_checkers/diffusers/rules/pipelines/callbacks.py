"""The rule about the tensors of a pipeline's callbacks: DFU216."""

import ast

from omni_checkers.diffusers.examples import LUMEN, PIPELINE, changed
from omni_checkers.diffusers.facts.pipelines import call_of
from omni_checkers.engine.files import walked
from omni_checkers.engine.places import at
from omni_checkers.engine.rule import Findings, Rule
from omni_kit.pysource.classes import ClassRef
from omni_kit.pysource.nodes import calls, last_name
from omni_kit.pysource.source import dotted

_CALLBACK = "callback"
_ABOUT = ("_inputs", "_steps")  # how what is said about a callback ends
_LOOKS = ("isinstance", "callable", "hasattr", "getattr", "deprecate", "len", "type", "bool")
_CALLED = "changed = callback_on_step_end(self, i, t, given)"


class CallbacksAreCalled(Rule):
    """Call every callback that `__call__` accepts, or pass it to code that calls it.

    A check of its type or of tensor names does not count as a call. DFU215 reports a callback that nothing reads.

    Why: the user's callback never runs, although the documentation promises it.

    Fine when: the parameter exists for old callers and the pipeline warns them.
    """

    id = "DFU216"
    name = "callbacks-are-called"
    target = "diffusers"
    obligations = ("DIF-17",)
    failure_modes = ("diffusers-capability-flags",)
    BAD = (changed(PIPELINE, (_CALLED, "changed = given")),)
    GOOD = ({PIPELINE: LUMEN[PIPELINE]},)

    def check(self, pipelines: list[ClassRef]) -> Findings:
        for cls in pipelines:
            call = call_of(cls)
            for node in [*call.args.args, *call.args.kwonlyargs] if call is not None else ():
                is_one = node.arg.startswith(_CALLBACK) and not node.arg.endswith(_ABOUT)
                if call is not None and is_one and _read(call, node.arg) and not _reached(call, node.arg):
                    yield at(cls.source, node, f"'{node.arg}' of {cls.node.name}.__call__ is never called")


def _read(call: ast.FunctionDef, name: str) -> bool:
    return any(isinstance(node, ast.Name) and node.id == name for node in walked(call))


def _reached(call: ast.FunctionDef, name: str) -> bool:
    """Return whether something is called, or passed to a function that does more than look at it."""
    other = {name, *_aliases(call, name)}
    for one in calls(call):
        if dotted(one.func) in other:
            return True
        given = [*one.args, *(word.value for word in one.keywords)]
        looks = last_name(one) in _LOOKS or last_name(one).startswith("check")
        if not looks and any(isinstance(value, ast.Name) and value.id in other for value in given):
            return True
    return False


def _aliases(call: ast.FunctionDef, name: str) -> set[str]:
    """Return the aliases of a callback: a variable, or an attribute of the pipeline."""
    assigned = (node for node in walked(call) if isinstance(node, ast.Assign) and dotted(node.value) == name)
    return {held for node in assigned for target in node.targets if (held := dotted(target))}
