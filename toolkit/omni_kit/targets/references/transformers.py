"""The reference side: upstream transformers, untouched. Its process never imports a target framework."""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, cast

import torch
import transformers
from torch import nn
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    PreTrainedConfig,
    PreTrainedModel,
)
from transformers.core_model_loading import revert_weight_conversion

from omni_kit.documents import read_mapping
from omni_kit.errors import BadInput, in_short
from omni_kit.targets.references.adapters import put_adapter, put_new_adapter
from omni_kit.targets.references.attention import attention_recorded, attention_used
from omni_kit.targets.references.config_variants import acceptance, source_of
from omni_kit.targets.sides import AttentionCalls, Named
from omni_kit.toys.batches.language import as_named, language_model, media_untried, speaker_of, text_tokens
from omni_kit.toys.batches.protocol import BatchBuilder, CallScenario, Preparation
from omni_kit.toys.batches.scenarios import answered
from omni_kit.toys.configs.language import toy_config
from omni_kit.toys.configs.relations import related
from omni_kit.toys.configs.scaled import scaled_config
from omni_kit.toys.configs.tokens import is_part
from omni_kit.toys.configs.variants import Extent, Variants, chosen, enlarged
from omni_kit.toys.reach import unexercised
from omni_kit.toys.tensors import Tensors
from omni_kit.toys.weights import fill

_TRIES = 8
_TOYS = 48  # configs that are tried
_SHARDS = 3  # a toy checkpoint has an index, as a real one
_IGNORED = -100  # the label of a token that does not count
_EAGER = {"attn_implementation": "eager", "experts_implementation": "eager"}


class TransformersBuilder:
    """Builds, loads and saves with transformers' own classes."""

    def __init__(self) -> None:
        self._device = "cpu"
        self._notes: list[str] = []

    def open(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Quiets transformers; says its version."""
        self._device = options.get("device", "cpu")
        transformers.logging.set_verbosity_error()
        return {"library": "transformers", "version": transformers.__version__}

    def shapes(self, config_dir: Path) -> dict[str, list[int]]:
        """Build the model on the meta device, where nothing is stored."""
        config = AutoConfig.from_pretrained(config_dir)
        with torch.device("meta"):
            model = model_class_of(config)._from_config(config, **_EAGER)
        return {name: list(tensor.shape) for name, tensor in model.state_dict().items()}

    def load(self, checkpoint: Path, dtype: str = "float32") -> nn.Module:
        """Load with transformers's own loader.

        Raises:
            BadInput: it reports keys that are missing, unexpected or of another shape.
        """
        config = AutoConfig.from_pretrained(checkpoint)
        # The base class's own: some models override it to read more than weights, and lose what it returns.
        load = PreTrainedModel.from_pretrained.__func__
        options = {"config": config, "dtype": getattr(torch, dtype), "output_loading_info": True, **_EAGER}
        model, info = load(model_class_of(config), checkpoint, **options)
        problems = {what: sorted(map(str, names)) for what, names in info.items() if names}
        if problems:
            what, names = next(iter(problems.items()))
            raise BadInput(f"transformers loads {checkpoint.name} with {what} ({len(names)}): {', '.join(names[:4])}")
        return self._placed(model)

    def save(self, model: Any, checkpoint: Path, out: Path) -> None:
        """Exports as upstream publishes its checkpoints."""
        self._write(model, out, original=True)

    def save_toy(self, model: Any, out: Path, layout: str) -> None:
        """Write the checkpoint in several shards with an index, as real ones are."""
        self._write(model, out, original=layout == "hub")

    def _write(self, model: Any, out: Path, *, original: bool) -> None:
        size = sum(tensor.numel() * tensor.element_size() for tensor in model.state_dict().values())
        model.save_pretrained(out, max_shard_size=max(1, size // _SHARDS), save_original_format=original)

    def forward(self, model: nn.Module, inputs: Tensors, loss_only: bool = False) -> Tensors:
        """Logits and losses; see `language_model`."""
        self._notes = media_untried(model)
        return language_model(speaker_of(model), inputs, as_named, loss_only)

    def answer(self, model: nn.Module, way: CallScenario) -> Tensors:
        """Return everything that the part of it that answers in text gives."""
        part = speaker_of(model)
        packs = way.preparation == Preparation.packed
        with attention_used(model, way.attention):
            return answered(
                part,
                way,
                lambda: language_model(part, way.inputs, as_named, apart=packs, routed=not packs),
                lambda: as_named(part, way.inputs),
            )

    def notes(self) -> list[str]:
        """Return how the last call deviated from normal use."""
        return self._notes

    def attention(self, model: nn.Module) -> AbstractContextManager[AttentionCalls]:
        """Watches the calls of attention functions while it is entered."""
        return attention_recorded(model)

    def make_toy(self, source: str, batch_builder: BatchBuilder) -> nn.Module:
        """Return a toy with deterministic weights, float32, in training mode.

        Args:
            source: a model_type, the path of a config.json (complete or partial), or that of a toy_config.json, which
                is used as it is.

        Raises:
            BadInput: transformers knows no such model_type, or has no language model for it.
            Exception: what transformers raises where it cannot build or run the toy.
        """
        first: Exception | None = None
        config_class, toys = _toys_of(source)
        for values in islice(toys, _TOYS):
            try:
                return self._made(config_class.from_dict(values), batch_builder)
            except Exception as error:  # transformers', of a config that does not fit
                first = first or error
        assert first is not None
        raise first

    def _made(self, config: Any, batch_builder: BatchBuilder) -> nn.Module:
        """Return the model of a toy's config."""
        torch.manual_seed(0)
        made = model_class_of(config)
        model = made._from_config(_config_for(made, config), dtype=torch.float32, **_EAGER)
        placed = self._placed(model)
        self._fill(placed, batch_builder)
        return placed

    def scaled(self, source: str, size: int, out: Path) -> int:
        """Write the config of a model of a size; of a toy, or a model_type, from what the class has by default.

        Raises:
            BadInput: transformers knows no such model_type, or has no language model for it.
        """
        config = _whole_of(source)
        if size:
            config = type(config).from_dict(scaled_config(config.to_dict(), size, partial(_parameters, type(config))))
        out.mkdir(parents=True, exist_ok=True)
        config.architectures = [model_class_of(config).__name__]
        (out / "config.json").write_text(json.dumps(config.to_dict(), default=str), encoding="utf-8")
        return _parameters(type(config), config.to_dict())

    def sized(self, config_dir: Path, dtype: str) -> nn.Module:
        """With the kernels that transformers takes by itself."""
        config = AutoConfig.from_pretrained(config_dir)
        made = model_class_of(config)
        torch.manual_seed(0)
        with torch.device(self._device):
            model = made._from_config(_config_for(made, config), dtype=getattr(torch, dtype))
        return cast(nn.Module, model.train())

    def inputs(self, model: nn.Module, sequences: int, length: int) -> Tensors:
        """Random tokens: `input_ids`, `attention_mask` and `labels`, each [sequences, length], without padding."""
        words = int(cast(Any, model).get_input_embeddings().weight.shape[0])
        ids = torch.randint(words // 2, (sequences, length), generator=torch.Generator().manual_seed(0))
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids.clone()}

    def batch(self, model: nn.Module, inputs: Tensors) -> Mapping[str, Any]:
        """Return the inputs as they are, a sequence a row."""
        return {**inputs, "use_cache": False}

    def loss(self, model: nn.Module, batch: Mapping[str, Any]) -> torch.Tensor:
        """Return the model's own."""
        return cast(torch.Tensor, cast(Any, model)(**batch).loss)

    def batch_loss(self, model: nn.Module, samples: Sequence[Mapping[str, Any]]) -> tuple[torch.Tensor, float]:
        """Return the loss of padded samples, or with media of one after the other, and how many labels count in it."""
        if any("mm_token_type_ids" in sample for sample in samples):
            return self._loss_apart(model, samples)
        named = ("input_ids", "labels")
        rows = {name: [torch.as_tensor(sample[name]).to(self._device) for sample in samples] for name in named}
        batch = {
            name: nn.utils.rnn.pad_sequence(values, batch_first=True, padding_value=_IGNORED if name == "labels" else 0)
            for name, values in rows.items()
        }
        ones = [torch.ones_like(row) for row in rows["input_ids"]]
        batch["attention_mask"] = nn.utils.rnn.pad_sequence(ones, batch_first=True)
        counted = float((batch["labels"][:, 1:] != _IGNORED).sum())
        return cast(Any, model)(**batch, use_cache=False).loss, counted

    def _loss_apart(self, model: nn.Module, samples: Sequence[Mapping[str, Any]]) -> tuple[torch.Tensor, float]:
        """Return the loss of samples of which each goes through by itself."""
        losses, counts = [], []
        for sample in samples:
            own = {name: tensor.to(self._device) for name, tensor in sample.items()}
            labels = own["labels"][None]
            losses.append(cast(Any, model)(**as_named(model, own), labels=labels, use_cache=False).loss)
            counts.append(float((labels[:, 1:] != _IGNORED).sum()))
        whole = sum(counts)
        return torch.stack([one * (count / whole) for one, count in zip(losses, counts, strict=True)]).sum(), whole

    def use(self, model: nn.Module, checkpoint: Path) -> str:
        """Generate a few tokens."""
        words = text_tokens(speaker_of(model).config)[:4]
        prompt = torch.tensor([words], device=self._device)
        for part in model.modules():  # whose loss generating does not take, and cannot take with a cache
            if (config := getattr(part, "config", None)) is not None and hasattr(config, "output_router_logits"):
                config.output_router_logits = False
        try:
            with torch.no_grad():
                found = cast(Any, model.eval()).generate(prompt, max_new_tokens=3, do_sample=False, pad_token_id=0)
        except (AttributeError, RuntimeError, ValueError) as error:
            return in_short(error)
        return "" if found.shape[1] > prompt.shape[1] else "it generates no token"

    def adapt_anew(self, model: nn.Module, adapter: Path, weights: Tensors) -> bool:
        """By peft; see `TrainsPlainly.adapt_anew`."""
        return put_new_adapter(model, adapter, weights)

    def adapt(self, model: nn.Module, adapter: Path, checkpoint: Path) -> int:
        """By peft; how many of the saved tensors have a place in the model.

        Raises:
            MissingRequirement: peft is not installed.
        """
        return put_adapter(model, adapter)

    def enlarged(self, checkpoint: Path, out: Path) -> Mapping[str, Named]:
        """On the meta device; see `Naming.enlarged`."""
        config, found = AutoConfig.from_pretrained(checkpoint), dict[str, Named]()
        for what, values in enlarged(config.to_dict()):
            try:
                other = type(config).from_dict(values)
                with torch.device("meta"):
                    model = model_class_of(other)._from_config(_config_for(model_class_of(other), other), **_EAGER)
            except Exception:  # upstream's, whatever it raises: it has no such model
                continue
            folder = out / str(len(found))
            folder.mkdir(parents=True)
            (folder / "config.json").write_text(json.dumps(values, default=str), encoding="utf-8")
            held = model.state_dict()
            published = revert_weight_conversion(model, held)
            shapes = ({name: list(tensor.shape) for name, tensor in one.items()} for one in (published, held))
            found[what] = Named(*shapes)
        return found

    def variants(self, model: nn.Module, batch_builder: BatchBuilder, extent: Extent = Extent.apart) -> Variants:
        """Of the whole config and those within it; what upstream's own files ask them for decides which.

        Also the toy of the class's defaults, where an author's own is another: that may be a weaker one.
        """
        config = cast(Any, model).config
        asked = speaker_of(model).config
        spoken = next((name for name in config.sub_configs if getattr(config, name) is asked), "")
        made = model_class_of(config)

        def run(other: Any) -> None:
            built = made._from_config(_config_for(made, other), dtype=torch.float32, **_EAGER)
            found = batch_builder.batch(built, lambda batch: self.forward(built, batch, loss_only=True))
            self.forward(self._placed(built), found, loss_only=True)

        toy = config.to_dict()
        found = chosen(source_of(model, spoken), acceptance(type(config), toy, run), extent)
        derived = type(config).from_dict(toy_config(type(config)().to_dict())).to_dict()
        apart = ("architectures", "transformers_version", "dtype", "_name_or_path")
        same = all(toy.get(key) == value for key, value in derived.items() if key not in apart)
        if not same and extent is Extent.apart:
            found.configs = {"the toy of the defaults": derived, **found.configs}
        return found

    def _fill(self, model: Any, batch_builder: BatchBuilder) -> None:
        """Weights with which the batch reaches every expert, or as many of them as in eight tries."""
        best: tuple[int, int] = (1 << 30, 0)
        for salt in range(_TRIES):
            fill(model, salt)
            best = min(best, (self._idle_experts(model, batch_builder), salt))
            if not best[0]:
                return
        fill(model, best[1])

    def _idle_experts(self, model: Any, batch_builder: BatchBuilder) -> int:
        def run(batch: Tensors) -> Tensors:
            placed = {name: tensor.to(self._device) for name, tensor in batch.items()}
            return self.forward(model, placed, loss_only=True)

        inputs = batch_builder.batch(model, run)
        model.zero_grad(set_to_none=True)
        torch.autograd.backward(run(inputs)["loss"])
        gradients = {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}
        return len(unexercised([], gradients))

    def _placed(self, model: Any) -> nn.Module:
        return cast(nn.Module, model.train().to(self._device))


def _toys_of(source: str) -> tuple[Any, Iterator[dict[str, Any]]]:
    """Return the class of a config, and the values of toys: one, then those in which a relation of sizes is
    restored.
    """
    path = Path(source)
    if not path.is_file():
        config = default_config(source)
        real = config.to_dict()
        toy = toy_config(real)
        return type(config), chain([toy], related(real, toy))
    read_mapping(path)  # which names the line where it is broken
    values, _ = PreTrainedConfig.get_config_dict(path)  # which knows how infinity is written
    config = default_config(str(values.get("model_type")))
    if path.name == "toy_config.json":  # written without torch: a part that its class makes may be missing
        real = config.to_dict()
        toy = _completed(values, toy_config(real))
        return type(config), chain([values, toy], related(real, toy))
    real = type(config).from_dict(values).to_dict()
    toy = toy_config(real)
    return type(config), chain([toy], related(real, toy))


def _completed(values: Mapping[str, Any], whole: Mapping[str, Any]) -> dict[str, Any]:
    """Return a config with what it omits of another, in its parts, too."""
    parts = {
        key: _completed(part, whole[key])
        for key, part in values.items()
        if is_part(key, part) and isinstance(whole.get(key), Mapping)
    }
    return {**whole, **values, **parts}


def _whole_of(source: str) -> Any:
    """Return the real config of a source: a file as it is, but of a toy what its class has by default."""
    path = Path(source)
    if not path.is_file():
        return default_config(source)
    read_mapping(path)  # which names the line where it is broken
    values, _ = PreTrainedConfig.get_config_dict(path)
    default = default_config(str(values.get("model_type")))
    return default if path.name == "toy_config.json" else type(default).from_dict(values)


def _parameters(config_class: Any, values: Mapping[str, Any]) -> int:
    config = config_class.from_dict(dict(values))
    with torch.device("meta"):
        model = model_class_of(config)._from_config(config, **_EAGER)
    return sum(parameter.numel() for parameter in model.parameters())


def default_config(model_type: str) -> Any:
    """Return the config of a model_type as its class makes it, with the parts of its own that it may omit.

    Raises:
        BadInput: transformers has no such type.
    """
    try:
        config = AutoConfig.for_model(model_type)
    except ValueError as error:
        raise BadInput(f"transformers {transformers.__version__} has no model_type '{model_type}'") from error
    parts = {name: made() for name, made in _own_parts(config).items()}
    return type(config)(**parts) if parts else config


def _own_parts(config: Any) -> dict[str, Any]:
    """Return the classes of a model's own parts that its config omits by default, or takes from another model."""
    module = vars(sys.modules[type(config).__module__]).values()
    own: list[Any] = [one for one in module if isinstance(one, type) and issubclass(one, PreTrainedConfig)]
    named = {**config.sub_configs, **{one.base_config_key: one for one in own}}
    return {
        name: made
        for name, made in named.items()
        if made is not AutoConfig
        and hasattr(config, name)
        and getattr(getattr(config, name), "model_type", "") != made.model_type
    }


def _config_for(model_class: Any, config: Any) -> Any:
    """Return the part of a config that a class is built from: the text model of a whole takes the text config alone."""
    parts = getattr(config, "sub_configs", {})
    return config.get_text_config() if parts.get("text_config") == model_class.config_class else config


def model_class_of(config: Any) -> Any:
    """Return the class that the config names, else the library's model for the type that reads most kinds of input."""
    for name in config.architectures or []:
        if hasattr(transformers, name):
            return getattr(transformers, name)
    autos = [AutoModelForCausalLM]
    if hasattr(config, "vision_config"):
        autos.insert(0, AutoModelForImageTextToText)
    for auto in autos:
        if type(config) in auto._model_mapping:
            found = auto._model_mapping[type(config)]
            return found[0] if isinstance(found, tuple) else found
    whole = f"{type(config).__name__.removesuffix('Config')}ForConditionalGeneration"
    if hasattr(transformers, whole):
        return getattr(transformers, whole)
    raise BadInput(f"transformers has no language model for model_type '{config.model_type}'")
