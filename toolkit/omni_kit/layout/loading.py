"""The converter that loading a checkpoint needs if modules keep upstream's expert layout, the same for all commands."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from omni_kit.errors import BadInput
from omni_kit.layout.expected import expect, expected_checkpoint
from omni_kit.layout.subtrees import Subtree
from omni_kit.layout.taxonomy import Converter, Disk, Memory
from omni_kit.layout.verdict import LayoutVerdict
from omni_kit.upstream.diffusers.models import ComponentModel
from omni_kit.upstream.model import Model
from omni_kit.upstream.transformers.traits import expert_parameters

# Modules that hold their experts so are what a converter can make.
_MADE = frozenset({Memory.canonical, Memory.canonical_two_width, Memory.no_gate})
# What lies so is held so, and loads as it is.
_SAME: Mapping[Disk, Memory] = {
    Disk.fused: Memory.canonical,
    Disk.fused_renamed: Memory.canonical_renamed,
    Disk.fused_transposed: Memory.transposed,
    Disk.fused_transposed_bias: Memory.transposed_bias,
    Disk.fused_transposed_interleaved: Memory.transposed_interleaved,
    Disk.module_dict: Memory.module_dict,
    Disk.flat_2d: Memory.flat_2d,
    Disk.retrieval: Memory.retrieval,
}


@dataclass(frozen=True)
class Loading:
    """The converter that loading needs, or why there is none.

    Attributes:
        converter: `none` where the checkpoint loads as it lies; `unsupported` where no converter can read it.
        disk, names, prefixes: what it must read: the layout, its leaves, its containers with `*` for a number.
        reason: why, in words.
        evidence: where it was seen.
        hint: what to do where no converter can read it.
    """

    converter: Converter
    reason: str
    disk: Disk | None = None
    names: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()
    evidence: str = ""
    hint: str = ""

    def as_json(self) -> dict[str, str]:
        """Return converter, reason and hint."""
        return {"converter": self.converter, "reason": self.reason, "hint": self.hint}

    @property
    def needs_converter(self) -> bool:
        """Return whether a converter has to be written, and can be."""
        return self.converter not in {Converter.none, Converter.unsupported}


def loading(verdict: LayoutVerdict) -> Loading:
    """Return how an integration with upstream's modules loads a checkpoint.

    A converter passes canonical experts through, so a file that has both needs the converter of the others.
    """
    subtrees = [subtree for subtree in verdict.subtrees if subtree.role != "attention"]
    if not subtrees:
        return Loading(Converter.none, "the checkpoint has no experts", Disk.none, evidence="headers")
    if isinstance(verdict.model, ComponentModel):
        return Loading(Converter.none, f"{verdict.model.library.name} loads its checkpoints unchanged", Disk.none)
    if (refusal := _refusal(subtrees)) is not None:
        return refusal
    others = [subtree for subtree in subtrees if not _as_held(subtree)]
    subtree = others[0] if others else subtrees[0]
    evidence = "; ".join(subtree.evidence)
    if not others:
        reason = f"the modules hold them {subtree.memory}, as on disk"
        return Loading(Converter.none, reason, subtree.disk, subtree.names, evidence=evidence)
    reason = (
        f"experts are stored {subtree.disk or 'in no known layout'} on disk, and the modules hold them {subtree.memory}"
    )
    if len({subtree.converter for subtree in others}) > 1 or subtree.memory not in _MADE:
        shown = ", ".join(dict.fromkeys(f"{s.prefix}: {s.disk or 'unknown'}" for s in others))
        hint = "convert the checkpoint instead: omni-kit convert --to memory"
        return Loading(
            Converter.unsupported, f"{reason} ({shown}), which no converter produces", subtree.disk, hint=hint
        )
    prefixes = tuple(dict.fromkeys(s.prefix for s in others))
    return Loading(subtree.converter, reason, subtree.disk, subtree.names, prefixes, evidence)


def _refusal(subtrees: Sequence[Subtree]) -> Loading | None:
    """Return why no converter can be chosen, or can read the experts; None if one can."""
    for subtree in subtrees:
        evidence = "; ".join(subtree.evidence)
        if subtree.ambiguous:
            reason = f"the layout of {subtree.prefix} is ambiguous: {evidence}"
            return Loading(Converter.unsupported, reason, subtree.disk, hint="see omni-kit check-layout")
        if subtree.quantized:
            kind = subtree.quantized
            reason = f"the experts of {subtree.prefix} are quantised ({kind}): a converter would drop their scales"
            hint = "dequantise the checkpoint first, or use an unquantized one"
            return Loading(Converter.unsupported, reason, subtree.disk, evidence=evidence, hint=hint)
    return None


def converts_experts(model: Model) -> bool:
    """Return whether loading the checkpoint that the library declares for a model needs a converter, or may need
    one.
    """
    try:
        return loading(expect(model)).converter is not Converter.none or _renames_experts(model)
    except BadInput:  # what cannot be told is not held against anybody
        return True


def _renames_experts(model: Model) -> bool:
    """Return whether the stacked experts have other names in the checkpoint that the library declares than in
    memory.
    """
    if model.recipe is None:
        return False
    held = {parameter.name for parameter in expert_parameters(model.skeleton)}
    return not held <= expected_checkpoint(model).tensors.keys()


def _as_held(subtree: Subtree) -> bool:
    """Return whether a subtree lies on disk as its module holds it.

    One that no module holds counts by its layout alone.
    """
    if subtree.disk is None:
        return False
    if subtree.disk is Disk.fused:
        return subtree.memory in {*_MADE, Memory.none}
    return _SAME.get(subtree.disk) is subtree.memory
