"""The rule about the wrapper's declarations: VEO625."""

import ast
from collections.abc import Iterator, Sequence

from omni_checkers.engine.rule import Finding, Findings, NotApplicable, Rule, Severity
from omni_checkers.symbolic import Value
from omni_checkers.veomni.examples_diffusion import ATTRIBUTES, MODEL, MODELING
from omni_checkers.veomni.facts.diffusion import Diffusion
from omni_checkers.veomni.facts.diffusion.sides import is_symbol
from omni_kit.pysource.classes import ClassRef
from omni_kit.upstream.diffusers.checkpointing import checkpoints, lost_by_checkpointing
from omni_kit.upstream.kinds import Kind


class WrapperSaysWhatTrainersAsk(Rule):
    """Name the sharded blocks, allow checkpointing, and keep diffusers' class name in the wrapper.

    `_no_split_modules` names block classes of the model, `supports_gradient_checkpointing` is True, and the Python
    class has the name of diffusers' class.

    Why: PreTrainedModel sets `_no_split_modules` to None before diffusers' class: FSDP2 then wraps no block, gathers
    the whole model at once and runs out of memory. Disallowed checkpointing raises ValueError. diffusers writes the
    class name into config.json and cannot load an unknown one.

    Fine when: the model trains only with DDP, or fits one FSDP unit; then suppress the finding.
    """

    id = "VEO625"
    name = "wrapper-says-what-trainers-ask"
    target = "veomni"
    kinds = frozenset({Kind.dit})
    obligations = ("DIT-11", "DIT-12", "DIT-44")
    failure_modes = ("diffusers-capability-flags",)
    example_of = "wan_t2v"
    BAD = (
        {MODEL: MODELING.replace('    _no_split_modules = ["WanTransformerBlock"]\n', "")},
        {MODEL: MODELING.replace('["WanTransformerBlock"]', '["WanBlock"]')},
        {MODEL: MODELING.replace("    supports_gradient_checkpointing = True\n", "")},
    )
    GOOD = (
        {
            MODEL: MODELING.replace(
                ATTRIBUTES, ATTRIBUTES.replace('["WanTransformerBlock"]', '("WanTransformerBlock",)')
            )
        },
    )

    def check(self, diffusion: Diffusion) -> Findings:
        upstream, side = diffusion.upstream, diffusion.transformer
        if upstream is None or side is None or side.model is None:
            raise NotApplicable("no wrapper derives from a class of diffusers that can be read")
        model = side.model
        if diffusion.inherits_unseen(model):
            raise NotApplicable("a base of the wrapper cannot be read")
        line = list(diffusion.lineage(model))
        first = next((n for n, one in enumerate(line) if is_symbol(one, "PreTrainedModel")), len(line))
        second = next((n for n, one in enumerate(line) if is_symbol(one, upstream.node.name)), 0)
        place = model.module.path, model.node.lineno
        for message, severity in _wrong(diffusion, model, upstream, first < second):
            yield Finding(message, *place, severity=severity)


def _wrong(
    diffusion: Diffusion, model: Value, upstream: ClassRef, shadowed: bool
) -> Iterator[tuple[str, Severity | None]]:
    blocks = diffusion.attribute(model, "_no_split_modules")
    theirs = _names(upstream, "_no_split_modules")
    if blocks is None and shadowed:
        said = f", and diffusers' own {theirs} is shadowed" if theirs else ""
        yield f"_no_split_modules is PreTrainedModel's None{said}: FSDP2 wraps no block", Severity.warning
    elif isinstance(blocks, list | tuple | set) and all(isinstance(name, str) for name in blocks):
        known = _classes(upstream)
        for name in sorted(blocks) if known else ():
            if name not in known and name not in _own(diffusion):
                yield f"_no_split_modules names {name}, which the model does not have", None
        if not blocks and theirs:
            yield "_no_split_modules is empty: FSDP2 wraps no block", Severity.warning
    allowed = diffusion.attribute(model, "supports_gradient_checkpointing")
    same = checkpoints(upstream) and not lost_by_checkpointing(upstream)
    if shadowed and same and (allowed is None or allowed is False):
        yield "supports_gradient_checkpointing is False: enabling checkpointing raises ValueError", None
    name = model.name
    if (
        name != upstream.node.name
        and diffusion.known(name) is None
        and diffusion.attribute(model, "__name__") is None
        and not _renames(diffusion, model)
    ):
        yield f"diffusers has no class {name}, which its save_pretrained writes into config.json", None


def _renames(diffusion: Diffusion, model: Value) -> bool:
    """Return whether save_pretrained of the wrapper takes care of the name itself."""
    method = diffusion.method(model, "save_pretrained")
    text = ast.unparse(method.node) if method is not None else ""
    return "_class_name" in text or "__class__" in text or "__name__" in text


def _names(upstream: ClassRef, attribute: str) -> Sequence[str]:
    found = upstream.assigned(attribute)
    try:
        value = ast.literal_eval(found[1]) if found is not None else None
    except (ValueError, TypeError):
        return ()
    return list(value) if isinstance(value, list | tuple) else ()


def _classes(upstream: ClassRef) -> set[str]:
    """Return the classes that diffusers' file defines or imports."""
    return {*upstream.source.classes, *upstream.source.imports}


def _own(diffusion: Diffusion) -> set[str]:
    return {node.name for file in diffusion.files.values() for node in file.nodes(ast.ClassDef)}
