"""Sinusoidal embeddings, which are computed in float32, in the precision of the layers that receive them.

Authors run their models in float32 or under autocast. A model of diffusers is cast as a whole, so that its own forward
casts what it makes in float32.
"""

import re
from collections.abc import Collection, Mapping

import libcst as cst

from omni_kit.targets.diffusers.porting.parts import Parts
from omni_kit.targets.diffusers.porting.syntax import body_of, chain, code, expression, method, own_attribute
from omni_kit.targets.diffusers.porting.visiting import visited, walk

_WAVES = (re.compile(r"\bsin\("), re.compile(r"\bcos\("))
_SINGLE = re.compile(r"\.float\(\)|float32")
_LAYERS = ("nn.Linear", "nn.Conv1d", "nn.Conv2d")


def with_cast_embeddings(parts: Parts) -> None:
    """Cast what functions and methods of sines and cosines return, where a layer receives it."""
    functions = {part.name for part in parts.parts if isinstance(part.node, cst.FunctionDef) and _is_wave(part.node)}
    for part in parts.parts:
        if part.cls is not None:
            own = {one.name.value for one in body_of(part.cls) if isinstance(one, cst.FunctionDef) and _is_wave(one)}
            waves = {*functions, *(f"self.{name}" for name in own), *(f"{part.name}.{name}" for name in own)}
            layers = _precisions(part.cls)
            whole = "self.dtype" if part is parts.root else ""
            if waves and (layers or whole):
                part.node = visited(part.node, _Cast(waves, layers, whole))


def _is_wave(function: cst.FunctionDef) -> bool:
    text = code(function)
    return all(one.search(text) for one in _WAVES) and _SINGLE.search(text) is not None


def _precisions(cls: cst.ClassDef) -> dict[str, str]:
    """Return the layers that a class makes -> the expression of their dtype."""
    found = dict[str, str]()
    for one in walk(init) if (init := method(cls, "__init__")) is not None else ():
        if isinstance(one, cst.Assign) and (name := own_attribute(one.targets[0].target)):
            made = one.value
            if _makes(made, ("nn.Sequential",)) and isinstance(made, cst.Call) and made.args:
                first = _makes(made.args[0].value, _LAYERS)
                found[name] = f"self.{name}[0].weight.dtype" if first else f"next(self.{name}.parameters()).dtype"
            elif _makes(made, _LAYERS):
                found[name] = f"self.{name}.weight.dtype"
    return found


def _makes(value: cst.BaseExpression, classes: Collection[str]) -> bool:
    return isinstance(value, cst.Call) and chain(value.func) in classes


class _Cast(cst.CSTTransformer):
    """Casts for layers of known precision; for others of a model as a whole that of the model, if not empty."""

    def __init__(self, waves: Collection[str], layers: Mapping[str, str], whole: str) -> None:
        self.waves, self.layers, self.whole = waves, layers, whole
        self.variables: set[str] = set()

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:  # noqa: N802
        """Take note of variables that are such an embedding, and nothing else."""
        values: dict[str, list[cst.BaseExpression]] = {}
        for one in (each for each in walk(node) if isinstance(each, cst.Assign)):
            for target in one.targets:
                values.setdefault(chain(target.target) or "", []).append(one.value)
        made = {name: [one for one in given if not _makes(one, (f"{name}.to",))] for name, given in values.items()}
        self.variables = {name for name, given in made.items() if given and all(map(self._is_embedding, given))}

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:  # noqa: N802
        """`self.mlp(embedding)`."""
        layer = own_attribute(original_node.func)
        precision = self.layers.get(layer, self.whole if layer and not self._is_embedding(original_node) else "")
        if not precision or len(updated_node.args) != 1 or updated_node.args[0].keyword is not None:
            return updated_node
        value = updated_node.args[0].value
        if not self._is_embedding(value) and chain(value) not in self.variables:
            return updated_node
        cast = cst.Arg(expression(f"{code(value)}.to({precision})"))
        return updated_node.with_changes(args=[cast])

    def _is_embedding(self, value: cst.BaseExpression) -> bool:
        return isinstance(value, cst.Call) and chain(value.func) in self.waves
