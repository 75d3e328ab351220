"""The result of a kernel search, as it is printed and stored."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from omni_kit.documents import read_json
from omni_kit.errors import BadInput, Refusal
from omni_kit.kernels.timing import Measured
from omni_kit.kernels.training_file import Setting
from omni_kit.upstream.subject import open_source
from omni_kit.upstream.transformers.config_view import ConfigView

SCHEMA = "omni-kit/kernels/1"
_TWICE = 2
Status = Literal["proven", "plain", "wrong", "failed", "missing", "not called", "unknown", "not measured"]
USABLE: frozenset[Status] = frozenset({"proven", "plain"})


@dataclass(frozen=True)
class KernelResult:
    """One kernel in one slot, all others as they are by default.

    Attributes:
        max_rel: its largest error in the proof; None if it had none.
        status: "plain" is upstream's own code; the others say what became of it.
        reason: why it cannot be chosen, or that it gave no time.
        graphs: that torch.compile made for it, in `first_step_s` seconds.
    """

    name: str
    status: Status
    ms: float | None = None
    gb: float | None = None
    max_rel: float | None = None
    reason: str = ""
    graphs: int = 0
    first_step_s: float | None = None


@dataclass(frozen=True)
class SlotResult:
    """The results of one slot.

    Attributes:
        setting: what the framework's settings call it.
        default: what the framework takes where nothing is said.
        chosen: what is recommended.
        matters: whether a kernel there makes a difference beyond noise.
    """

    slot: str
    setting: str
    default: str
    chosen: str
    matters: bool
    kernels: tuple[KernelResult, ...]


@dataclass(frozen=True)
class Point:
    """A choice that was timed.

    Attributes:
        name: what it has other than the default.
        training: dotted path -> value of what it sets elsewhere in a training file.
        recompilations: graphs that were compiled after its first step.
    """

    name: str
    ms: float
    gb: float
    ops_implementation: Mapping[str, str] = field(default_factory=dict)
    training: Mapping[str, bool] = field(default_factory=dict)
    recompilations: int = 0


@dataclass(frozen=True)
class KernelReport:
    """The whole result.

    Attributes:
        model: model_type, parameters, and what its shape class is made of.
        run: sequence, micro_batch, dtype, device, steps.
        upstream: None if it gave no time.
        default, recommended: None if nothing was measured.
        limit: GB that a choice was allowed.
        asked: "cpu" or "cuda".
        place: the keys that lead to the settings in a training file.
    """

    path: str
    model: Mapping[str, Any]
    run: Mapping[str, Any]
    slots: tuple[SlotResult, ...]
    upstream: Measured | None = None
    default: Point | None = None
    recommended: Point | None = None
    front: tuple[Point, ...] = ()
    measured: tuple[Point, ...] = ()
    limit: float | None = None
    noise: float = 0.0
    stopped: str = ""
    seconds: float = 0.0
    asked: str = "cuda"
    place: tuple[str, ...] = ()
    notes: Sequence[str] = ()

    @property
    def worse(self) -> bool:
        """Return whether the best choice is slower than upstream, and larger, too."""
        if self.upstream is None or self.recommended is None:
            return False
        slower = self.recommended.ms > self.upstream.ms + self.noise
        return slower and self.recommended.gb > self.upstream.gb

    @property
    def settings(self) -> list["Setting"]:
        """The places in a training file that the recommended choice sets, each with its settings."""
        if self.recommended is None:
            return []
        elsewhere = ((path.split("."), value) for path, value in self.recommended.training.items())
        own: list[Setting] = [(self.place, self.recommended.ops_implementation)]
        return own + [(tuple(keys[:-1]), {keys[-1]: value}) for keys, value in elsewhere]

    @property
    def exit_code(self) -> int:
        """Return 1 if the integration is worse than upstream, and 3 if a requested measurement is missing."""
        if self.worse:
            return 1
        complete = self.recommended is not None and self.upstream is not None and self.asked != "cpu"
        return 0 if complete else 3

    def to_json(self) -> dict[str, Any]:
        """Return the command's fields of the contract."""
        none = {"ms": None, "gb": None}
        upstream = none if self.upstream is None else {"ms": self.upstream.ms, "gb": self.upstream.gb}
        empty: dict[str, Any] = {**none, "name": "", "ops_implementation": {}, "training": {}, "recompilations": 0}
        return {
            "path": self.path,
            "model": dict(self.model),
            "run": dict(self.run),
            "slots": [asdict(slot) for slot in self.slots],
            "upstream": upstream,
            "default": empty if self.default is None else asdict(self.default),
            "recommended": empty if self.recommended is None else asdict(self.recommended),
            "front": [asdict(point) for point in self.front],
            "measured": [asdict(point) for point in self.measured],
            "limit_gb": self.limit,
            "noise_ms": self.noise,
            "stopped": self.stopped,
            "seconds": self.seconds,
            "place": list(self.place),
        }


def shape_class(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that decide which kernels are fast on a machine: model type, width and number of experts."""
    inner = config.get("text_config")
    text: Mapping[str, Any] = inner if isinstance(inner, Mapping) else config
    experts = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
    count = next((text[key] for key in experts if isinstance(text.get(key), int)), 0)
    return {
        "model_type": kind_of(config),
        "hidden_size": text.get("hidden_size") or _joined_heads(text),
        "experts": count,
    }


def kind_of(config: Mapping[str, Any]) -> str:
    """Return the model_type of a config, or its class of diffusers."""
    return str(config.get("model_type") or config.get("_class_name", ""))


def _joined_heads(config: Mapping[str, Any]) -> int | None:
    heads, width = config.get("num_attention_heads"), config.get("attention_head_dim")
    return heads * width if isinstance(heads, int) and isinstance(width, int) else None


@dataclass(frozen=True)
class StoredResult:
    """The settings of a stored result for a training file.

    Attributes:
        model: the shape class that it was measured on.
        place: the keys that lead to the settings.
        chosen: setting -> kernel, and dotted path -> value of what is set elsewhere.
        run: how it was measured.
    """

    model: Mapping[str, Any]
    place: tuple[str, ...]
    chosen: Mapping[str, str]
    run: Mapping[str, Any]


def load_choice(file: Path) -> StoredResult:
    """Return the shape class and the recommended settings of a result that was kept.

    Raises:
        BadInput: the file is no such result, or nothing was measured.
    """
    try:
        said = read_json(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadInput(f"{file} cannot be read as JSON", "pass the output of `kernels --format json`") from error
    if not isinstance(said, dict) or said.get("schema") != SCHEMA:
        raise BadInput(f"{file} is not a result of kernels", "pass the output of `kernels --format json`")
    recommended = said.get("recommended")
    chosen = recommended.get("ops_implementation") if isinstance(recommended, dict) else None
    model = said.get("model")
    if not isinstance(chosen, dict) or not chosen or not isinstance(model, dict):
        raise BadInput(f"{file} has no recommendation: nothing was measured", "measure on a machine with kernels")
    settings = {str(setting): str(kernel) for setting, kernel in chosen.items()}
    if isinstance(recommended, dict) and isinstance(elsewhere := recommended.get("training", {}), dict):
        settings |= {str(path): str(value).lower() for path, value in elsewhere.items()}
    run = said.get("run")
    return StoredResult(model, tuple(map(str, said.get("place") or ())), settings, run if isinstance(run, dict) else {})


def fitting_choice(file: Path, source: str) -> Mapping[str, str]:
    """Return the settings that a result recommends for the model of a source.

    Args:
        source: SOURCE of the command line.

    Raises:
        BadInput: the file is no such result.
        Refusal: it was measured on a model of another shape class.
    """
    kept = load_choice(file)
    subject = open_source(source)
    if (denoiser := subject.component) is None:
        own = shape_class(ConfigView(subject.model.config).as_dict())
    else:
        values = {name: denoiser.value(name)[0] for name in denoiser.arguments}
        own = shape_class({"_class_name": denoiser.class_name, **values})
    if why := _unlike(kept.model, own):
        raise Refusal(f"{file} was measured on another kind of model: {why}", "measure this one with kernels --config")
    return kept.chosen


def _unlike(measured: Mapping[str, Any], own: Mapping[str, Any]) -> str:
    """In what two models are of different shape classes: the type, or a size that is more than twice the other."""
    if measured.get("model_type") != own["model_type"]:
        return f"{measured.get('model_type')}, not {own['model_type']}"
    for name in ("hidden_size", "experts"):
        one, other = (int(shape.get(name) or 0) for shape in (measured, own))
        if max(one, other) > _TWICE * min(one, other):
            return f"{name} {one}, not {other}"
    return ""
