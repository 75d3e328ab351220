"""The verdict on a checkpoint's expert layout: decided by the file, explained by the recipe."""

from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from omni_kit.diagnostics.gate import Gate
from omni_kit.errors import BadInput
from omni_kit.layout.accounting import Accounting, account
from omni_kit.layout.checkpoint import Checkpoint
from omni_kit.layout.disk import DiskReading, read_disk
from omni_kit.layout.findings import LayoutFinding, findings_of
from omni_kit.layout.groups import expert_groups
from omni_kit.layout.loader_proof import LoadProof, prove_loading
from omni_kit.layout.memory import interleaves
from omni_kit.layout.subtrees import Subtree, judge_group, merge
from omni_kit.layout.taxonomy import Converter, Disk
from omni_kit.plurals import counted
from omni_kit.upstream.model import Model
from omni_kit.upstream.transformers.models import UpstreamModel
from omni_kit.upstream.transformers.traits import EXPERT_COUNTS, text_config

# So few layers or experts are gone through at once, whether the file has them or not.
MOST_BELIEVED = 256


@dataclass(frozen=True)
class LayoutVerdict:
    """The report of check-layout."""

    model: Model | None
    subtrees: tuple[Subtree, ...]
    verdict: str
    converter: Converter | None
    accounting: Accounting | None
    total: int
    expert_keys: int
    findings: tuple[LayoutFinding, ...] = field(default=())
    load_proof: LoadProof | None = None
    ignored: frozenset[str] = frozenset()

    def through(self, gate: Gate, path: Path) -> "LayoutVerdict":
        """Return the verdict with the findings that a gate reports; ignored findings no longer count.

        Args:
            path: of the checkpoint.
        """
        kept = tuple(one for one in self.findings if gate.passes(one.at(path)))
        gone = {one.code for one in self.findings} - {one.code for one in kept}
        return replace(self, findings=kept, ignored=frozenset(gone))

    @property
    def ok(self) -> bool:
        """Return whether the layout is known and usable, every key is accounted for, and no finding is an error."""
        fine = self.verdict in {"native", "convertible", "mixed", "not-moe"}
        return fine and self._open() == set() and not self._errors()

    @property
    def untested(self) -> bool:
        """Return whether nothing is wrong with what could be looked at, and not all of it could be."""
        accounting = self.accounting
        if self.ok or accounting is None or self._errors() or self.verdict in {"ambiguous", "unsupported"}:
            return False
        return self._open() == {"not-judged"}

    def _open(self) -> set[str] | None:
        """Return the codes of what the account leaves open and nobody ignores; None without an account."""
        if self.accounting is None:
            return set() if "no-config" in self.ignored else None
        found = {
            "unmapped-keys": self.accounting.unmapped,
            "missing-parameters": self.accounting.missing,
            "not-judged": self.accounting.not_judged,
            **{one.code: True for one in self.accounting.misfits},
        }
        return {code for code, there in found.items() if there} - self.ignored

    def _proof(self) -> str:
        if self.accounting is None:
            return "none: no config, so keys cannot be checked against a model"
        if self.load_proof is None or self.model is None:
            return self.accounting.proof
        if not self.load_proof.complete:
            return ""
        count, version = self.load_proof.parameters, self.model.library.version
        filled = f"{counted(count, 'parameter')} of {self.model.class_name} filled"
        return f"{filled} by the loader of transformers {version} on meta"

    def _errors(self) -> bool:
        return any(finding.severity == "error" for finding in self.findings)

    def as_json(self) -> dict[str, Any]:
        """Return the command's own fields of the contract."""
        recipe = self.model.recipe if self.model else None
        accounting = self.accounting
        return {
            "model_type": self.model.name if self.model else None,
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
                "not_judged": [asdict(item) for item in accounting.not_judged] if accounting else [],
                "proof": self._proof(),
            },
            "findings": [finding.as_json() for finding in self.findings],
        }


def judge(checkpoint: Checkpoint, model: Model | None, assume: Disk | None = None) -> LayoutVerdict:
    """Judges a checkpoint.

    Args:
        model: the upstream model that it belongs to; None when no config says.
        assume: the DISK layout to take where the file leaves it open.

    Raises:
        BadInput: the config speaks of more than the file can hold.
    """
    if model is not None:
        _believe(model, checkpoint)
    groups = expert_groups(checkpoint)
    interleaved = model is not None and bool(groups) and interleaves(model)
    accounting = account(checkpoint, model, groups) if model is not None else None
    judged = [
        judge_group(group, _settle(read_disk(group, checkpoint, interleaved), assume), checkpoint, model, accounting)
        for group in groups
    ]
    subtrees = tuple(merge(judged, checkpoint))
    converters = {subtree.converter for subtree in subtrees if subtree.role != "attention"}
    return LayoutVerdict(
        model=model,
        subtrees=subtrees,
        verdict=_verdict(subtrees, converters),
        converter=converters.pop() if len(converters) == 1 else None,
        accounting=accounting,
        total=len(checkpoint.tensors),
        expert_keys=sum(1 for group in groups for _ in group.members()),
        findings=tuple(findings_of(judged, subtrees, checkpoint, model, accounting)),
    )


def _believe(model: Model, checkpoint: Checkpoint) -> None:
    """Refuses a config with more layers than the file has tensors, or more experts than any of its dimensions."""
    if not isinstance(model, UpstreamModel):  # whose config was looked at when it was opened
        return
    config, tensors = text_config(model), checkpoint.tensors
    shapes = (info.shape for info in tensors.values() if info is not None)
    widest = max((size for shape in shapes for size in shape), default=0)
    limits: list[tuple[tuple[str, ...], int]] = [(("num_hidden_layers",), len(tensors))]
    if not checkpoint.names_only:
        limits.append((EXPERT_COUNTS, max(len(tensors), widest)))
    for names, most in limits:
        found = config.find(*names)
        if found is not None and isinstance(found.value, int) and found.value > max(most, MOST_BELIEVED):
            message = f"{found.evidence} is {found.value}, and {checkpoint.path.name} has {counted(tensors, 'tensor')}"
            raise BadInput(message, "pass this checkpoint's config")


def prove(verdict: LayoutVerdict, checkpoint: Checkpoint) -> LayoutVerdict:
    """Return the verdict with the real loader's proof, whose results become findings.

    Raises:
        BadInput: no config says which model it is, or the model cannot be built.
        MissingRequirement: torch is not installed.
    """
    if verdict.model is None or verdict.accounting is None:
        raise BadInput("--against-model requires a known model", "pass --model-type or --config FILE")
    if not isinstance(verdict.model, UpstreamModel):
        name = verdict.model.class_name
        raise BadInput(f"--against-model supports transformers models only; {name} is none", "remove the option")
    proof = prove_loading(checkpoint, verdict.model, verdict.accounting)
    found = [
        LayoutFinding(f"load-{what}", "error", f"{counted(names, 'parameter')} {said}, {names[0]} first")
        for what, said, names in (
            ("missing", "would be newly initialised", proof.missing),
            ("unexpected", "would be left over", proof.unexpected),
            ("mismatched", "would get another shape", proof.mismatched),
            ("twice", "are filled by two keys", proof.twice),
        )
        if names
    ]
    if proof.error:
        found.append(LayoutFinding("load-error", "error", f"transformers cannot load it: {proof.error}"))
    return replace(verdict, load_proof=proof, findings=(*verdict.findings, *found))


def as_layout(assume: str | None) -> Disk | None:
    """Return the layout of this name; None without a name.

    Raises:
        BadInput: no layout has the name.
    """
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
