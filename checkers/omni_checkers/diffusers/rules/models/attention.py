"""Rules about attention: DFU111 to DFU113."""

import ast
from collections.abc import Iterator

from omni_checkers.codediff.fingerprint import unpacks
from omni_checkers.diffusers.examples import LUMEN, TRANSFORMER, changed
from omni_checkers.diffusers.facts.processors import processors_of
from omni_checkers.engine.files import walked
from omni_checkers.engine.places import at
from omni_checkers.engine.rule import Finding, Findings, Rule
from omni_kit.pysource.classes import ClassRef
from omni_kit.pysource.nodes import calls, keyword, last_name, methods, names_in
from omni_kit.pysource.reads import attributes_set
from omni_kit.pysource.signatures import parameters
from omni_kit.pysource.source import SourceFile, dotted
from omni_kit.upstream.diffusers.package import package_root

_DISPATCH = "dispatch_attention_fn"
_DIRECT = frozenset({"scaled_dot_product_attention", "memory_efficient_attention", "flash_attn_func"}) | frozenset(
    {"flash_attn_varlen_func", "multi_head_attention_forward"}
)
_PASSED = {"backend": "_attention_backend", "parallel_config": "_parallel_config"}
_CALL = "dispatch_attention_fn(\n"
_BOTH = (
    "            backend=self._attention_backend,\n            parallel_config=self._parallel_config,\n"
)  # fmt: skip
_FIRST = "class LumenAttnProcessor:"
_OWN = """def memory_efficient_attention(query, key, value, backend=None, parallel_config=None):
    return dispatch_attention_fn(query, key, value, backend=backend, parallel_config=parallel_config)


"""


class AttentionIsDispatched(Rule):
    """Compute attention with `dispatch_attention_fn` only.

    A function of the file that does so, and receives the user's choice, is as good.

    The rule checks modules that compute attention themselves, and processors: all of them in a separate package; inside
    diffusers those of modules that use AttentionModuleMixin or that declare a backend. Other processors inside
    diffusers belong to the older `Attention` class.

    Why: other attention code ignores the user's backend and context parallelism without an error. With tokens split
    across devices, each device attends only to its own tokens.

    Fine when: the attention covers so few tokens that no backend speeds it up, or tokens that are never split.
    """

    id = "DFU111"
    name = "attention-is-dispatched"
    target = "diffusers"
    obligations = ("DIF-22",)
    BAD = (
        changed(TRANSFORMER, (_CALL, "nn.functional.scaled_dot_product_attention(\n"), (_BOTH, "")),
        changed(
            TRANSFORMER,
            ("hidden_states = dispatch_attention_fn(\n            query,\n            key,\n            value,\n"
             + _BOTH + "        )", "hidden_states = torch.softmax(query @ key.transpose(-2, -1), dim=-1) @ value"),
        ),
        changed(TRANSFORMER, (_CALL, "memory_efficient_attention(\n"), (_FIRST, _OWN + _FIRST), (_BOTH, "")),
    )  # fmt: skip
    GOOD = (
        {TRANSFORMER: LUMEN[TRANSFORMER]},
        changed(TRANSFORMER, (_CALL, "memory_efficient_attention(\n"), (_FIRST, _OWN + _FIRST)),
    )

    def check(self, classes: list[ClassRef], sources: list[SourceFile]) -> Findings:
        for cls in classes:
            if _judged(cls, classes):
                for function in methods(cls.node):
                    yield from _computed(cls.source, function)


def _judged(cls: ClassRef, classes: list[ClassRef]) -> bool:
    """Return whether a class computes attention of its own: a module, or a processor of modules that choose theirs."""
    if cls.derives("Module") or cls.assigned("_attention_backend") is not None:
        return True
    if package_root(cls.source.path) is None and cls.defines("__call__") is not None:
        return True
    return any(cls.node is one.node for module in classes for one in processors_of(module))


def _computed(source: SourceFile, function: ast.FunctionDef) -> Iterator[Finding]:
    for call in calls(function):
        name = source.origin(call.func).rpartition(".")[2]
        if name in _DIRECT and not _dispatches(source, call):
            yield at(source, call, f"{name} is called directly: {_DISPATCH} lets users choose")
        elif name == "softmax" and _weights(function, call):
            yield at(source, call, f"attention is computed with softmax: {_DISPATCH} lets users choose")


def _dispatches(source: SourceFile, call: ast.Call) -> bool:
    """Return whether a call gives what users choose to a function of the same file that dispatches."""
    own = next((one for one in source.tree.body if isinstance(one, ast.FunctionDef)
                and one.name == ast.unparse(call.func)), None)  # fmt: skip
    chosen = {one.arg for one in call.keywords} >= {*_PASSED}
    return chosen and own is not None and any(last_name(one.func) == _DISPATCH for one in calls(own))


def _weights(function: ast.FunctionDef, call: ast.Call) -> bool:
    """Return whether a softmax is taken of a product of tensors, and what it gives is multiplied with a third one."""
    made = _named(function, call)
    below = {id(node) for node in walked(call)}
    scores = any(_product(node) for node in walked(call)) or any(
        _product(node) for name in names_in(call) for value in _values(function, name) for node in walked(value)
    )
    applied = any(
        _product(node)
        and id(node) not in below
        and (id(call) in {id(one) for one in walked(node)} or made & names_in(node))
        for node in walked(function)
    )
    return scores and applied


def _product(node: ast.AST) -> bool:
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.MatMult)
    return isinstance(node, ast.Call) and last_name(node.func) in ("matmul", "bmm", "baddbmm", "einsum")


def _named(function: ast.FunctionDef, call: ast.Call) -> set[str]:
    """Return the variables that hold what a call gives, also after another step."""
    found: set[str] = set()
    for node in walked(function):
        if isinstance(node, ast.Assign):
            inner = {id(one) for one in walked(node.value)}
            if id(call) in inner or found & names_in(node.value):
                found |= {one.id for target in node.targets for one in walked(target) if isinstance(one, ast.Name)}
    return found


def _values(function: ast.FunctionDef, name: str) -> Iterator[ast.expr]:
    for node in walked(function):
        if isinstance(node, ast.Assign) and any(isinstance(one, ast.Name) and one.id == name for one in node.targets):
            yield node.value


class ProcessorsTakeBackends(Rule):
    """Declare `_attention_backend` and `_parallel_config` on a processor and pass both to `dispatch_attention_fn`.

    Why: `set_attention_backend` and `enable_parallelism` set these two attributes on every processor. diffusers skips a
    processor that lacks the attribute, and a value that is not passed on has no effect. Neither raises an error.

    Fine when: the attention covers tokens that are never split, such as the prompt; then pass `parallel_config=None`.
    """

    id = "DFU112"
    name = "processors-take-backends"
    target = "diffusers"
    obligations = ("DIF-24",)
    BAD = (
        changed(TRANSFORMER, ("            parallel_config=self._parallel_config,\n", "")),
        changed(TRANSFORMER, ("    _attention_backend = None\n", "")),
    )
    GOOD = ({TRANSFORMER: LUMEN[TRANSFORMER]},)

    def check(self, classes: list[ClassRef]) -> Findings:
        for cls in classes:
            found = [
                call
                for function in methods(cls.node)
                for call in calls(function)
                if cls.source.origin(call.func).rpartition(".")[2] == _DISPATCH and not unpacks(call)
            ]
            yield from (finding for call in found for finding in _not_passed(cls, call))
            if found and not cls.derives("Module"):
                for name in _PASSED.values():
                    if cls.assigned(name) is None and name not in attributes_set(cls.node):
                        yield at(cls.source, cls.node, f"{cls.node.name} does not declare {name}: nothing sets it")


def _not_passed(cls: ClassRef, call: ast.Call) -> Iterator[Finding]:
    for name, attribute in _PASSED.items():
        if keyword(call, name) is None:
            yield at(cls.source, call, f"{_DISPATCH} does not receive {name}={attribute}")


class AttentionNamesItsProcessors(Rule):
    """Name an attention module's processors, define them in the same file, and leave the computation to them.

    The module declares `_default_processor_cls` and lists it in `_available_processors`. `__init__` sets a processor,
    and `forward` only calls it.

    Why: without these names `set_processor`, fused projections and backend tests fail or test nothing. Another
    processor drops whatever `forward` itself computes.

    Fine when: the class is a base that subclasses complete.
    """

    id = "DFU113"
    name = "attention-names-its-processors"
    target = "diffusers"
    obligations = ("DIF-21", "DIF-23", "DIF-25")
    BAD = (
        changed(TRANSFORMER, ("    _default_processor_cls = LumenAttnProcessor\n", "")),
        changed(
            TRANSFORMER,
            ("return self.processor(self, hidden_states, rotary)", "return self.to_q(hidden_states) * rotary"),
        ),
    )
    GOOD = ({TRANSFORMER: LUMEN[TRANSFORMER]},)

    def check(self, attentions: list[ClassRef]) -> Findings:
        for cls in attentions:
            yield from _undeclared(cls)
            forward = cls.method("forward")
            if forward is not None and forward[0].node is cls.node and not _asks(forward[1]):
                yield at(cls.source, forward[1], f"forward of {cls.node.name} does not call self.processor only")


def _undeclared(cls: ClassRef) -> Iterator[Finding]:
    default, available = cls.assigned("_default_processor_cls"), cls.assigned("_available_processors")
    for name, found in (("_default_processor_cls", default), ("_available_processors", available)):
        if found is None or (isinstance(found[1], ast.Constant) or getattr(found[1], "elts", [0]) == []):
            yield at(cls.source, cls.node, f"{cls.node.name} does not declare {name}")
    for one in processors_of(cls):
        if one.source.path != cls.source.path and not any(
            isinstance(entry, ClassRef) and entry.source.path == one.source.path for entry in cls.mro
        ):
            message = f"the processor {one.node.name} of {cls.node.name} is defined in another file"
            yield at(cls.source, cls.node, message)
    if default is not None and available is not None and isinstance(available[1], (ast.List, ast.Tuple)):
        names = [last_name(item) for item in available[1].elts]
        if names and (name := last_name(default[1])) and name not in names:
            yield at(cls.source, cls.node, f"{name} is not in _available_processors of {cls.node.name}")


def _asks(forward: ast.FunctionDef) -> bool:
    """Return whether a processor is called with the module itself."""
    for call in calls(forward):
        held = dotted(call.func) or ""
        given = [*call.args[:1], *(word.value for word in call.keywords)]
        itself = any(dotted(one) == "self" for one in given)
        if itself and (held.startswith("self.") or held in _local(forward)):
            return True
        if held in ("super.forward",) or (
            isinstance(call.func, ast.Attribute) and last_name(call.func.value) == "super"
        ):
            return True
    return not parameters(forward)


def _local(forward: ast.FunctionDef) -> set[str]:
    return {
        target.id
        for node in walked(forward)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
