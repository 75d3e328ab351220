"""Facts for the converter template: parts on disk, parameters in memory, renamings."""

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from omni_kit.errors import Refusal
from omni_kit.layout import LayoutVerdict
from omni_kit.layout.loading import Loading, loading
from omni_kit.layout.taxonomy import Converter, Disk, plain
from omni_kit.pysource.classes import ClassRef
from omni_kit.targets.veomni.text.plain_converter import copies_of_ties
from omni_kit.targets.veomni.text.renaming import INSTEAD, about_experts, conversions, kept_names, renamings
from omni_kit.upstream.transformers.models import UpstreamModel
from omni_kit.upstream.transformers.traits import (
    EXPERT_COUNTS,
    EXPERT_WIDTHS,
    TEXT_PARTS,
    expert_parameters,
    text_config,
)

_SPLIT = {Disk.per_expert, Disk.per_expert_no_gate, Disk.per_expert_two_width}
_BIASED = {Disk.fused_transposed_bias, Disk.fused_transposed_interleaved}
_TURNED = {Disk.fused_transposed} | _BIASED
# Fields that count layers for further tokens, and what classes call the keys that they leave unread while they load.
_PREDICTION = re.compile(r"nextn|mtp")
_IGNORED = "_keys_to_ignore_on_load_unexpected"
_LAYER = re.compile(r"layers\\?\.\d+|mtp")
_SHOWN: Mapping[Disk, str] = {
    Disk.per_expert: "for each expert j {gate} [I, H], {up} [I, H], {down} [H, I]",
    Disk.per_expert_no_gate: "for each expert j {up} [I, H] and {down} [H, I]; there is no gate",
    Disk.per_expert_two_width: "for each expert j {gate} [I, H], {up} [I, H], {down} [H, I], of two widths I",
    Disk.fused_renamed: "{gate_up} [E, 2I, H] and {down} [E, H, I]",
    Disk.fused_transposed: "{gate_up} [E, H, 2I] and {down} [E, I, H]",
    Disk.fused_transposed_bias: "{gate_up} [E, H, 2I] and {down} [E, I, H], with biases [E, 2I] and [E, H]",
    Disk.fused_transposed_interleaved: (
        "{gate_up} [E, H, 2I], gate and up columns alternating, and {down} [E, I, H], with biases [E, 2I] and [E, H]"
    ),
    Disk.fused_interleaved_rows: "{gate_up} [E, 2I, H], gate and up rows alternating, and {down} [E, H, I]",
    Disk.stacked_unfused: "{gate} [E, I, H], {up} [E, I, H], {down} [E, H, I]",
}


@dataclass(frozen=True)
class ConverterContext:
    """Variables for the converter's template.

    Attributes:
        name, class_name: what its functions and classes are called after.
        veomni_models: the package that it imports from, with a dot at the end.
        disk: the layout that it reads.
        numbered: each expert has keys of its own.
        stacks: containers in memory that the experts of one list are divided among; none if there is one.
        oriented, biased, interleaved: the parts on disk are transposed, have biases, and alternate gate and up.
        on_disk, in_memory: both forms, as its docstring tells them.
        targets: parameter -> the parts that it is made of.
        expert_pattern: a regular expression that takes a key of an expert apart.
        count_name, width_name: how the config calls the number and the width of experts, below `text_parts`.
        renames, conversions: what the recipe does to keys and tensors other than the experts; `kept`, the names that no
            renaming may change.
        copies: parameter that may be tied -> the one that the file then has instead, where the tied one shares its
            module with others.
        predicts: checkpoints may have layers that predict further tokens, which the model does not have.
    """

    name: str
    class_name: str
    veomni_models: str
    disk: str
    numbered: bool
    stacks: tuple[str, ...]
    oriented: bool
    biased: bool
    interleaved: bool
    on_disk: str
    in_memory: str
    targets: Sequence[tuple[str, tuple[str, ...]]]
    expert_pattern: str
    count_name: str
    width_name: str
    renames: Sequence[Any]
    kept: Sequence[str]
    conversions: Sequence[Any]
    copies: Sequence[tuple[str, str]]
    predicts: bool
    text_parts: tuple[str, ...] = TEXT_PARTS


def layout_of(verdict: LayoutVerdict) -> Loading:
    """Return the loading of a checkpoint; any converter that it needs is one that the template can write.

    Raises:
        Refusal: no converter can read it, and why.
    """
    found = loading(verdict)
    if found.converter is Converter.unsupported:
        raise Refusal(found.reason, found.hint)
    if found.needs_converter and found.disk not in _SHOWN:
        raise Refusal(f"no converter template exists for experts stored as {found.disk}", f"evidence: {found.evidence}")
    return found


def class_prefix(name: str) -> str:
    """Return the integration's name as the beginning of class names: my_model -> MyModel."""
    return "".join(part.capitalize() for part in name.split("_"))


def converter_context(
    model: UpstreamModel, layout: Loading, name: str, veomni_models: str = "veomni.models."
) -> ConverterContext:
    """Return the template's context for a layout that needs a converter.

    Raises:
        BadInput: the module stacks more gates than downs, or the recipe does what a converter cannot.
    """
    assert layout.disk is not None
    _refuse_uneven(model)
    stacks = _stacks(model, layout)
    places = _places(model, layout, layout.disk in _SPLIT)
    targets = _targets(layout, tuple(leaf for _, leaf in places[0]))
    return ConverterContext(
        name=name,
        class_name=class_prefix(name),
        veomni_models=veomni_models,
        disk=str(layout.disk),
        numbered=layout.disk in _SPLIT,
        stacks=stacks,
        oriented=layout.disk in _TURNED,
        biased=layout.disk in _BIASED,
        interleaved=layout.disk in {Disk.fused_interleaved_rows, Disk.fused_transposed_interleaved},
        on_disk=_SHOWN[layout.disk].format(**_roles(layout)),
        in_memory=_in_memory(layout),
        targets=targets,
        expert_pattern=_expert_pattern(layout.disk, places, targets, stacks),
        count_name=_attribute(model, EXPERT_COUNTS),
        width_name=_attribute(model, EXPERT_WIDTHS),
        renames=renamings(model.recipe),
        kept=kept_names(model),
        conversions=conversions(model.recipe),
        copies=copies_of_ties(model),
        predicts=predicts(model),
    )


def predicts(model: UpstreamModel) -> bool:
    """Return whether the config announces prediction layers, or a class of the file ignores their keys while it
    loads.
    """
    config = text_config(model)
    announced = (config.find(name) for name in {*config.given, *config.cls.defaults} if _PREDICTION.search(name))
    if any(one is not None and isinstance(one.value, int) and one.value > 0 for one in announced):
        return True
    found = (ClassRef(model.source, node).assigned(_IGNORED) for node in model.source.classes.values())
    ignored = [node for one in found if one is not None for node in ast.walk(one[1]) if isinstance(node, ast.Constant)]
    return any(isinstance(node.value, str) and _LAYER.search(node.value) for node in ignored)


def _expert_pattern(
    disk: Disk, places: list[list[tuple[str, str]]], targets: list[tuple[str, tuple[str, ...]]], stacks: tuple[str, ...]
) -> str:
    """Groups: the container, the expert's number where it has one, the part."""
    boxes = dict.fromkeys(_box_pattern(found[0][0], bool(stacks)) for found in places)
    box = next(iter(boxes)) if len(boxes) == 1 else f"(?:{'|'.join(boxes)})"
    parts = [part for _, found in targets for part in found]
    biases = [f"{plain(part)}_bias" for part in parts] if disk in _BIASED else []
    leaves = "|".join(re.escape(part) for part in (*parts, *biases))
    number = (r"\.experts\.(\d+)" if stacks else r"\.(\d+)") if disk in _SPLIT else ""
    return rf"^((?:.+\.)?{box}){number}\.({leaves})$"


def _refuse_uneven(model: UpstreamModel) -> None:
    """A converter knows one number of experts; some modules stack more gates than downs."""
    stacked = {p.name.rpartition(".")[2]: p for p in expert_parameters(model.skeleton) if p.shape}
    if len({p.shape[0] for p in stacked.values() if p.shape}) > 1:
        shown = ", ".join(f"{p.shape[0]} of {leaf} ({p.where})" for leaf, p in stacked.items() if p.shape)
        owner = next(iter(stacked.values())).owner
        raise Refusal(
            f"{owner} stacks {shown}: there is no one number of experts, and VeOmni's converters of experts take one",
            INSTEAD,
        )


def _stacks(model: UpstreamModel, layout: Loading) -> tuple[str, ...]:
    """Containers in memory that the experts of one list are divided among, in order; none if there is one."""
    if layout.disk is not Disk.per_expert_two_width or model.recipe is None:
        return ()
    divided = next(t for t in model.recipe.transforms if len(t.targets) > 1 and about_experts(t))
    return tuple(target.rpartition(".")[0] for target in divided.targets)


def _roles(layout: Loading) -> dict[str, str]:
    keys = {3: ("gate", "up", "down"), 2: ("gate_up", "down")}[len(layout.names)]
    if layout.disk is Disk.per_expert_no_gate:
        keys = ("up", "down")
    return dict(zip(keys, layout.names, strict=True))


def _in_memory(layout: Loading) -> str:
    if layout.disk is Disk.per_expert_no_gate:
        return "up_proj [E, I, H] and down_proj [E, H, I]"
    return "gate_up_proj [E, 2I, H], gate rows first, and down_proj [E, H, I]"


def _places(model: UpstreamModel, layout: Loading, numbered: bool) -> list[list[tuple[str, str]]]:
    """For each container on disk, where its parts are after the renamings: (container with 0 for numbers, leaf)."""
    prefixes = layout.prefixes or (plain(expert_parameters(model.skeleton)[0].pattern).rpartition(".")[0],)
    found = []
    for prefix in prefixes:
        keys = [f"{prefix.replace('*', '0')}.{'0.' if numbered else ''}{leaf}" for leaf in layout.names]
        renamed = [model.recipe.renamed(key) if model.recipe else key for key in keys]
        found.append([_place(key, numbered) for key in renamed])
    return found


def _place(key: str, numbered: bool) -> tuple[str, str]:
    if numbered:
        container, _, leaf = key.rpartition(".0.")
        return container, leaf
    container, _, leaf = plain(key).rpartition(".")
    return container, leaf + key[len(plain(key)) :]


def _box_pattern(container: str, divided: bool) -> str:
    name = container.removesuffix(".experts") if divided else container
    return re.sub(r"(?<=\\\.)0(?=\\\.)", r"\\d+", re.escape(name)).removeprefix(r"model\.")


def _targets(layout: Loading, names: tuple[str, ...]) -> list[tuple[str, tuple[str, ...]]]:
    """Parameter -> parts, as they are called once the renamings were applied."""
    if layout.disk is Disk.per_expert_no_gate:
        return [("up_proj", names[:1]), ("down_proj", names[1:])]
    return [("gate_up_proj", names[:-1]), ("down_proj", names[-1:])]


def _attribute(model: UpstreamModel, names: Sequence[str]) -> str:
    """Return the first of `names` that the config of the text part really has, rather than as an alias."""
    config = text_config(model)
    found = (name for name in names if name in config.given or name in config.cls.defaults)
    return next(found, names[0])
