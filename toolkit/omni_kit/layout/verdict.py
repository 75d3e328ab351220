"""The verdict on a checkpoint's expert layout: decided by what is in the file, explained by the recipe."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from omni_kit.errors import BadInput
from omni_kit.layout.accounting import Accounting, account
from omni_kit.layout.against import LoadProof, prove_loading
from omni_kit.layout.checkpoint import Checkpoint
from omni_kit.layout.disk import DiskReading, read_disk
from omni_kit.layout.groups import ExpertGroup, expert_groups
from omni_kit.layout.memory import interleaves, memory_layout
from omni_kit.layout.taxonomy import CONVERTERS, Converter, Disk, Memory
from omni_kit.upstream.transformers.models import UpstreamModel
from omni_kit.upstream.transformers.traits import EXPERT_COUNTS

# A word of the prefix -> the role of the experts below it.
_ROLES = {
    "visual": "vision", "vision_tower": "vision", "vision_model": "vision", "talker": "talker", "thinker": "text",
    "language_model": "text", "text_model": "text",
}  # fmt: skip


@dataclass(frozen=True)
class LayoutFinding:
    """One thing to know about a checkpoint, as an "error", a "warning" or an "info"."""

    code: str
    severity: str
    message: str


@dataclass(frozen=True)
class Subtree:
    """The experts of one container across layers that share a layout."""

    prefix: str
    layers: tuple[int, ...]
    role: str
    disk: Disk | None
    memory: Memory
    converter: Converter
    num_experts: int
    names: tuple[str, ...]
    dtype: str | None
    quantized: str | None
    ambiguous: bool
    evidence: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """One entry of `subtrees`, with the names of the weights by their part."""
        keys = {2: ("gate_up", "down"), 3: ("gate", "up", "down")}.get(len(self.names), ())
        if self.disk is Disk.per_expert_no_gate:
            keys = ("up", "down")
        named = dict(zip(keys, self.names, strict=True)) if self.disk and keys else {"parts": list(self.names)}
        return asdict(self) | {"names": named, "disk": self.disk or "none"}


@dataclass(frozen=True)
class LayoutVerdict:
    """What check-layout reports."""

    model: UpstreamModel | None
    subtrees: tuple[Subtree, ...]
    verdict: str
    converter: Converter | None
    accounting: Accounting | None
    total: int
    expert_keys: int
    findings: tuple[LayoutFinding, ...] = field(default=())
    load_proof: LoadProof | None = None

    @property
    def ok(self) -> bool:
        """Whether the layout is known and usable, every key is accounted for, and no finding is an error."""
        fine = self.verdict in {"native", "convertible", "mixed", "not-moe"}
        return fine and self.accounting is not None and self.accounting.complete and not self._errors()

    def _proof(self) -> str:
        if self.accounting is None:
            return "none: no config, so no model to account against"
        if self.load_proof is None or self.model is None:
            return self.accounting.proof
        count, version = self.load_proof.parameters, self.model.library.version
        return f"{count} parameters of {self.model.class_name} filled by the loader of transformers {version} on meta"

    def _errors(self) -> bool:
        return any(finding.severity == "error" for finding in self.findings)

    def as_json(self) -> dict[str, Any]:
        """The command's own fields of the contract."""
        recipe = self.model.recipe if self.model else None
        accounting = self.accounting
        return {
            "model_type": self.model.config.model_type if self.model else None,
            "recipe": None
            if recipe is None
            else {
                "resolved_from": list(recipe.resolved_from),
                "alias_of": recipe.alias_of,
                "shadowed_alias": recipe.shadowed_alias,
                "operations": recipe.operations,
                "library_version": recipe.library_version,
            },
            "subtrees": [subtree.as_json() for subtree in self.subtrees],
            "verdict": self.verdict,
            "converter": self.converter,
            "keys": {
                "total": self.total,
                "expert": self.expert_keys,
                "mapped": accounting.mapped if accounting else 0,
                "unmapped": list(accounting.unmapped) if accounting else [],
                "missing": list(accounting.missing) if accounting else [],
                "ignored": [asdict(item) for item in accounting.ignored] if accounting else [],
                "proof": self._proof(),
            },
            "findings": [asdict(finding) for finding in self.findings],
        }


def judge(checkpoint: Checkpoint, model: UpstreamModel | None, assume: str | None = None) -> LayoutVerdict:
    """Judges a checkpoint.

    Args:
        model: the upstream model that it belongs to; None when no config says.
        assume: the DISK layout to take where the file leaves it open.

    Raises:
        BadInput: `assume` is no layout.
    """
    assumed = _assumed(assume)
    groups = expert_groups(checkpoint)
    interleaved = model is not None and bool(groups) and interleaves(model)
    readings = [(group, _settle(read_disk(group, checkpoint, interleaved), assumed)) for group in groups]
    accounting = account(checkpoint, model, groups) if model is not None else None
    subtrees = tuple(_subtrees(readings, checkpoint, model, accounting))
    findings = [*_complete(readings, model), *_recipe(subtrees, model, checkpoint.canonical), *_keys(accounting)]
    converters = {subtree.converter for subtree in subtrees if subtree.role != "attention"}
    return LayoutVerdict(
        model=model,
        subtrees=subtrees,
        verdict=_verdict(subtrees, converters),
        converter=converters.pop() if len(converters) == 1 else None,
        accounting=accounting,
        total=len(checkpoint.tensors),
        expert_keys=sum(1 for group in groups for _ in group.members()),
        findings=tuple(findings),
    )


def prove(verdict: LayoutVerdict, checkpoint: Checkpoint) -> LayoutVerdict:
    """The verdict with the proof by the real loader; what it found is added to the findings.

    Raises:
        BadInput: no config says which model it is, or the model cannot be built.
        MissingRequirement: torch is not installed.
    """
    if verdict.model is None or verdict.accounting is None:
        raise BadInput("--against-model needs to know the model", "give --model-type, or --config FILE")
    proof = prove_loading(checkpoint, verdict.model, verdict.accounting)
    found = [
        LayoutFinding(f"load-{what}", "error", f"{len(names)} parameters {said}, {names[0]} first")
        for what, said, names in (
            ("missing", "would be newly initialised", proof.missing),
            ("unexpected", "would be left over", proof.unexpected),
            ("mismatched", "would get another shape", proof.mismatched),
            ("twice", "are fed by two keys", proof.twice),
        )
        if names
    ]
    if proof.error:
        found.append(LayoutFinding("load-error", "error", f"transformers cannot load it: {proof.error}"))
    return replace(verdict, load_proof=proof, findings=(*verdict.findings, *found))


def _assumed(assume: str | None) -> Disk | None:
    if assume is None:
        return None
    if assume not in set(Disk):
        raise BadInput(f"unknown layout '{assume}'", f"one of {', '.join(Disk)}")
    return Disk(assume)


def _settle(reading: DiskReading, assumed: Disk | None) -> DiskReading:
    if not reading.ambiguous or assumed is None:
        return reading
    evidence = (*reading.evidence, f"assumed to be {assumed}")
    return replace(reading, disk=assumed, ambiguous=False, evidence=evidence)


def _subtrees(
    readings: list[tuple[ExpertGroup, DiskReading]],
    checkpoint: Checkpoint,
    model: UpstreamModel | None,
    accounting: Accounting | None,
) -> Iterator[Subtree]:
    layers = model.find("num_hidden_layers") if model else None
    merged: dict[tuple[Any, ...], list[tuple[ExpertGroup, DiskReading]]] = {}
    for group, reading in readings:
        role = _role(group, layers.value if layers else None)
        key = (
            group.pattern,
            role,
            reading.disk,
            reading.names,
            reading.num_experts,
            reading.ambiguous,
            reading.quantized,
        )
        merged.setdefault(key, []).append((group, reading))
    for (pattern, role, *_), members in merged.items():
        group, reading = members[0]
        yield Subtree(
            prefix=pattern,
            layers=tuple(sorted(g.layer for g, _ in members if g.layer is not None)),
            role=role,
            disk=reading.disk,
            memory=_memory(group, model, accounting),
            converter=Converter.none if role == "attention" else _converter(reading),
            num_experts=reading.num_experts,
            names=reading.names,
            dtype=checkpoint.dtype(next(group.members())),
            quantized=reading.quantized,
            ambiguous=reading.ambiguous,
            evidence=reading.evidence,
        )


def _memory(group: ExpertGroup, model: UpstreamModel | None, accounting: Accounting | None) -> Memory:
    if model is None or accounting is None:
        return Memory.none
    targets = (name for key in group.members() for name in accounting.feeds.get(key, ()))
    return memory_layout(model, tuple(dict.fromkeys(targets)))


def _converter(reading: DiskReading) -> Converter:
    if reading.disk is None or reading.ambiguous or reading.quantized == "mxfp4":
        return Converter.unsupported
    return CONVERTERS.get(reading.disk, Converter.unsupported)


def _role(group: ExpertGroup, layers: Any) -> str:
    words = group.prefix.split(".")
    if "mtp" in words or (isinstance(layers, int) and group.layer is not None and group.layer >= layers):
        return "mtp"
    for word, role in _ROLES.items():
        if word in words:
            return role
    return "attention" if "self_attn" in words or "self_attention" in words else "main"


def _verdict(subtrees: tuple[Subtree, ...], converters: set[Converter]) -> str:
    if not subtrees:
        return "not-moe"
    if any(subtree.ambiguous for subtree in subtrees):
        return "ambiguous"
    if Converter.unsupported in converters:
        return "unsupported"
    if len(converters) > 1:
        return "mixed"
    return "native" if converters == {Converter.none} else "convertible"


def _complete(readings: list[tuple[ExpertGroup, DiskReading]], model: UpstreamModel | None) -> Iterator[LayoutFinding]:
    """Experts that are missing from a layer: loading would shrink the stack."""
    expected = model.config.get(*EXPERT_COUNTS) if model else None
    for group, reading in readings:
        count = expected if isinstance(expected, int) else reading.num_experts
        for leaf, experts in group.split.items():
            gaps = [number for number in range(count) if number not in experts]
            if gaps:
                first = f"{group.prefix}.{gaps[0]}.{leaf}"
                yield LayoutFinding(
                    "incomplete-experts", "error", f"{len(gaps)} of {count} experts are missing: {first}"
                )
        if reading.disk in {Disk.fused, Disk.fused_transposed} and reading.num_experts not in {0, count}:
            message = f"{group.prefix} stacks {reading.num_experts} experts, the config has {count}"
            yield LayoutFinding("expert-count", "error", message)


def _recipe(subtrees: tuple[Subtree, ...], model: UpstreamModel | None, marked: bool) -> Iterator[LayoutFinding]:
    """Where the file and what transformers declares disagree, both are said."""
    if model is None:
        yield LayoutFinding(
            "no-config", "warning", "no config.json: the layout is known, the keys cannot be accounted for"
        )
        return
    recipe = model.recipe
    operations = {op.name for t in recipe.transforms for op in t.operations} if recipe else set()
    for subtree in subtrees:
        if marked and subtree.disk is Disk.fused and subtree.memory.startswith("transposed"):
            message = f"{subtree.prefix} is canonical; transformers wants it {subtree.memory}: convert --to memory"
            yield LayoutFinding("canonical-form", "info", message)
        known = subtree.memory not in {Memory.none, Memory.module_dict}
        if known and subtree.disk is Disk.per_expert and "MergeModulelist" not in operations:
            message = (
                f"{subtree.prefix} is split by expert, and transformers {model.library.version} has no recipe for it"
            )
            yield LayoutFinding("no-recipe", "error", message)
        transposes = "Transpose" in operations or subtree.memory.startswith("transposed")
        if subtree.disk is Disk.fused_transposed and known and not transposes:
            message = f"{subtree.prefix} is transposed on disk; the recipe and the module say that it is not"
            yield LayoutFinding("recipe-disagrees", "error", message)
        if subtree.disk in {Disk.fused_transposed_bias, Disk.fused_transposed_interleaved}:
            message = f"{subtree.prefix} has biases, for which the canonical form has no place: they need their own"
            yield LayoutFinding("expert-biases", "warning", message)
        if subtree.ambiguous:
            message = f"{subtree.prefix}: fused or fused-transposed; give the shards, or --assume one of them"
            yield LayoutFinding("ambiguous-orientation", "error", message)


def _keys(accounting: Accounting | None) -> Iterator[LayoutFinding]:
    if accounting is None:
        return
    if accounting.unmapped:
        count, first = len(accounting.unmapped), accounting.unmapped[0]
        yield LayoutFinding("unmapped-keys", "error", f"{count} keys feed no parameter, {first} first")
    if accounting.missing:
        count, first = len(accounting.missing), accounting.missing[0]
        message = f"{count} parameters are fed by no key and would be randomly initialised, {first} first"
        yield LayoutFinding("missing-parameters", "error", message)
