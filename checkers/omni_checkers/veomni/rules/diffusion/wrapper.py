"""The rule about how the wrapper over diffusers' class is built: VEO624."""

import ast
from collections.abc import Iterator
from pathlib import Path

from omni_checkers.engine.files import walked
from omni_checkers.engine.rule import Finding, Findings, NotApplicable, Rule, Severity
from omni_checkers.symbolic import Class, Value
from omni_checkers.veomni.examples_diffusion import INIT, MODEL, MODELING, PROPERTY
from omni_checkers.veomni.facts.diffusion import Diffusion
from omni_checkers.veomni.facts.diffusion.sides import Method, is_symbol
from omni_kit.pysource.classes import ClassRef
from omni_kit.pysource.nodes import calls, line_of
from omni_kit.pysource.source import dotted
from omni_kit.upstream.diffusers.signatures import arguments
from omni_kit.upstream.kinds import Kind

_DELETE = "        del self._internal_dict\n"
_LAST = "        self.config = config\n"


class BuiltOnceInOrder(Rule):
    """Derive the wrapper from PreTrainedModel, then diffusers' class, and build diffusers' class once.

    Its `config` is a property with a setter over `_internal_dict`. The constructor calls PreTrainedModel's, deletes
    `_internal_dict`, calls diffusers' with the result of `to_diffuser_dict`, and then sets `self.config`. A class
    between the two keeps PreTrainedModel's constructor from building diffusers' default model.

    Why: another order builds the modules twice, or leaves diffusers' frozen dict as the config, which has no
    `model_type`. Without the setter or the deletion the constructor raises. Without the class in between it first
    builds a model of the default size, 14 billion parameters for Wan.

    Fine when: the wrapper stores the model as an attribute, or it is not a diffusers class; the rule then does not
    apply.
    """

    id = "VEO624"
    name = "wrapper-is-built-once-and-in-order"
    target = "veomni"
    kinds = frozenset({Kind.dit})
    obligations = ("DIT-12", "DIT-13", "DIT-14")
    failure_modes = ("meta-init-lost",)
    example_of = "wan_t2v"
    BAD = (
        {MODEL: MODELING.replace("(PreTrainedModel, _InitShim)", "(PreTrainedModel, _WanTransformer3DModel)")},
        {MODEL: MODELING.replace(INIT, INIT.replace(_DELETE, ""))},
        {MODEL: MODELING.replace(PROPERTY, "")},
    )
    GOOD = ({MODEL: MODELING},)

    def check(self, diffusion: Diffusion) -> Findings:
        upstream, side = diffusion.upstream, diffusion.transformer
        if upstream is None or side is None or side.model is None:
            raise NotApplicable("no wrapper derives from a class of diffusers that can be read")
        model = side.model
        line = list(diffusion.lineage(model))
        place = model.module.path, model.node.lineno
        first = next((n for n, one in enumerate(line) if is_symbol(one, "PreTrainedModel")), None)
        second = next(n for n, one in enumerate(line) if is_symbol(one, upstream.node.name))
        if first is None:
            if not diffusion.inherits_unseen(model):
                yield Finding(f"{model.name} is not a PreTrainedModel: VeOmni's loader cannot build it", *place)
            return
        if second < first:
            yield Finding(f"{model.name} has {upstream.node.name} before PreTrainedModel", *place)
        elif not any(_stops(one, upstream.node.name) for one in line[first + 1 : second]):
            message = f"PreTrainedModel's constructor builds {upstream.node.name} with its defaults first"
            yield Finding(message, *place, severity=Severity.warning)
        yield from _property(diffusion, model, place)
        init = diffusion.method(model, "__init__")
        if init is not None and init.owner == model:
            yield from _constructor(init, upstream)


def _stops(value: Value, upstream: str) -> bool:
    """Return whether a class of the directory has a constructor that does not continue to diffusers'."""
    if not isinstance(value, Class):
        return False
    init = next((item for item in value.node.body if getattr(item, "name", "") == "__init__"), None)
    texts = [ast.unparse(call.func) for call in calls(init, "__init__")] if init is not None else ["super"]
    own = {upstream, f"_{upstream}", *(dotted(base) or "" for base in value.node.bases)}
    return not any(text.startswith("super") or text.removesuffix(".__init__") in own for text in texts)


def _property(diffusion: Diffusion, model: Class, place: tuple[Path, int]) -> Iterator[Finding]:
    getter = diffusion.attribute(model, "config")
    setters = [
        item
        for one in diffusion.lineage(model)
        if isinstance(one, Class)
        for item in one.node.body
        if isinstance(item, ast.FunctionDef) and item.name == "config"
        if any(isinstance(mark, ast.Attribute) and mark.attr == "setter" for mark in item.decorator_list)
    ]
    made = any(isinstance(node, ast.Call) and dotted(node.func) == "property" for node in walked(model.node))
    if not setters and not made and not diffusion.inherits_unseen(model):
        what = "has no setter" if getter is not None else "is diffusers' property, which has no setter"
        yield Finding(f"{model.name}.config {what}: PreTrainedModel's constructor cannot store it", *place)


def _constructor(init: Method, upstream: ClassRef) -> Iterator[Finding]:
    """Yield the order of what the constructor does."""
    here = init.path, init.node.lineno
    builds = [call for call in calls(init.node, "__init__") if _of(init, call, upstream.node.name)]
    begins = [call for call in calls(init.node, "__init__") if _begins(init, call)]
    stored = [node for node in walked(init.node) if _stores(node, "config")]
    if not builds:
        if begins and not init.file.text.count(f"{upstream.node.name}.__init__"):
            yield Finding(f"{upstream.node.name}'s constructor is never called: the model has no weights", *here)
        return
    build = builds[0]
    if begins and begins[0].lineno > build.lineno:
        yield Finding("PreTrainedModel's constructor runs after diffusers' and discards its modules", *here)
    elif begins and not any(_deletes(node) and line_of(node) < build.lineno for node in walked(init.node)):
        message = "_internal_dict still contains the config when diffusers' constructor stores its own there"
        yield Finding(message, init.path, build.lineno)
    if not any(line_of(node) > build.lineno for node in stored) and not _left_to_others(init, build):
        yield Finding("self.config is not set after diffusers' constructor, which stores a dict there", *here)
    names = {keyword.arg for keyword in build.keywords if keyword.arg}
    if strange := sorted(names - set(arguments(upstream))):
        yield Finding(f"{upstream.node.name} takes no '{strange[0]}'", init.path, build.lineno)


def _left_to_others(init: Method, build: ast.Call) -> bool:
    """Return whether a method that stores the config, or a function that gets the model, is called after diffusers'."""
    methods = {item.name: item for item in walked(init.owner.node) if isinstance(item, ast.FunctionDef)}
    for call in calls(init.node):
        name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        if call.lineno <= build.lineno:
            continue
        if name in methods and any(_stores(node, "config") for node in walked(methods[name])):
            return True
        if isinstance(call.func, ast.Name) and any(isinstance(arg, ast.Name) and arg.id == "self" for arg in call.args):
            return True
    return False


def _of(init: Method, call: ast.Call, name: str) -> bool:
    """Return whether a call is of the constructor of diffusers' class itself."""
    owner = init.file.origin(call.func).removesuffix(".__init__")
    return owner.startswith("diffusers.") and owner.rpartition(".")[2] == name


def _begins(init: Method, call: ast.Call) -> bool:
    text = ast.unparse(call.func)
    return text.startswith("super()") or init.file.origin(call.func).endswith("PreTrainedModel.__init__")


def _stores(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == name and isinstance(node.ctx, ast.Store)


def _deletes(node: ast.AST) -> bool:
    """Return whether a node removes, or replaces, what the config property keeps."""
    if isinstance(node, ast.Attribute) and node.attr == "_internal_dict":
        return isinstance(node.ctx, (ast.Del, ast.Store))
    text = ast.unparse(node) if isinstance(node, ast.Call) else ""
    return "_internal_dict" in text and any(word in text for word in ("delattr", ".pop(", "setattr"))
