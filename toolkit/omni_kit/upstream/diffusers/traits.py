"""The profile of a model of diffusers: what its signatures, its constructor and its class body say, with evidence."""

import ast
from collections.abc import Iterator, Sequence
from typing import Any

from omni_kit.pysource.classes import ClassRef
from omni_kit.pysource.eval import UNKNOWN
from omni_kit.pysource.library import Library
from omni_kit.pysource.reads import literal
from omni_kit.pysource.source import dotted
from omni_kit.upstream.diffusers.classes import MODULAR, TRANSFORMERS, place_of
from omni_kit.upstream.diffusers.models import ComponentModel
from omni_kit.upstream.diffusers.originals import converter_of
from omni_kit.upstream.diffusers.parts import built_classes, parts_of
from omni_kit.upstream.diffusers.signatures import STEP_NAMES, Argument, arguments
from omni_kit.upstream.kinds import Kind, Signs, derive
from omni_kit.upstream.profile import Component, ModelProfile, Trait

# Arguments of the constructor -> the trait that they are.
_SIZES = {
    "num_layers": "layers", "num_attention_heads": "heads", "attention_head_dim": "head-dim", "qk_norm": "qk-norm",
    "in_channels": "in-channels", "out_channels": "out-channels", "guidance_embeds": "guidance-embedding",
}  # fmt: skip
# What a class of the library says of itself in its body -> the trait that it is.
_SAID = {
    "_repeated_blocks": "blocks", "_keep_in_fp32_modules": "kept-in-float32",
    "_supports_gradient_checkpointing": "gradient-checkpointing",
}  # fmt: skip
_ROPE = ("rope", "rotary", "posembed")
_KERNELS = ("dispatch_attention_fn", "scaled_dot_product_attention")


def profile(model: ComponentModel, components: Sequence[Component] = ()) -> ModelProfile:
    """Return the profile of a model.

    Args:
        components: the parts of the pipeline that it is of.
    """
    place = model.library.show(model.source.path)
    kind, evidence = kind_of(place)
    return ModelProfile(
        model_type=model.class_name,
        library=model.library.name,
        library_version=model.library.version,
        architectures=(model.class_name,),
        kind=kind,
        kind_evidence=evidence,
        traits=tuple(_traits(model)) if kind is Kind.dit else (),
        components=tuple(components),
    )


def modular_profile(library: Library, class_name: str) -> ModelProfile:
    """Return the profile of a pipeline whose blocks can be put together again: its kind alone."""
    place = f"{library.name}/{place_of(library, class_name)}"
    kind, evidence = kind_of(place)
    return ModelProfile(class_name, library.name, library.version, (class_name,), kind, evidence)


def kind_of(place: str) -> tuple[Kind, str]:
    """Return the kind of a class by where it stands: the library keeps each sort in a folder of its own.

    Args:
        place: "diffusers/models/transformers/transformer_wan.py".
    """
    inner = place.partition("/")[2]
    if inner.startswith(f"{TRANSFORMERS}/"):
        return derive(Signs(denoises=place))
    return derive(Signs(composes=place) if inner.startswith(f"{MODULAR}/") else Signs())


def _traits(model: ComponentModel) -> Iterator[Trait]:
    yield from _inputs(model)
    yield from _patching(model)
    yield from _positions(model)
    yield from _attention(model)
    yield from _cp_plan(model)
    converter, where = converter_of(model.library, model.class_name)
    if converter:
        yield Trait("original-layout", f"from_single_file, by {converter}", where)
    for name, trait in _SIZES.items():
        value, where = model.value(name)
        if value is not UNKNOWN and value is not None and value is not False:
            yield Trait(trait, value, where)
    for name, trait in _SAID.items():
        found = model.cls.assigned(name)
        value = _literal(found[1]) if found is not None else None
        if found is not None and value:
            yield Trait(trait, value, found[0].source.where(found[1]))


def _inputs(model: ComponentModel) -> Iterator[Trait]:
    """Yield the traits of forward's inputs: latents, the step, and the conditioning."""
    taken = list(arguments(model.cls, "forward").values())
    if not taken:
        return
    latents, *others = taken
    axes = _axes(model.cls, latents.name)
    yield Trait("latents", f"{latents.name} [{', '.join(axes)}]" if axes else latents.name, latents.where)
    if (step := next((one for one in others if one.name in STEP_NAMES), None)) is not None:
        yield Trait("step", step.name, step.where)
    if conditions := [one for one in others if one.name not in STEP_NAMES and _is_data(one)]:
        shown = [one.name if one.required else f"{one.name} (optional)" for one in conditions]
        yield Trait("conditioning", shown, conditions[0].where)


def _is_data(argument: Argument) -> bool:
    """Return whether an argument is a tensor or a list of sizes, and no switch or bag of settings."""
    names = {dotted(node) or "" for node in ast.walk(ast.parse(argument.annotation or "None", mode="eval"))}
    return not names & {"bool", "dict", "Dict"} and not isinstance(argument.default, bool)


def _axes(cls: ClassRef, name: str) -> list[str]:
    """Return forward's names of a tensor's axes, from `a, b, c = name.shape` before the tensor is reassigned."""
    found = cls.method("forward")
    nodes = (node for node in ast.walk(found[1]) if isinstance(node, ast.Assign)) if found is not None else ()
    for node in sorted(nodes, key=lambda node: node.lineno):
        target = node.targets[0]
        if dotted(node.value) == f"{name}.shape" and isinstance(target, ast.Tuple):
            return [item.id if isinstance(item, ast.Name) else "*" for item in target.elts]
        if dotted(target) == name:
            return []
    return []


def _patching(model: ComponentModel) -> Iterator[Trait]:
    """Yield the arguments that say how large patches are, and the part that takes the latents' channels."""
    for name in model.arguments:
        value, where = model.value(name)
        if name.startswith("patch_size") and value is not UNKNOWN and value is not None:
            yield Trait(name.replace("_", "-"), value, where)
    if (part := next((one for one in parts_of(model.cls) if "in_channels" in one.names), None)) is not None:
        yield Trait("patch-embedding", f"{part.name}: {part.class_name}", part.where)


def _positions(model: ComponentModel) -> Iterator[Trait]:
    """Yield the parts that turn or mark tokens by their place, and the arguments that shape them."""
    for part in parts_of(model.cls):
        if any(word in part.class_name.lower() for word in _ROPE):
            yield Trait("positions", f"{part.name}: {part.class_name}", part.where)
    for name in model.arguments:
        value, where = model.value(name)
        if ("rope" in name or name.startswith("axes_")) and value is not UNKNOWN and value is not None:
            yield Trait(name.replace("_", "-"), value, where)


def _attention(model: ComponentModel) -> Iterator[Trait]:
    """Yield classes of attention that the model is built of, the processors that run in them, and the kernel
    they call.
    """
    attention, processors = _attending(model)
    for trait, classes in (("attention", attention), ("attention-processor", processors)):
        for cls in classes:
            yield Trait(trait, cls.node.name, cls.source.where(cls.node))
    for kernel, where in attention_kernels(model).items():
        yield Trait("attention-kernel", kernel, where)


def attention_kernels(model: ComponentModel) -> dict[str, str]:
    """Return the functions that the model's attention ends in, and where each is called."""
    attention, processors = _attending(model)
    found: dict[str, str] = {}
    for kernel in _KERNELS:
        calls = (one for cls in (*processors, *attention) for one in _calls(cls, kernel))
        if (where := next(calls, None)) is not None:
            found[kernel] = where
    return found


def _attending(model: ComponentModel) -> tuple[list[ClassRef], list[ClassRef]]:
    """Return the classes of attention that a model is built of, and those of processors."""
    built = [(by, cls) for by, cls in built_classes(model.cls) if _names_attention(cls.node.name)]
    attention = [cls for _, cls in built if "Processor" not in cls.node.name]
    running = [(by, cls) for by, cls in built if "Processor" in cls.node.name]
    # what a shared class of attention would take by default gives way to what the model's own classes name
    own = [cls for by, cls in running if by.source.path.parent == model.source.path.parent]
    return attention, own or [cls for _, cls in running]


def _names_attention(name: str) -> bool:
    return ("Attention" in name or "Attn" in name) and not name.endswith(("Mixin", "Block"))


def _calls(cls: ClassRef, name: str) -> Iterator[str]:
    for node in ast.walk(cls.node):
        if isinstance(node, ast.Call) and (dotted(node.func) or "").rpartition(".")[2] == name:
            yield cls.source.where(node)


def _cp_plan(model: ComponentModel) -> Iterator[Trait]:
    """Yield the trait of sequence sharding: which inputs are split, or outputs gathered, at which module."""
    found = model.cls.assigned("_cp_plan")
    if found is None or not isinstance(found[1], ast.Dict):
        return
    home, node = found
    yield Trait("context-parallel", _shared(node), home.source.where(node))


def _shared(node: ast.expr) -> Any:
    """Return one entry of a plan: by argument or by place among the results; a call in few words."""
    if isinstance(node, ast.Dict):
        pairs = zip(node.keys, node.values, strict=True)
        return {str(_literal(key)): _shared(value) for key, value in pairs if key is not None}
    if isinstance(node, (ast.List, ast.Tuple)):
        return [_shared(item) for item in node.elts]
    given = {one.arg: _literal(one.value) for one in node.keywords} if isinstance(node, ast.Call) else {}
    for key, verb in (("split_dim", "split"), ("gather_dim", "gather")):
        if key in given:
            return f"{verb} dim {given[key]}{' of the result' if given.get('split_output') else ''}"
    return ast.unparse(node)


def _literal(node: ast.expr) -> Any:
    return ast.unparse(node) if (value := literal(node)) is UNKNOWN else value
