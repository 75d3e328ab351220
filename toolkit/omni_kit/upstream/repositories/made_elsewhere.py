"""Parts of a model that its constructor does not make: modules that it receives, and models that it loads by name."""

import ast
from collections.abc import Iterator

from omni_kit.pysource.classes import ClassRef
from omni_kit.pysource.source import dotted
from omni_kit.upstream.repositories.reference import Reference

_INIT = "__init__"
_LOADS = "from_pretrained"


def received_modules(reference: Reference) -> list[str]:
    """Return the constructor's required arguments that the model keeps as they are, and calls."""
    cls = reference.cls
    init = cls.defines(_INIT)
    required = {name for name, one in reference.arguments.items() if one.required and not one.annotation}
    if init is None:
        return []
    kept = {f"self.{target.attr}": name for one in ast.walk(init) if isinstance(one, ast.Assign)
            and (name := dotted(one.value) or "") in required
            for target in one.targets if isinstance(target, ast.Attribute)}  # fmt: skip
    called = {dotted(one.func) for method in _methods(cls) for one in ast.walk(method) if isinstance(one, ast.Call)}
    changed = {dotted(target) for one in ast.walk(init) if isinstance(one, ast.Assign) for target in one.targets}
    return [name for holder, name in kept.items() if holder in called and name not in changed]


def loaded_models(reference: Reference) -> list[str]:
    """Return file:line of each model that the constructor loads by its name, whatever its arguments are."""
    cls = reference.cls
    init = cls.defines(_INIT)
    calls = (call for line in init.body if not isinstance(line, ast.If | ast.Try)
             for call in ast.walk(line) if isinstance(call, ast.Call)) if init is not None else ()  # fmt: skip
    return [cls.source.where(call) for call in calls if (dotted(call.func) or "").rpartition(".")[2] == _LOADS]


def why_not_made(reference: Reference) -> tuple[str, str]:
    """Return why no config can make a model, and what to do; two empty texts where one can."""
    copied = "in a copy of the authors' files, and pass it"
    if received := received_modules(reference):
        what = f"{reference.class_name} takes modules that others make ({', '.join(received)}): {reference.where}"
        return what, f"write a class whose constructor makes them from numbers, {copied}"
    if loaded := loaded_models(reference):
        what = f"the constructor of {reference.class_name} loads a model by its name: {loaded[0]}"
        return what, f"pass the class of the denoiser alone; or write one that takes the model's outputs, {copied}"
    return "", ""


def _methods(cls: ClassRef) -> Iterator[ast.FunctionDef]:
    return (one for one in cls.node.body if isinstance(one, ast.FunctionDef))
