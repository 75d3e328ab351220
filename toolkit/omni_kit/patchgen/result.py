"""The result of a config: its last stage, its diagnostics and the verdict."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from omni_kit.diagnostics.finding import Finding
from omni_kit.patchgen.apply import Applied
from omni_kit.patchgen.diagnostics import Diagnostic
from omni_kit.patchgen.generate import Generated
from omni_kit.patchgen.loader import LoadedConfig
from omni_kit.patchgen.write import diff_path, unified_diff

Status = Literal["written", "unchanged", "ok", "stale", "orphan", "error"]


@dataclass(frozen=True)
class UnreadableConfig:
    """A config that was not loaded, or not yet."""


@dataclass(frozen=True)
class Orphan:
    """A generated file that no config makes."""

    file: Path


@dataclass(frozen=True)
class Loaded:
    """A config that was loaded. A stage of just this type generated nothing: the source module is not there.

    `output` is where the generated file is or would be.
    """

    loaded: LoadedConfig
    output: Path


@dataclass(frozen=True)
class Listed(Loaded):
    """A config that was loaded only to be listed."""


@dataclass(frozen=True)
class Rejected(Loaded):
    """A generated module with errors, which gets no file."""

    generated: Generated


@dataclass(frozen=True)
class Draft(Loaded):
    """A generated module without errors, not formatted."""

    generated: Generated

    @property
    def text(self) -> str:
        """The raw text."""
        return self.generated.text

    def rejected(self) -> Rejected:
        """Return the module as rejected after an error."""
        return Rejected(self.loaded, self.output, self.generated)

    def product(self, text: str) -> "Product":
        """Return the files that the draft makes, given its formatted text."""
        diff = unified_diff(self.generated.source.text, text, self.loaded.config.source_module, self.output.name)
        return Product(self.loaded, self.output, self.generated, text, diff)


@dataclass(frozen=True)
class Product(Loaded):
    """A generated module as its file holds it, and its unified diff from upstream."""

    generated: Generated
    text: str
    diff: str

    def files(self, diff: bool) -> list[tuple[Path, str]]:
        """Return each file with its text; the diff next to the module is one of them only on demand."""
        return [(self.output, self.text)] + ([(diff_path(self.output), self.diff)] if diff else [])


Stage = UnreadableConfig | Orphan | Loaded


@dataclass
class ConfigResult:
    """The result of one config, or of a generated file without one.

    The stage says how far it came and holds what there is by then; stages are immutable, and each step of the work
    puts the next one in place. The properties read the stage.

    Attributes:
        config: the dotted module, or the file name outside packages; empty for an orphan.
        path: of the config; None for an orphan.
        notes: one-line remarks that are no fault.
        seconds: spent on it.
    """

    config: str
    path: Path | None
    stage: Stage = UnreadableConfig()
    status: Status = "error"
    diagnostics: list[Diagnostic] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Return whether the file is as the config requires it, or need not be."""
        return self.status in ("written", "unchanged", "ok")

    @property
    def source_module(self) -> str:
        """The upstream module that the config patches; empty when the config was not loaded."""
        return self.stage.loaded.config.source_module if isinstance(self.stage, Loaded) else ""

    @property
    def target_file(self) -> str:
        """The name of the generated file; empty when the config was not loaded."""
        return self.output.name if self.output is not None else ""

    @property
    def output(self) -> Path | None:
        """Return the path of the generated file; None when the config was not loaded."""
        match self.stage:
            case Loaded(output=output):
                return output
            case Orphan(file=file):
                return file
            case UnreadableConfig():
                return None

    @property
    def listed(self) -> list[tuple[str, str]]:
        """(kind, target) of each patch of a config that was only listed."""
        if not isinstance(self.stage, Listed):
            return []
        return [(patch.kind, patch.target) for patch in self.stage.loaded.config.patches]

    @property
    def frameworks(self) -> set[str]:
        """The packages that the config imports the DSL from."""
        return self.stage.loaded.frameworks if isinstance(self.stage, Loaded) else set()

    @property
    def generated(self) -> Generated | None:
        """The unformatted module with all positions, errors or not; None when nothing was generated."""
        return self.stage.generated if isinstance(self.stage, (Rejected, Draft, Product)) else None

    @property
    def patches(self) -> list[Applied]:
        """Return the outcome of each patch; empty when nothing was generated."""
        return self.generated.applied if self.generated is not None else []

    @property
    def text(self) -> str:
        """The generated module, raw in a draft and formatted in a product; empty after an error."""
        return self.stage.text if isinstance(self.stage, (Draft, Product)) else ""

    @property
    def diff(self) -> str:
        """The unified diff from upstream; empty unless the result is a product."""
        return self.stage.diff if isinstance(self.stage, Product) else ""

    def finding(self, found: Diagnostic) -> Finding:
        """Return a diagnostic as the finding that select, ignore, comments, baselines and formats are about."""
        place = self.path or self.output or Path(self.config)
        path = Path(found.file) if found.file else place
        return Finding(found.message, path.resolve(), found.line, rule=found.id, severity=found.severity)

    def reject(self, stage: Stage, found: Diagnostic) -> None:
        """Put `stage` in place because of an error, which the diagnostics get."""
        self.stage, self.status = stage, "error"
        self.diagnostics.append(found)
