"""The reference side of a model that no library has yet: its authors' repository, imported here and nowhere else."""

import json
import traceback
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import torch
from safetensors.torch import load_file, save_file
from torch import nn

from omni_kit.documents import read_mapping
from omni_kit.errors import BadInput, OmniKitError
from omni_kit.targets.references.authors import Authors
from omni_kit.targets.references.on_cpu import stay_on_cpu
from omni_kit.toys.configs.denoiser import HEAD_DIM, HEADS, INNER
from omni_kit.toys.feeds.denoiser import ask, denoised, samples_of
from omni_kit.toys.feeds.denoiser.sizes import ARGUMENTS
from omni_kit.toys.feeds.protocol import Feed
from omni_kit.toys.tensors import Tensors
from omni_kit.toys.weights import fill
from omni_kit.upstream.repositories.recorded import SIGNED, recorded_reference
from omni_kit.upstream.repositories.reference import BETWEEN, Reference, find_reference

_WIDER = (HEADS * 16, HEADS * 32)  # for a toy whose heads are refused: kernels take multiples of 8, 16 or 32
WEIGHTS = "model.safetensors"


class BrokenReference(BadInput):
    """The authors' own code cannot be run: nothing can be compared with it.

    Attributes:
        blames_reference: always.
    """

    blames_reference = True


class RepositoryBuilder:
    """Builds, loads and saves a class of the authors' own."""

    def __init__(self) -> None:
        self._device = "cpu"
        self._told = ""
        self._authors: Authors | None = None

    def open(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Says the version of torch: the authors' code has none.

        Args:
            options: `reference` is the class as "PATH::Class"; without it, configs say it.
        """
        self._device = options.get("device", "cpu")
        self._told = options.get("reference", "")
        return {"library": "torch", "version": torch.__version__}

    def shapes(self, config_dir: Path) -> dict[str, list[int]]:
        """Of the tensors that a checkpoint would hold."""
        model = self._built(config_dir / "config.json")
        return {name: list(tensor.shape) for name, tensor in model.state_dict().items()}

    def load(self, checkpoint: Path, dtype: str = "float32") -> nn.Module:
        """Loads a checkpoint with every name that the model has, and no other.

        Raises:
            BadInput: names are missing, or unexpected.
        """
        model = self._built(checkpoint / "config.json")
        missing, unexpected = model.load_state_dict(load_file(checkpoint / WEIGHTS), strict=False)
        if missing or unexpected:
            what, names = ("missing", missing) if missing else ("unexpected", unexpected)
            raise BadInput(f"{checkpoint.name} has {what} tensors ({len(names)}): {', '.join(names[:4])}")
        return model.to(getattr(torch, dtype))

    def save(self, model: Any, checkpoint: Path, out: Path) -> None:
        """As the authors' models are saved: the names that the model has."""
        self.save_toy(model, out, "hub")

    def save_toy(self, model: Any, out: Path, layout: str) -> None:
        """Tensors as they are, and what the model was made of."""
        out.mkdir(parents=True, exist_ok=True)
        state = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in model.state_dict().items()}
        save_file(state, out / WEIGHTS)
        (out / "config.json").write_text(json.dumps(getattr(model, ARGUMENTS), indent=2), encoding="utf-8")

    def forward(self, model: Any, inputs: Tensors, loss_only: bool = False) -> Tensors:
        """Each sample in a call of its own; the authors' models have no loss."""
        dtype = next(model.parameters()).dtype
        cast_ = {name: t.to(dtype) if t.is_floating_point() else t for name, t in inputs.items()}
        return denoised(samples_of(cast_), lambda sample: ask(model, sample))

    def notes(self) -> list[str]:
        """Names the packages that stand-ins stood for."""
        used = ", ".join(self._authors.used) if self._authors is not None else ""
        return [f"the authors' code ran with stand-ins for packages that are not installed: {used}"] if used else []

    def make_toy(self, source: str, feed: Feed) -> nn.Module:
        """A toy with deterministic weights, float32, in training mode, from a toy_config.json."""
        torch.manual_seed(0)
        model = self._built(Path(source), _WIDER)
        fill(model)
        return model

    def importing_files(self) -> AbstractContextManager[None]:
        """Let imports find the authors' modules."""
        return self._authors.importing_files() if self._authors is not None else nullcontext()

    def _authors_of(self, reference: Reference) -> Authors:
        """What imports their files: the same for every model of one repository."""
        if self._authors is None or self._authors.repository != reference.repository:
            self._authors = Authors(reference)
        return self._authors

    def _built(self, file: Path, more_widths: Sequence[int] = ()) -> nn.Module:
        values = read_mapping(file)
        reference = find_reference(self._told) if self._told else recorded_reference(file)
        given, authors = values_of(values), self._authors_of(reference)
        model, taken = _first_made(reference, [given, *(_as_wide(given, width) for width in more_widths)], authors)
        signed = f"{reference.cls.source.path}{BETWEEN}{reference.class_name}"
        setattr(model, ARGUMENTS, {SIGNED: signed, **taken})
        return model.train().to(self._device)


def _first_made(
    reference: Reference, choices: Sequence[Mapping[str, Any]], authors: Authors
) -> tuple[nn.Module, Mapping[str, Any]]:
    """The first of several sets of arguments that the authors' class takes, and the model made of it.

    Raises:
        BrokenReference: it takes none; what is wrong with the first.
    """
    refused: BrokenReference | None = None
    for given in choices:
        try:
            return made(reference, {k: v for k, v in given.items() if not k.startswith("_")}, authors), given
        except BrokenReference as error:
            refused = refused or error
    assert refused is not None
    raise refused


def _as_wide(values: Mapping[str, Any], width: int) -> dict[str, Any]:
    """The values of a toy with another width of the whole: some code takes heads of certain sizes alone."""
    widths = {INNER: width, HEAD_DIM: width // HEADS}
    return {name: value if isinstance(value, bool) or not isinstance(value, int) else widths.get(value, value)
            for name, value in values.items()}  # fmt: skip


def values_of(values: Mapping[str, Any]) -> dict[str, Any]:
    """What a config says, without by which class."""
    return {name: value for name, value in values.items() if name != SIGNED}


def made(reference: Reference, given: Mapping[str, Any], authors: Authors) -> nn.Module:
    """The authors' class with these arguments, or with these values in its dataclass or its namespace.

    Raises:
        ImportError: their code needs what is not installed.
        BrokenReference: their code cannot be imported for another reason, or takes other arguments.
    """
    values = {name: _as_by_default(reference, name, value) for name, value in given.items()}
    settings, namespace = reference.settings, reference.namespace
    if namespace is not None:
        read = SimpleNamespace(**{name: values.pop(name) for name in namespace.fields if name in values})
        values = {namespace.argument: read, **values}
    stay_on_cpu()
    try:
        cls = authors.get(reference.cls.source.module, reference.class_name)
        if settings is None:
            return cast(nn.Module, cls(**values))
        return cast(nn.Module, cls(authors.get(settings.cls.source.module, settings.cls.node.name)(**values)))
    except (ImportError, OmniKitError):
        raise
    except Exception as error:
        said = " ".join(f"{type(error).__name__}: {error}".split())
        where = traceback.extract_tb(error.__traceback__)[-1]
        name = f"{reference.class_name} of {reference.repository.root.name}"
        raise BrokenReference(f"{name} cannot be made: {said} ({where.filename}:{where.lineno})") from error


def _as_by_default(reference: Reference, name: str, value: Any) -> Any:
    """A list where the authors have one, a tuple where they have that: JSON knows one of the two."""
    known = reference.arguments.get(name)
    return tuple(value) if isinstance(value, list) and known is not None and isinstance(known.default, tuple) else value
