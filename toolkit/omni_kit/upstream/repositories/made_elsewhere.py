"""Parts of a model that its constructor does not make: modules that it receives, and models that it loads by name."""

import ast
from collections.abc import Iterator

from omni_kit.pysource.classes import ClassRef
from omni_kit.pysource.source import dotted
from omni_kit.upstream.repositories.names import Defined, resolve
from omni_kit.upstream.repositories.reference import Reference

_INIT = "__init__"
_TABLE = "Embedding.from_pretrained"  # torch's: of a tensor
_LOADS = ("from_pretrained", "hf_hub_download", "snapshot_download")
_LOADERS = ("clip.load", "open_clip.create_model_and_transforms", "torch.hub.load", "whisper.load_model")
_DEEPEST = 3  # constructors that make each other


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
    """Return file:line of each model that the constructor, or that of a part that it always makes, loads by its
    name.
    """
    return [*_loaded(reference.cls, _DEEPEST)]


def _loaded(cls: ClassRef, deep: int) -> Iterator[str]:
    init = cls.defines(_INIT)
    calls = (call for line in init.body if not isinstance(line, ast.If | ast.Try)
             for call in ast.walk(line) if isinstance(call, ast.Call)) if init is not None else ()  # fmt: skip
    for call in calls:
        name = dotted(call.func) or ""
        if (name.rpartition(".")[2] in _LOADS and not name.endswith(_TABLE)) or name in _LOADERS:
            yield cls.source.where(call)
        elif deep:
            one_of = [call.func.body, call.func.orelse] if isinstance(call.func, ast.IfExp) else [call.func]
            made = [resolve(cls.source, dotted(one) or "") for one in one_of]
            found = [[*_loaded(ClassRef(one.source, one.node), deep - 1)] for one in made
                     if isinstance(one, Defined) and isinstance(one.node, ast.ClassDef)]  # fmt: skip
            if len(found) == len(made) and all(found):
                yield found[0][0]


def why_not_made(reference: Reference) -> tuple[str, str]:
    """Return why no config can make a model, and what to do; two empty texts where one can."""
    copied = "in a copy of the authors' files, and pass it"
    if received := received_modules(reference):
        what = f"{reference.class_name} takes modules that others make ({', '.join(received)}): {reference.where}"
        return what, f"write a class whose constructor makes them from numbers, {copied}"
    if loaded := loaded_models(reference):
        what = f"the constructor of {reference.class_name} loads a model by its name: {loaded[0]}"
        base = next(
            (one for one in reference.cls.mro[1:] if isinstance(one, ClassRef) and one.defines("forward")), None
        )
        inner = f" ({base.node.name}, its base, is one)" if base is not None and not [*_loaded(base, _DEEPEST)] else ""
        return what, f"pass the class of the denoiser alone{inner}; or write one that takes the outputs, {copied}"
    return "", ""


def _methods(cls: ClassRef) -> Iterator[ast.FunctionDef]:
    return (one for one in cls.node.body if isinstance(one, ast.FunctionDef))
