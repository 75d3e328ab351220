"""Rules about the class of a pipeline: DFU201 to DFU203."""

import ast
from collections.abc import Iterator

from omni_checkers.diffusers.examples import LUMEN, PIPELINE, changed
from omni_checkers.diffusers.facts.deprecation import is_old_name
from omni_checkers.diffusers.facts.pipelines import call_of, components_of, declared
from omni_checkers.engine.files import walked
from omni_checkers.engine.places import at
from omni_checkers.engine.rule import Finding, Findings, Rule
from omni_kit.pysource.classes import ClassRef
from omni_kit.pysource.nodes import last_name
from omni_kit.pysource.source import dotted

_BASE = "DiffusionPipeline"
_IMPORT = "from diffusers.pipelines.pipeline_utils import DiffusionPipeline"
_SEQUENCE = '"text_encoder->transformer->vae"'
_GRADIENTS = frozenset({"no_grad", "inference_mode"})


class PipelinesStandAlone(Rule):
    """Derive a pipeline from DiffusionPipeline and mixins only, not from another pipeline.

    A subclass may keep an old name alive if it warns of its deprecation and changes nothing else.

    Why: changes of the base pipeline silently change yours, and `AutoPipeline` and `from_pipe` confuse the two. Inside
    diffusers, methods are copied with `# Copied from` and never inherited.

    Fine when: outside diffusers, a variant changes a line or two and follows the base pipeline on purpose.
    """

    id = "DFU201"
    name = "pipelines-stand-alone"
    target = "diffusers"
    obligations = ("DIF-17", "DIF-28")
    BAD = (
        changed(PIPELINE, (_IMPORT, "from diffusers import FluxPipeline"), ("(DiffusionPipeline)", "(FluxPipeline)")),
    )
    GOOD = ({PIPELINE: LUMEN[PIPELINE]},)

    def check(self, pipelines: list[ClassRef]) -> Findings:
        for cls in pipelines:
            for base in cls.node.bases if not is_old_name(cls) else ():
                found = cls.source.resolve_class(dotted(base) or "")
                if found is not None and ClassRef(*found).derives(_BASE):
                    yield at(cls.source, base, f"{cls.node.name} derives from {found[1].name}: copy its methods")


class CallKeepsNoGradients(Rule):
    """Run `__call__` of a pipeline under `torch.no_grad()`.

    Why: without it every step keeps its activations for a backward pass, and memory grows until the run fails.

    Fine when: the pipeline computes nothing with torch, or its purpose is to compute gradients.
    """

    id = "DFU202"
    name = "call-keeps-no-gradients"
    target = "diffusers"
    obligations = ("DIF-32",)
    BAD = (changed(PIPELINE, ("    @torch.no_grad()\n", "")),)
    GOOD = ({PIPELINE: LUMEN[PIPELINE]},)

    def check(self, pipelines: list[ClassRef]) -> Findings:
        for cls in pipelines:
            call = call_of(cls)
            if call is not None and not _elsewhere(cls) and not _without_gradients(cls, call):
                yield at(cls.source, call, f"__call__ of {cls.node.name} is not under torch.no_grad()")


def _elsewhere(cls: ClassRef) -> bool:
    """Return whether the called components are not torch modules: ONNX components keep no gradients."""
    init = cls.method("__init__")
    if "torch" not in cls.source.imports:
        return True
    names = [dotted(one.annotation) or "" for one in init[1].args.args if one.annotation] if init is not None else []
    found = [ClassRef(*known) for name in names if init and (known := init[0].source.resolve_class(name)) is not None]
    return any(one.defines("__call__") is not None and not one.derives("Module") for one in found)


def _without_gradients(cls: ClassRef, call: ast.FunctionDef) -> bool:
    if any(last_name(one) in _GRADIENTS for one in call.decorator_list):
        return True
    held = (item for node in walked(call) if isinstance(node, ast.With) for item in node.items)
    return any(last_name(item.context_expr) in _GRADIENTS for item in held)


class PipelinesNameTheirComponents(Rule):
    """Declare only components that the pipeline registers and tensors that its `__call__` has.

    `model_cpu_offload_seq`, `_optional_components` and `_exclude_from_cpu_offload` name components.
    `_callback_tensor_inputs` names variables of `__call__`.

    Why: a component that the sequence omits stays on the device or never reaches it. An unknown name is ignored, or
    raises AttributeError only with offloading. A callback that requests an unknown tensor raises KeyError.

    Fine when: a subclass registers the component.
    """

    id = "DFU203"
    name = "pipelines-name-their-components"
    target = "diffusers"
    failure_modes = ("diffusers-capability-flags",)
    BAD = (
        changed(PIPELINE, (_SEQUENCE, '"text_encoder->unet->vae"')),
        changed(PIPELINE, ('["latents", "prompt_embeds"]', '["latents", "prompt_embeds", "negative_embeds"]')),
    )
    GOOD = ({PIPELINE: LUMEN[PIPELINE]},)

    def check(self, pipelines: list[ClassRef]) -> Findings:
        for cls in pipelines:
            components = components_of(cls)
            if components is not None:
                yield from _unknown(cls, components)
            call, named = call_of(cls), declared(cls, "_callback_tensor_inputs")
            if call is not None and named is not None:
                known = _variables(call)
                for name in named[1]:
                    if name not in known:
                        yield at(cls.source, named[0], f"callbacks may request '{name}', which __call__ lacks")


def _unknown(cls: ClassRef, components: set[str]) -> Iterator[Finding]:
    sequence = cls.assigned("model_cpu_offload_seq")
    if sequence is not None and sequence[0].node is cls.node and isinstance(sequence[1], ast.Constant):
        for name in str(sequence[1].value).split("->"):
            if name.strip() not in components and sequence[1].value:
                yield at(cls.source, sequence[1], f"model_cpu_offload_seq names '{name}', which is not a component")
    for attribute in ("_optional_components", "_exclude_from_cpu_offload"):
        found = declared(cls, attribute)
        for name in found[1] if found is not None else ():
            if name not in components and found is not None:
                yield at(cls.source, found[0], f"{attribute} names '{name}', which is not a component")


def _variables(call: ast.FunctionDef) -> set[str]:
    assigned = {node.id for node in walked(call) if isinstance(node, ast.Name)}
    return assigned | {node.arg for node in walked(call.args) if isinstance(node, ast.arg)}
