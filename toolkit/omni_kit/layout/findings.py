"""Findings about a checkpoint other than its layout: missing, contradicting and undecided parts."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from omni_kit.diagnostics.finding import Finding, Severity
from omni_kit.layout.accounting import Accounting
from omni_kit.layout.checkpoint import Checkpoint
from omni_kit.layout.codes import DEFINITIONS
from omni_kit.layout.subtrees import JudgedGroup, Subtree
from omni_kit.layout.taxonomy import Disk, Memory, plain
from omni_kit.plurals import counted
from omni_kit.upstream.model import Model


@dataclass(frozen=True)
class LayoutFinding:
    """One thing to know about a checkpoint, as an "error", a "warning" or an "info"."""

    code: str
    severity: str
    message: str

    @property
    def id(self) -> str:
        """The ID of the code, such as LAY101."""
        return DEFINITIONS[self.code].id

    def at(self, path: Path) -> Finding:
        """Return the finding that select, ignore, baselines and formats are about: of a whole checkpoint, not of a
        line.
        """
        return Finding(self.message, path, 0, rule=self.id, severity=Severity(self.severity))

    def as_json(self) -> dict[str, str]:
        """Return one entry of `findings`."""
        return {"id": self.id, **asdict(self)}


def findings_of(
    judged: Sequence[JudgedGroup],
    subtrees: Sequence[Subtree],
    checkpoint: Checkpoint,
    model: Model | None,
    accounting: Accounting | None,
) -> Iterator[LayoutFinding]:
    """Yield all findings, the experts' first."""
    for one in judged:
        yield from _number_of_experts(one, model)
    yield from _obstacles(judged)
    if model is None or accounting is None:
        yield _without_model(judged)
        return
    for subtree in subtrees:
        yield from _against_recipe(subtree, model, checkpoint.canonical)
    yield from findings_of_keys(accounting)


def findings_of_keys(accounting: Accounting) -> Iterator[LayoutFinding]:
    """Return the findings of the accounting alone: keys that feed nothing, and parameters filled with other shapes."""
    yield from _keys(accounting)
    yield from _misfits(accounting)


def _number_of_experts(one: JudgedGroup, model: Model | None) -> Iterator[LayoutFinding]:
    """Experts that are missing from a layer, or too many for it: loading would make a stack of another size."""
    counts = _expected(one, model)
    count, most = min(counts), max(counts)
    for leaf, experts in one.group.split.items():
        found = [number for number in experts if number < count]
        if len(found) < count:
            gap = next(number for number in range(count) if number not in experts)
            message = f"{count - len(found)} of {count} experts are missing: {one.group.prefix}.{gap}.{leaf}"
            yield LayoutFinding("incomplete-experts", "error", message)
    have = max(
        (number + 1 for experts in one.group.split.values() for number in experts), default=one.reading.num_experts
    )
    stacked = one.group.stacked and one.reading.num_experts not in {0, *counts}
    if have > most or stacked:
        verb = "stacks" if stacked else "has"
        yield LayoutFinding("expert-count", "error", f"{one.group.prefix} {verb} {have} experts, the model has {most}")


def _expected(one: JudgedGroup, model: Model | None) -> set[int]:
    """Return the expert counts of the parameters that a group feeds; if unknown, the apparent count.

    Experts of two widths feed two stacks; some stack more gates than downs, for experts that compute nothing.
    """
    parameters = model.skeleton.names() if model is not None else {}
    counts: dict[str, int] = {}
    for name in one.fed:
        shape = parameters[name].shape
        if shape is not None and len(shape) == 3 and shape[0] is not None:
            leaf = plain(name).rpartition(".")[2]
            counts[leaf] = counts.get(leaf, 0) + shape[0]
    return {*counts.values()} or {one.reading.num_experts}


def _obstacles(judged: Sequence[JudgedGroup]) -> Iterator[LayoutFinding]:
    """Yield why experts have no canonical form without loss, once for each container."""
    first = {one.group.pattern: one for one in reversed(judged) if one.obstacle}
    for one in first.values():
        yield LayoutFinding("quantised-experts" if one.reading.quantized else "not-exact", "error", one.obstacle)


def _without_model(judged: Sequence[JudgedGroup]) -> LayoutFinding:
    unknown = dict.fromkeys(one.open_question for one in judged if one.open_question)
    message = "; ".join(("no config.json, so keys cannot be mapped to parameters", *unknown))
    return LayoutFinding("no-config", "warning", message)


def _against_recipe(subtree: Subtree, model: Model, marked: bool) -> Iterator[LayoutFinding]:
    """Yield the disagreements between the file and transformers' declaration."""
    operations = {op.name for t in (model.recipe.transforms if model.recipe else ()) for op in t.operations}
    prefix = subtree.prefix
    if marked and subtree.disk is Disk.fused and subtree.memory.startswith("transposed"):
        message = f"{prefix} is canonical; transformers expects it {subtree.memory}: convert --to memory"
        yield LayoutFinding("canonical-form", "info", message)
    known = subtree.memory not in {Memory.none, Memory.module_dict}
    if known and subtree.disk is Disk.per_expert and "MergeModulelist" not in operations:
        message = f"{prefix} is stored per expert, and transformers {model.library.version} has no recipe for it"
        yield LayoutFinding("no-recipe", "error", message)
    transposes = "Transpose" in operations or subtree.memory.startswith("transposed")
    if subtree.disk is Disk.fused_transposed and known and not transposes:
        message = f"{prefix} is transposed on disk, but not in the recipe and the module"
        yield LayoutFinding("recipe-disagrees", "error", message)
    if subtree.disk in {Disk.fused_transposed_bias, Disk.fused_transposed_interleaved}:
        message = f"{prefix} has biases, which the canonical form cannot store"
        yield LayoutFinding("expert-biases", "warning", message)
    if subtree.ambiguous:
        message = f"{prefix}: fused or fused-transposed; pass the shards, or --assume one of them"
        yield LayoutFinding("ambiguous-orientation", "error", message)


def _keys(accounting: Accounting) -> Iterator[LayoutFinding]:
    if accounting.extra:
        names = ", ".join(accounting.extra[:3]) + (", ..." if len(accounting.extra) > 3 else "")
        message = f"{names} of the file: the model has no such layer, and the config declares no multi-token prediction"
        yield LayoutFinding("extra-layers", "error", message)
    if accounting.unmapped:
        count, first = len(accounting.unmapped), accounting.unmapped[0]
        yield LayoutFinding("unmapped-keys", "error", f"{counted(count, 'key')} without a parameter, {first} first")
    unfit = {misfit.parameter.name for misfit in accounting.misfits}
    if lost := [name for name in accounting.missing if name not in unfit]:
        message = f"{counted(lost, 'parameter')} without a key would be randomly initialised, {lost[0]} first"
        yield LayoutFinding("missing-parameters", "error", message)
    if accounting.not_judged:
        number, part = sum(item.count for item in accounting.not_judged), accounting.not_judged[0]
        message = f"{counted(number, 'key')} not judged: {part.reason}; {part.pattern} first"
        yield LayoutFinding("not-judged", "warning", message)


def _misfits(accounting: Accounting) -> Iterator[LayoutFinding]:
    """Yield one finding for each sort of parameter and of fault."""
    alike: dict[tuple[str, str, str], list[str]] = {}
    for misfit in accounting.misfits:
        key = misfit.parameter.pattern, misfit.code, misfit.message
        alike.setdefault(key, []).append(misfit.parameter.name)
    for (_, code, message), names in alike.items():
        others = f" and {len(names) - 1} more like it" if len(names) > 1 else ""
        yield LayoutFinding(code, "error", f"{names[0]}{others} {message}")
