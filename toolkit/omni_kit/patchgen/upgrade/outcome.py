"""The outcomes of the patches of a config, as data."""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

PatchStatus = Literal["carried", "merged", "dropped", "conflict"]
PATCH_STATUSES: tuple[PatchStatus, ...] = ("carried", "merged", "dropped", "conflict")
ConfigStatus = Literal["unchanged", "carried", "merged", "conflict", "error"]


@dataclass(frozen=True)
class Clash:
    """A place that upstream and the patch both changed, or that the new upstream does not fit.

    Attributes:
        reason: what collides, in one line.
        was, now, patch: the code of the older upstream, the newer one, and the patch.
        textual: whether only the way the code is laid out keeps the trees from being merged.
    """

    reason: str
    was: str = ""
    now: str = ""
    patch: str = ""
    textual: bool = False

    def as_json(self) -> dict[str, str]:
        """Return the clash for machines."""
        return {"reason": self.reason, "was": self.was, "now": self.now, "patch": self.patch}


@dataclass
class PatchOutcome:
    """The outcome of one patch.

    Attributes:
        target: the target after the upgrade; `was` is the older one where upstream renamed it.
        reason: why, in one line; empty for a patch that is carried as it is.
        clashes: what a person has to decide.
        effects: what each choice means for training, one line each.
    """

    target: str
    status: PatchStatus = "carried"
    reason: str = ""
    was: str = ""
    path: Path | None = None
    line: int = 0
    clashes: list[Clash] = field(default_factory=list)
    effects: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """Return the outcome for machines."""
        found: dict[str, Any] = {"target": self.target, "status": self.status, "reason": self.reason}
        if self.was:
            found["was"] = self.was
        if self.clashes:
            found |= {"path": str(self.path or ""), "line": self.line, "effects": self.effects}
            found["conflicts"] = [clash.as_json() for clash in self.clashes]
        return found


@dataclass
class ConfigOutcome:
    """The outcome of one config; `text` is its new text, and `before` its current one."""

    config: str
    path: Path
    patches: list[PatchOutcome] = field(default_factory=list)
    error: str = ""
    notes: list[str] = field(default_factory=list)
    before: str = ""
    text: str = ""
    source_module: str = ""
    seconds: float = 0.0

    @property
    def status(self) -> ConfigStatus:
        """The worst of its patches; "carried" where only imports or versions changed, "unchanged" where nothing did."""
        if self.error:
            return "error"
        found = {patch.status for patch in self.patches}
        if "conflict" in found:
            return "conflict"
        if found & {"merged", "dropped"}:
            return "merged"
        return "unchanged" if self.text == self.before else "carried"

    @property
    def counts(self) -> dict[PatchStatus, int]:
        """Return the number of its patches with each status."""
        return {status: self.count(status) for status in PATCH_STATUSES}

    def count(self, status: PatchStatus) -> int:
        """Return the number of its patches with a status."""
        return sum(patch.status == status for patch in self.patches)

    def continue_from(self, earlier: Sequence[Mapping[str, str]]) -> None:
        """Report a patch that an earlier run of the same upgrade merged or dropped as what that run made of it."""
        now = {one.target: one for one in self.patches}
        for one in earlier:
            patch = now.get(one["target"])
            if one["status"] == "merged" and patch is not None and patch.status == "carried":
                patch.status, patch.reason, patch.was = "merged", one["reason"], one.get("was", "")
            elif one["status"] == "dropped" and patch is None:
                self.patches.append(PatchOutcome(one["target"], "dropped", one["reason"]))

    def diff(self, root: Path) -> str:
        """Return the changes of the config's file, as a unified diff."""
        name = str(self.path.relative_to(root)) if self.path.is_relative_to(root) else str(self.path)
        lines = difflib.unified_diff(
            self.before.splitlines(), self.text.splitlines(), f"a/{name}", f"b/{name}", lineterm=""
        )
        return "\n".join(lines)

    def as_json(self) -> dict[str, Any]:
        """Return the outcome for machines."""
        found: dict[str, Any] = {"config": self.config, "path": str(self.path), "status": self.status}
        found |= {"patches": [patch.as_json() for patch in self.patches], "notes": self.notes}
        return found | ({"error": self.error} if self.error else {}) | {"seconds": round(self.seconds, 3)}


@dataclass
class UpgradeResult:
    """All configs of one upgrade, and the versions."""

    before: str
    after: str
    configs: list[ConfigOutcome] = field(default_factory=list)

    @property
    def counts(self) -> dict[PatchStatus, int]:
        """Return the number of patches of all configs with each status."""
        return {status: sum(one.count(status) for one in self.configs) for status in PATCH_STATUSES}

    @property
    def ok(self) -> bool:
        """Return whether no config fails and nothing is left to decide."""
        return all(config.status not in ("conflict", "error") for config in self.configs)
