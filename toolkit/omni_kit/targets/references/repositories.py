"""The reference side of a model that no library has yet: its authors' repository, imported here and nowhere else."""

import inspect
import json
import math
import re
import traceback
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from safetensors.torch import load_file, save_file
from torch import nn

from omni_kit.documents import read_mapping
from omni_kit.errors import BadInput, MissingRequirement, OmniKitError
from omni_kit.plurals import counted
from omni_kit.targets.references.authors import Authors
from omni_kit.targets.references.on_cpu import stay_on_cpu
from omni_kit.targets.references.one_process import run_in_one_process
from omni_kit.targets.references.small_arguments import NOT_MADE, NULL, as_checked, small_arguments, with_fixed_widths
from omni_kit.toys.batches.denoiser import DenoiserBatchBuilder, ask, denoised, samples_of
from omni_kit.toys.batches.denoiser.failed_checks import asserted, condition_of
from omni_kit.toys.batches.denoiser.inputs import NoInputs
from omni_kit.toys.batches.denoiser.sizes import ARGUMENTS
from omni_kit.toys.batches.denoiser.trial import LONGEST, Chosen
from omni_kit.toys.batches.denoiser.unreached import unreached
from omni_kit.toys.batches.protocol import BatchBuilder
from omni_kit.toys.elapsed import Elapsed
from omni_kit.toys.size import another_model
from omni_kit.toys.tensors import Tensors
from omni_kit.toys.weights import fill, unfreeze
from omni_kit.upstream.repositories.namespace import Apart
from omni_kit.upstream.repositories.passed_arguments import named_classes
from omni_kit.upstream.repositories.pins import other_versions
from omni_kit.upstream.repositories.published import SIGNED
from omni_kit.upstream.repositories.recorded import REPLACED, STATED, recorded_reference
from omni_kit.upstream.repositories.reference import BETWEEN, Reference, find_reference
from omni_kit.upstream.repositories.traits import foreign

_LONGEST = 90.0
_WHOLE = 1.5  # times as long, after which inputs for the best set are no longer looked for, either
# Inputs for each set of arguments, and before those for which an error names an argument; the one that comes furthest
# is then called with all.
_FEW_TRIED, _FEWER, _FEWEST = 200, 40, 8
_ALIKE = 8  # sets of arguments with which a model fails in its surroundings before no others are looked for
WEIGHTS = "model.safetensors"
_HUB = re.compile(r"huggingface\.co|\bHub\b|from_pretrained|local_files_only")  # what is not there, and not fetched
_OWN = (AssertionError, NotImplementedError, KeyError)  # of checks and mappings of the authors'
_COMPARES = re.compile(r"not supported between|unsupported operand")
_PLACED = {"device": torch.device("cpu"), "dtype": torch.float32}  # where authors let their callers choose


class BrokenReference(BadInput):
    """The authors' own code cannot be run: nothing can be compared with it.

    Attributes:
        blames_reference: always.
    """

    blames_reference = True


@dataclass(frozen=True)
class _Tried:
    """A model that was made, and takes none of the first inputs that were tried."""

    values: dict[str, Any]
    model: nn.Module
    why: BadInput

    @property
    def far(self) -> tuple[int, ...]:
        return self.why.far if isinstance(self.why, NoInputs) else ()

    @property
    def hindered(self) -> bool:
        return isinstance(self.why, NoInputs) and self.why.of_surroundings


class RepositoryBuilder:
    """Builds, loads and saves a class of the authors' own.

    Args:
        longest: seconds of the processor in which other sets of arguments for a toy are looked for.
    """

    def __init__(self, longest: float = _LONGEST) -> None:
        self._longest, self._elapsed = longest, Elapsed()
        self._device = "cpu"
        self._told = ""
        self._authors: Authors | None = None
        self._chosen: Chosen | None = None
        self._ran: tuple[nn.Module, Tensors] | None = None
        self._unreached: list[str] | None = None

    def open(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Say the version of torch: the authors' code has none.

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
        """Load a checkpoint with every name that the model has, and no other.

        Raises:
            BadInput: names are missing, or unexpected.
        """
        model = self._built(checkpoint / "config.json")
        given = load_file(checkpoint / WEIGHTS)
        missing, unexpected = nn.Module.load_state_dict(model, given, strict=False)  # theirs may rename
        if missing or unexpected:
            what, names = ("missing", missing) if missing else ("unexpected", unexpected)
            raise BadInput(f"{checkpoint.name} has {what} tensors ({len(names)}): {', '.join(names[:4])}")
        return in_dtype(model, dtype)

    def save(self, model: Any, checkpoint: Path, out: Path) -> None:
        """Save the model as the authors do, under the model's own names."""
        self.save_toy(model, out, "hub")

    def save_toy(self, model: Any, out: Path, layout: str) -> None:
        """Tensors as they are, and what the model was made of."""
        out.mkdir(parents=True, exist_ok=True)
        state = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in model.state_dict().items()}
        save_file(state, out / WEIGHTS)
        (out / "config.json").write_text(json.dumps(getattr(model, ARGUMENTS), indent=2), encoding="utf-8")

    def forward(self, model: Any, inputs: Tensors, loss_only: bool = False) -> Tensors:
        """Return each sample in a call of its own; the authors' models have no loss."""
        dtype = next(model.parameters()).dtype
        cast_ = {name: t.to(dtype) if t.is_floating_point() else t for name, t in inputs.items()}
        self._ran = model, cast_
        return denoised(samples_of(cast_), lambda sample: ask(model, sample))

    def notes(self) -> list[str]:
        """Return the packages that stand-ins stood for, and what the model was made and called without."""
        if self._unreached is None and self._ran is not None:
            self._unreached = unreached(*self._ran)
        used = ", ".join(self._authors.used) if self._authors is not None else ""
        left_out = "; ".join(self._authors.left_out) if self._authors is not None else ""
        said = {
            f"the authors' code ran with stand-ins for packages that are not installed: {used}": used,
            f"the authors' code ran without what its forward does not read: {left_out}": left_out,
        }
        replaced = _replaced(self._ran[0]) if self._ran is not None else []
        return [*replaced, *(note for note, what in said.items() if what), *(self._unreached or [])]

    def make_toy(self, source: str, batch_builder: BatchBuilder) -> nn.Module:
        """Return a toy with deterministic weights, float32, in training mode, from a toy_config.json.

        Where inputs are stated, it has the values that are stated; elsewhere others may be taken, and are noted.
        """
        reference, given = self._read(Path(source))
        given.pop(REPLACED, None)
        model = self._toy(reference, given, batch_builder)
        own = getattr(model, ARGUMENTS)
        others = {name for name, value in own.items() if name != SIGNED and (name not in given or given[name] != value)}
        if others:
            own[REPLACED] = {name: given.get(name) for name in own if name in others}
        return model

    def _toy(self, reference: Reference, given: Mapping[str, Any], batch_builder: BatchBuilder) -> nn.Module:
        # What samples from a model calls it with such inputs, too.
        builder = batch_builder if isinstance(batch_builder, DenoiserBatchBuilder) else DenoiserBatchBuilder()
        self._elapsed, self._chosen = Elapsed(), None
        best: _Tried | None = None
        first: BadInput | None = None
        refused: list[tuple[Mapping[str, Any], str]] = []
        hindered = 0
        stated = bool(given.get(STATED))
        for values in [dict(given)] if stated else small_arguments(reference, given, refused):
            try:
                # All inputs are tried for the toy as it is.
                one = self._tried(reference, values, builder, _FEW_TRIED if refused else math.inf)
            except MissingRequirement as error:
                if not refused:
                    raise
                one = BadInput(error.message, error.hint)  # of another kind of part, which is not needed
            if isinstance(one, nn.Module):
                return one
            if isinstance(one, _Tried):
                best = max(filter(None, (best, one)), key=lambda one: one.far)
                hindered += one.hindered
            else:
                first = first or one
            refused.append((values, one.message if isinstance(one, BadInput) else one.why.message))
            if hindered == _ALIKE or self._elapsed.seconds > self._longest:
                break
        if best is None:
            assert first is not None
            if stated:
                raise first
            tried = f"{counted(len(refused), 'set')} of sizes tried in {self._elapsed.seconds:.0f} s"
            raise type(first)(first.message, "; ".join(filter(None, (first.hint, tried)))) from first
        return best.model if stated else self._longer_tried(reference, best, builder) or best.model

    def _tried(
        self, reference: Reference, values: Mapping[str, Any], builder: DenoiserBatchBuilder, most: float
    ) -> "nn.Module | _Tried | BadInput":
        """Return the model of these arguments where it takes inputs; or what was made; or why it cannot be made."""
        another_model()
        try:
            torch.manual_seed(0)
            model = self._made(reference, values)
            fill(model)
        except (BadInput, ValueError) as error:  # more weights than there are different numbers
            return error if isinstance(error, BadInput) else BadInput(str(error), "state smaller sizes")
        why: BadInput | None = None
        for few in (_FEWEST, _FEWER, most):  # a model of other widths costs less than all inputs for this one
            why = builder.refusal(model, few, self._chosen, self._left)
            if why is None:
                return model
            if few < most and [*with_fixed_widths(reference, [(values, why.message)])]:
                break
        self._chosen = getattr(why, "chosen", None)
        assert why is not None
        return _Tried(dict(values), model, why)

    @property
    def _left(self) -> float:
        """Return the seconds of the processor for one search: all of them end in time."""
        return min(LONGEST, _WHOLE * self._longest - self._elapsed.seconds)

    def _longer_tried(self, reference: Reference, one: _Tried, builder: DenoiserBatchBuilder) -> nn.Module | None:
        """Return the model that came furthest, if it takes any inputs; or with a size that a check in its forward
        allows.
        """
        if (why := builder.refusal(one.model, math.inf, seconds=self._left)) is None:
            return one.model
        for values in as_checked(one.values, why.message):
            if self._left < 0:
                break
            another_model()
            with suppress(BadInput, ValueError):
                fill(model := self._made(reference, values))
                if builder.refusal(model, _FEW_TRIED, getattr(why, "chosen", None), self._left) is None:
                    return model
        return None

    def importing_files(self) -> AbstractContextManager[None]:
        """Let imports find the authors' modules."""
        return self._authors.importing_files() if self._authors is not None else nullcontext()

    def _authors_of(self, reference: Reference) -> Authors:
        """Return the importer of the authors' files: the same for every model of one repository."""
        if self._authors is None or self._authors.repository != reference.repository:
            self._authors = Authors(reference)
        return self._authors

    def _built(self, file: Path) -> nn.Module:
        return self._made(*self._read(file))

    def _read(self, file: Path) -> tuple[Reference, dict[str, Any]]:
        """Return the class, and the arguments that a config has for it."""
        values = read_mapping(file)
        return find_reference(self._told) if self._told else recorded_reference(file), values_of(values)

    def _made(self, reference: Reference, given: Mapping[str, Any]) -> nn.Module:
        arguments = {name: value for name, value in given.items() if not name.startswith("_")}
        authors = self._authors_of(reference)
        model = made(reference, arguments, authors)
        model.register_forward_pre_hook(partial(_runs, authors))
        signed = f"{reference.cls.source.path}{BETWEEN}{reference.class_name}"
        setattr(model, ARGUMENTS, {SIGNED: signed, **given})
        return unfreeze(model).train().to(self._device)


def _runs(authors: Authors, model: nn.Module, given: Any) -> None:
    """Say which precision the model has that is called."""
    authors.precision = next(model.parameters()).dtype


def _replaced(model: nn.Module) -> list[str]:
    """Return what is compared instead of values that toy_config.json states; empty if nothing is."""
    own = getattr(model, ARGUMENTS)
    said = ", ".join(f"{name}={json.dumps(own[name])} instead of {json.dumps(value)}"
                     for name, value in own.get(REPLACED, {}).items())  # fmt: skip
    why = "the authors' class does not run with the values that toy_config.json states"
    return [f"the toy that is compared has {said}: {why}"] if said else []


def in_dtype(model: nn.Module, dtype: str) -> nn.Module:
    """Return a model whose parameters have a dtype; if they all have it, buffers of another one keep theirs."""
    wanted = getattr(torch, dtype)
    return model if all(one.dtype == wanted for one in model.parameters()) else model.to(wanted)


def values_of(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a config's values, without the class that wrote them."""
    return {name: value for name, value in values.items() if name != SIGNED}


def made(reference: Reference, given: Mapping[str, Any], authors: Authors) -> nn.Module:
    """Return the authors' class with these arguments, or with these values in its dataclass or its namespace.

    Raises:
        ImportError: their code needs what is not installed.
        BrokenReference: their code cannot be imported for another reason, or takes other arguments.
    """
    values = {name: _as_by_default(reference, name, value) for name, value in given.items()}
    values |= {name: _PLACED[one.placement] for name, one in reference.arguments.items() if one.placement}
    settings, namespace = reference.settings, reference.namespace
    if namespace is not None:
        given_ = {name: values.pop(name) for name in namespace.fields if name in values}
        read = _Fields({name: one for name, one in given_.items()
                        if one is not None or not namespace.fields[name].tested})  # fmt: skip
        read.sections, read.apart = namespace.sections, [*namespace.apart.values()]
        values = values if reference.shared is not None else {**dict.fromkeys(namespace.arguments, read), **values}
    stay_on_cpu()
    run_in_one_process()
    try:
        cls = authors.get(reference.cls.source.module, reference.class_name)
        if (config := reference.config) is not None and namespace is not None:
            held = authors.get(config.source.module, config.node.name)(**read)
            values |= dict.fromkeys(namespace.arguments, held)
        if reference.shared is not None and namespace is not None:
            authors.get(reference.shared.module, reference.shared.name).update(read)
        if settings is not None:
            fields = {name: values.pop(name) for name in settings.fields if name in values}
            values[settings.argument] = authors.get(settings.cls.source.module, settings.cls.node.name)(**fields)
        model = cast(nn.Module, cls(**values))
        layers = ((name, one) for name, one in model.named_parameters() if one.dim() > 1)
        if empty := next((name for name, one in layers if not one.numel()), None):
            raise ValueError(f"{empty} has no elements")
        if inspect.ismethod(own := vars(model).get("forward")):  # the constructor chose one of several methods
            type(model).forward = own.__func__
        elif reference.forwards:
            type(model).forward = vars(type(model))[reference.forwards]
        return model
    except (ImportError, OmniKitError):
        raise
    except Exception as error:
        what = str(error) or condition_of(error)
        said = " ".join(f"{type(error).__name__}: {what} {asserted(error)}".split())
        frames = traceback.extract_tb(error.__traceback__)
        root = reference.repository.root
        theirs = [one for one in frames if Path(one.filename).is_relative_to(root)]
        name = f"{reference.class_name} of {root.name}"
        checks = isinstance(error, _OWN) or _COMPARES.search(said) is not None
        own = checks and frames[-1] in theirs  # whatever the version
        pinned = "" if own else other_versions(reference.repository, foreign(reference))
        objects = ", ".join(f"{name}: {one.annotation}" for name, one in reference.arguments.items()
                            if one.required and one.annotation and name not in given)  # fmt: skip
        filled, named = _filled(error, frames[-1]), ", ".join(named_classes(reference.cls))
        hints = {
            f"its constructor needs an object ({objects}): pass a class that takes its numbers": objects,
            f"its authors require {pinned}: compare in an environment with that version": pinned,
            f"its constructor reads {filled}, which a program fills in: pass a class that takes its values": filled,
            f"its constructor imports the class that {named} names: pass a class that makes it by itself": named,
            "its constructor loads a model by name: pass a class that is made from sizes alone": _HUB.search(said),
            f"state values of its constructor in toy_config.json{_null(reference, given, said)}": True,
        }
        hint = "; ".join(text for text, what in hints.items() if what)
        where = f" ({Path(theirs[-1].filename).relative_to(root).as_posix()}:{theirs[-1].lineno})" if theirs else ""
        raise BrokenReference(f"{name} {NOT_MADE}: {said}{where}", hint) from error


def _null(reference: Reference, given: Mapping[str, Any], said: str) -> str:
    """Return which arguments are null, where an error is about null; empty otherwise."""
    values = {name: given.get(name, one.default) for name, one in reference.arguments.items()}
    null = ", ".join(name for name, value in values.items() if value is None)
    return f", where these are null: {null}" if NULL in said and null else ""


def _filled(error: Exception, where: traceback.FrameSummary) -> str:
    """Return the mapping of a module in which a key is missing, `hparams` of `hparams["width"]`; empty without one."""
    keys = f"[\"']{re.escape(str(error.args[0]))}[\"']" if isinstance(error, KeyError) and error.args else ""
    read = re.search(rf"(\w+)\[{keys}\]", where.line or "") if keys else None
    return read[1] if read is not None and read[1] != "kwargs" else ""


class _Fields(dict[str, Any]):
    """A config whose fields are items and attributes, as the loaders of configs make them.

    Attributes:
        sections: parts that hold fields in their turn; one object stands for all.
        apart: fields of sections that have a name of another one.
    """

    sections: frozenset[str] = frozenset()
    apart: Sequence[Apart] = ()

    def __getattr__(self, name: str) -> Any:
        """Return the field of that name, or the section."""
        if name in self:
            return self[name]
        if name in self.sections:
            return self._section(name)
        raise AttributeError(name)

    def __missing__(self, name: str) -> Any:
        """Return the section of that name."""
        if name in self.sections:
            return self._section(name)
        raise KeyError(name)

    def _section(self, name: str) -> "_Fields":
        """Return the whole; a field that has another one's name as the section has it."""
        own = [one for one in self.apart if one.section == name]
        if not own:
            return self
        others = {one.field for one in own}
        here = _Fields({key: value for key, value in self.items() if key not in others})
        here |= {one.field: self[one.argument] for one in own if one.argument in self}
        here.sections, here.apart = self.sections, self.apart
        return here


def _as_by_default(reference: Reference, name: str, value: Any) -> Any:
    """Return a list where the authors have one, a tuple where they have that: JSON knows one of the two."""
    known = reference.arguments.get(name)
    return tuple(value) if isinstance(value, list) and known is not None and isinstance(known.default, tuple) else value
