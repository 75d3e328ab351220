"""The gate between a tool's findings and its report: IDs, comments and a baseline can ignore findings."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from omni_kit.diagnostics.baseline import Baseline
from omni_kit.diagnostics.definition import Definition, Selection
from omni_kit.diagnostics.finding import Finding
from omni_kit.diagnostics.settings import Settings
from omni_kit.diagnostics.suppress import Suppression, suppressions
from omni_kit.errors import BadInput
from omni_kit.plurals import counted


@dataclass
class Gate:
    """Selects the findings that are reported.

    Attributes:
        ids: every ID that a finding can have.
        settings: IDs that are selected or ignored, in the whole project or in some files.
        known: the baseline; None without one.
        findings: what is reported so far.
        ignored: how many findings have not passed because of settings or comments.
        matched: how many the baseline knew.
    """

    ids: Mapping[str, Definition]
    settings: Settings = field(default_factory=Settings)
    known: Baseline | None = None
    findings: list[Finding] = field(default_factory=list)
    ignored: int = 0
    matched: int = 0
    _comments: dict[Path, list[Suppression]] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        definitions: Sequence[Definition],
        select: Sequence[str] = (),
        ignore: Sequence[str] = (),
        settings: Settings | None = None,
        baseline: Path | None = None,
    ) -> "Gate":
        """Return the gate of a command. Settings of the project count as far as they are about these IDs.

        Raises:
            BadInput: a prefix fits none of the IDs, an ID that cannot be ignored is named, or there is no baseline.
        """
        known = {one.id: one for one in definitions}
        for prefix in Selection(select, ignore).unknown(known):
            raise BadInput(f"no diagnostic has an ID that starts with '{prefix}'", "see `omni-kit rules list`")
        fixed = next((one for one in ignore if one.upper() in known and not known[one.upper()].suppressible), None)
        if fixed is not None:
            raise BadInput(f"{fixed.upper()} cannot be ignored", f"see `omni-kit rules explain {fixed.upper()}`")
        project = settings or Settings()
        there = {one for one in (*project.select, *project.ignore) if not Selection([one]).unknown(known)}
        project = replace(
            project,
            select=tuple(one for one in project.select if one in there),
            ignore=tuple(one for one in project.ignore if one in there),
        )
        chosen = project.overridden(select=select, ignore=ignore)
        return cls(known, chosen, Baseline(baseline).read() if baseline is not None else None)

    def definitions(self) -> list[Definition]:
        """Every ID that a finding can have."""
        return list(self.ids.values())

    def passes(self, finding: Finding) -> bool:
        """Return whether a finding is reported. An ID that cannot be ignored always is."""
        if not self.ids[finding.rule].suppressible:
            self.findings.append(finding)
            return True
        if finding.rule not in self.settings.selection or self.settings.silences(finding) or self._commented(finding):
            self.ignored += 1
            return False
        if self.known is not None and self.known.take(finding):
            self.matched += 1
            return False
        self.findings.append(finding)
        return True

    def write(self, file: Path) -> str:
        """Write the reported findings as a baseline, and return the message that says so.

        Raises:
            BadInput: the file is there and is not a baseline.
        """
        baseline = Baseline(file)
        baseline.check_replaceable()
        return baseline.written(self.findings)

    def notes(self) -> list[str]:
        """Return notes about ignored findings."""
        hidden = ((self.ignored, "ignored"), (self.matched, "known by the baseline"))
        said = [f"{counted(count, 'finding')} {what}" for count, what in hidden if count]
        left = self.known.known.total() if self.known is not None else 0
        return said + ([f"{counted(left, 'entry')} of the baseline without a finding"] if left else [])

    def _commented(self, finding: Finding) -> bool:
        path = finding.path
        if path.suffix != ".py":
            return False
        if path not in self._comments:
            try:
                self._comments[path] = suppressions(path, path.read_text(encoding="utf-8"))[0]
            except (OSError, UnicodeDecodeError):
                self._comments[path] = []
        return any(one.covers(finding) for one in self._comments[path])
