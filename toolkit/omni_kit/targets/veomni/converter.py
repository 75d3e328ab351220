"""What the converter template needs to know: parts on disk, parameters in memory, renamings."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from omni_kit.errors import BadInput
from omni_kit.layout import LayoutVerdict
from omni_kit.layout.taxonomy import Disk, Memory, plain
from omni_kit.upstream.conversion import Transform
from omni_kit.upstream.model import UpstreamModel
from omni_kit.upstream.profile import EXPERT_COUNTS, EXPERT_WIDTHS, expert_parameters

_SPLIT = {Disk.per_expert, Disk.per_expert_no_gate}
_SHOWN: Mapping[Disk, str] = {
    Disk.per_expert: "for each expert j {gate} [I, H], {up} [I, H], {down} [H, I]",
    Disk.per_expert_no_gate: "for each expert j {up} [I, H] and {down} [H, I]; there is no gate",
    Disk.fused_renamed: "{gate_up} [E, 2I, H] and {down} [E, H, I]",
    Disk.fused_transposed: "{gate_up} [E, H, 2I] and {down} [E, I, H]",
    Disk.fused_interleaved_rows: "{gate_up} [E, 2I, H], gate and up rows alternating, and {down} [E, H, I]",
    Disk.stacked_unfused: "{gate} [E, I, H], {up} [E, I, H], {down} [E, H, I]",
}
CONVERTIBLE = frozenset(_SHOWN)


@dataclass(frozen=True)
class ExpertLayout:
    """The expert layout that a converter is written for, and how it is known.

    Attributes:
        names: leaves on disk: (gate, up, down), (up, down) or (gate_up, down).
    """

    disk: Disk | None
    names: tuple[str, ...]
    reason: str
    evidence: str

    @property
    def needs_converter(self) -> bool:
        return self.disk in CONVERTIBLE


def layout_of(verdict: LayoutVerdict) -> ExpertLayout:
    """The layout that a converter for this checkpoint must read.

    Raises:
        BadInput: the verdict leaves it open, or there is no canonical form to convert to.
    """
    if verdict.verdict in {"ambiguous", "unsupported", "mixed"}:
        shown = ", ".join(f"{s.prefix}: {s.disk or 'unknown'}" for s in verdict.subtrees)
        raise BadInput(f"the checkpoint's expert layout is {verdict.verdict} ({shown})", "see omni-kit check-layout")
    if not verdict.subtrees:
        return ExpertLayout(Disk.none, (), "the checkpoint has no experts", "headers")
    subtree = verdict.subtrees[0]
    evidence = "; ".join(subtree.evidence)
    if subtree.quantized:
        raise BadInput(
            f"the checkpoint's experts are quantised ({subtree.quantized}): a converter would drop their scales",
            "dequantise it first, or take an unquantised checkpoint",
        )
    if subtree.memory not in {Memory.canonical, Memory.no_gate}:
        return ExpertLayout(Disk.none, (), f"the modules hold them {subtree.memory}, as they lie on disk", evidence)
    if subtree.disk is not Disk.fused and subtree.disk not in CONVERTIBLE:
        raise BadInput(f"there is no converter template for experts that lie {subtree.disk}", f"evidence: {evidence}")
    return ExpertLayout(subtree.disk, subtree.names, "as the checkpoint's headers show", evidence)


def class_prefix(name: str) -> str:
    """The integration's name as the beginning of class names: my_model -> MyModel."""
    return "".join(part.capitalize() for part in name.split("_"))


def converter_context(model: UpstreamModel, layout: ExpertLayout) -> dict[str, Any]:
    """The template's context for a layout that needs a converter."""
    assert layout.disk is not None
    parameters = expert_parameters(model.skeleton)
    box = re.escape(parameters[0].pattern.rpartition(".")[0]).replace(r"\*", r"\d+").removeprefix(r"model\.")
    renames = [_rename(t) for t in (model.recipe.transforms if model.recipe else ()) if not t.converts]
    numbered = layout.disk in _SPLIT
    targets = _targets(layout, renames)
    leaves = "|".join(re.escape(part) for _, parts in targets for part in parts)
    number = r"\.(\d+)" if numbered else ""
    roles = _roles(layout)
    return {
        "disk": str(layout.disk),
        "numbered": numbered,
        "oriented": layout.disk is Disk.fused_transposed,
        "interleaved": layout.disk is Disk.fused_interleaved_rows,
        "on_disk": _SHOWN[layout.disk].format(**roles),
        "in_memory": _in_memory(layout),
        "targets": targets,
        "expert_pattern": rf"^((?:.+\.)?{box}){number}\.({leaves})$",
        "count_name": _attribute(model, EXPERT_COUNTS),
        "width_name": _attribute(model, EXPERT_WIDTHS),
        "renames": renames,
    }


def _roles(layout: ExpertLayout) -> dict[str, str]:
    keys = {3: ("gate", "up", "down"), 2: ("gate_up", "down")}[len(layout.names)]
    if layout.disk is Disk.per_expert_no_gate:
        keys = ("up", "down")
    return dict(zip(keys, layout.names, strict=True))


def _in_memory(layout: ExpertLayout) -> str:
    if layout.disk is Disk.per_expert_no_gate:
        return "up_proj [E, I, H] and down_proj [E, H, I]"
    return "gate_up_proj [E, 2I, H], gate rows first, and down_proj [E, H, I]"


def _targets(layout: ExpertLayout, renames: Sequence[tuple[str, str]]) -> list[tuple[str, tuple[str, ...]]]:
    """Parameter -> parts, as they are called once the renamings were applied."""
    names = tuple(_renamed_leaf(name, renames) for name in layout.names)
    if layout.disk is Disk.per_expert_no_gate:
        return [("up_proj", names[:1]), ("down_proj", names[1:])]
    return [("gate_up_proj", names[:-1]), ("down_proj", names[-1:])]


def _renamed_leaf(leaf: str, renames: Sequence[tuple[str, str]]) -> str:
    """A leaf of a stacked tensor after the renamings; those of numbered experts keep their names."""
    for source, target in renames:
        if plain(leaf) in re.sub(r"\\", "", source).split("."):
            return target.rpartition(".")[2]
    return leaf


def _rename(transform: Transform) -> tuple[str, str]:
    return transform.sources[0], transform.targets[0].removeprefix("^").removesuffix("$").replace(r"\.", ".")


def _attribute(model: UpstreamModel, names: Sequence[str]) -> str:
    """The first of `names` that the config really has, rather than as an alias."""
    config = model.config
    found = (name for name in names if name in config.given or name in config.cls.defaults)
    return next(found, names[0])
