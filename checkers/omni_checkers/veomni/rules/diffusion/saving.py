"""The rule about saving and loading a wrapper: VEO626."""

import ast
from collections.abc import Iterator

from omni_checkers.engine.files import walked
from omni_checkers.engine.rule import Finding, Findings, NotApplicable, Rule, Severity
from omni_checkers.symbolic import Class
from omni_checkers.veomni.examples_diffusion import LOADING, MODEL, MODELING, SAVING
from omni_checkers.veomni.facts.diffusion import Diffusion
from omni_checkers.veomni.facts.diffusion.sides import Method
from omni_kit.pysource.nodes import calls, line_of
from omni_kit.pysource.signatures import decorators
from omni_kit.upstream.kinds import Kind

_PLAIN = SAVING.replace("        try:\n    ", "").replace("        finally:\n    ", "")


class SavedAsDiffusersSaves(Rule):
    """Save with diffusers' class and config in `save_pretrained`, and always restore the config.

    `from_pretrained` is a classmethod that uses diffusers' class and returns the wrapper.

    Why: PreTrainedModel writes `model.safetensors` and a config.json with `model_type`, and diffusers finds no weights
    there. If a write fails, a config that is not restored stays a dict, and training continues until code reads
    `config.model_type`. The result of diffusers' own `from_pretrained` has no loss.

    Fine when: the transformer is not a diffusers class; the rule then does not apply.
    """

    id = "VEO626"
    name = "wrapper-saves-and-loads-as-diffusers"
    target = "veomni"
    kinds = frozenset({Kind.dit})
    obligations = ("DIT-04", "DIT-05", "DIT-07", "DIT-08", "DIT-42")
    failure_modes = ("fused-export-unloadable",)
    example_of = "wan_t2v"
    BAD = (
        {MODEL: MODELING.replace(SAVING, _PLAIN)},
        {MODEL: MODELING.replace(SAVING, SAVING.replace("_WanTransformer3DModel.", "PreTrainedModel."))},
        {MODEL: MODELING.replace(LOADING, LOADING.replace("    @classmethod\n", ""))},
    )
    GOOD = ({MODEL: MODELING},)

    def check(self, diffusion: Diffusion) -> Findings:
        upstream, side = diffusion.upstream, diffusion.transformer
        if upstream is None or side is None or side.model is None or diffusion.inherits_unseen(side.model):
            raise NotApplicable("no wrapper derives from a class of diffusers that can be read")
        model, name = side.model, upstream.node.name
        saving, loading = diffusion.method(model, "save_pretrained"), diffusion.method(model, "from_pretrained")
        if saving is None:
            message = f"{model.name} saves with PreTrainedModel: {name} finds neither weights nor config"
            yield Finding(message, model.module.path, model.node.lineno)
        else:
            yield from _saving(saving, name)
        if loading is not None:
            yield from _loading(loading, model)


def _saving(method: Method, upstream: str) -> Iterator[Finding]:
    here = method.path, method.node.lineno
    saves = list(calls(method.node, "save_pretrained", "save_config"))
    theirs = [call for call in saves if _by(method, call, upstream)]
    others = [
        call for call in saves if ast.unparse(call.func).startswith("super()") or _by(method, call, "PreTrainedModel")
    ]
    if not theirs:
        if others:
            yield Finding(f"save_pretrained calls PreTrainedModel's, not {upstream}'s", method.path, others[0].lineno)
        return
    stores = [node for node in walked(method.node) if _sets_config(node)]
    before = [node for node in stores if line_of(node) <= theirs[0].lineno]
    after = [node for node in stores if line_of(node) > theirs[0].lineno]
    if not before:
        if not _another_config(method):
            message = "diffusers writes self.config, which is still VeOmni's: set it to to_diffuser_dict() first"
            yield Finding(message, method.path, theirs[0].lineno)
    elif not after:
        yield Finding("the config is not restored: the model keeps a dict", *here)
    elif not any(_in_finally(node, after) for node in walked(method.node)):
        message = "the config is not restored when writing fails: the model keeps a dict"
        yield Finding(message, method.path, line_of(after[0]), severity=Severity.warning)


def _loading(method: Method, model: Class) -> Iterator[Finding]:
    here = method.path, method.node.lineno
    if "classmethod" not in decorators(method.node):
        yield Finding("from_pretrained is not a classmethod: called on the class, the path becomes self", *here)
    for node in walked(method.node):
        value = node.value if isinstance(node, ast.Return) else None
        if isinstance(value, ast.Call) and method.file.origin(value.func).startswith("diffusers."):
            message = f"from_pretrained returns diffusers' object, not a {model.name}: it has no loss"
            yield Finding(message, method.path, line_of(node), severity=Severity.warning)


def _by(method: Method, call: ast.Call, owner: str) -> bool:
    return method.file.origin(call.func).rpartition(".")[0].rpartition(".")[2] == owner


def _sets_config(node: ast.AST) -> bool:
    """Return whether a node stores self.config, or what it is kept in."""
    if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "setattr" and len(node.args) == 3:
        return isinstance(node.args[1], ast.Constant) and node.args[1].value in {"config", "_internal_dict"}
    return (
        isinstance(node, ast.Attribute)
        and node.attr in {"config", "_internal_dict"}
        and isinstance(node.ctx, ast.Store)
    )


def _another_config(method: Method) -> bool:
    """Return whether the config is exchanged by a helper, such as a context manager."""
    return any(isinstance(node, ast.With) for node in walked(method.node))


def _in_finally(node: ast.AST, stores: list[ast.AST]) -> bool:
    if isinstance(node, ast.With):
        return True
    inside = {id(inner) for part in getattr(node, "finalbody", ()) for inner in walked(part)}
    return isinstance(node, ast.Try) and any(id(store) in inside for store in stores)
