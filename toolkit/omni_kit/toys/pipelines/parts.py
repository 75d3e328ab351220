"""A small component of each sort, by its class: real classes, random weights."""

import contextlib
import importlib.util
import inspect
import json
import math
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from itertools import count
from pathlib import Path
from typing import Any

import diffusers
import torch
import transformers

from omni_kit.documents import read_mapping
from omni_kit.errors import BadInput, in_short
from omni_kit.pysource.library import find_library
from omni_kit.toys.configs.denoiser import constructor_defaults, toy_denoiser
from omni_kit.toys.configs.language import toy_config
from omni_kit.toys.weights import fill
from omni_kit.upstream.diffusers.classes import find_class
from omni_kit.upstream.diffusers.decoding import decodes_in_tiles_alone
from omni_kit.upstream.diffusers.local_pipelines import file_outside
from omni_kit.upstream.diffusers.pipelines import INDEX, Pipeline
from omni_kit.upstream.profile import Component

_WORDS = ("a", "cat", "dog", "on", "the", "mat", "red", "user", "assistant", "system", *(f"w{i}" for i in range(40)))
_SPECIAL = ("<pad>", "<s>", "</s>", "<unk>")
_PAD, _BEGIN, _END = range(3)
_TEXT = "$A"
# Classes of tokenizers, by parts of their names: with no token around a text, one before it, one behind it; else both.
_BARE_TEXTS, _BEGINS_TEXTS, _ENDS_TEXTS = ("Qwen", "GPT2"), ("Gemma", "Llama"), "T5"
_LENGTH = 64  # of what a tokenizer makes; encoders with fewer positions have shorter ones
# A message is text, or a list of texts and images; MARK becomes the token that marks an image.
_TEMPLATE = (
    "{% for message in messages %}{{ message['role'] }} "
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}{% for one in message['content'] %}"
    "{{ one['text'] if one['type'] == 'text' else 'MARK' }} {% endfor %}{% endif %} {% endfor %}assistant"
)
LEVELS = 2  # of an autoencoder: it halves pictures once
_MOST_CHANNELS = 128
_CHANNELS, _WIDTH = 32, 8  # some norms have 32 groups, whatever they are told
_BETWEEN = 142  # widths of models between others, which are none of the others' widths
_BOUNDS: Mapping[str, float] = {"min_": 0.0, "max_": 512.0}
_AROUND_IMAGES = ("vision_start_token", "image_start_token", "image_token", "image_end_token", "vision_end_token")
_READS_TEXT = "tokenizer"
_SHARED = "omni_kit_shared_config"
_SIDE, _MERGED = "side", "spatial_merge_size"
_PATCH_SIZES = ("patch_size", "merge_size", "temporal_patch_size")
_PLAIN_MARKS = ("pad_token", "bos_token", "eos_token", "unk_token")
_MARK = re.compile(r"(?!decoder_)(\w+)_token_(?:id|index)")
_READ_MARK = re.compile(r"\btokenizer\.(\w+_token)\b")
_BASE, _ANY = "PreTrainedModel", "Llama"
# What is neither shifted nor scaled by default is so in a toy: what a pipeline leaves out is seen then.
_MEASURES: Mapping[str, tuple[tuple[Any, ...], float]] = {
    "shift_factor": ((None,), 0.25), "scaling_factor": ((None, 1.0), 0.5)
}  # fmt: skip
# Arguments of an autoencoder that have no default: two levels, each half as large.
_UNDECLARED: Mapping[str, Any] = {
    "in_channels": 3, "out_channels": 3, "latent_channels": 4, "block_out_channels": (_CHANNELS,) * LEVELS,
    "layers_per_block": 1, "spatial_compression_ratio": 2 ** (LEVELS - 1), "sample_size": 64, "scaling_factor": 0.5,
}  # fmt: skip
_LATENT_CHANNELS = ("latent_channels", "z_dim", "decoder_input_channels")
_WIDTHS = ("base_dim", "decoder_base_dim", "dim", "decoder_channels")
_LEVELS_OF_SOUNDS = ("downsampling_ratios", "channel_multiples")
_RATE = 32  # samples a second: a short sound lasts seconds, so that its length shows in what a denoiser receives
_LAYERS_OF = ("layers_per_block", "num_res_blocks", "res_blocks")


def class_of(read: Pipeline) -> Any:
    """Return a pipeline's class; one outside diffusers is imported from its file."""
    name = read.cls.node.name
    if (file := file_outside(read)) is None:
        return getattr(diffusers, name)
    module = f"omni_kit_outside_{file.stem}"
    if module not in sys.modules:
        spec = importlib.util.spec_from_file_location(module, file)
        if spec is None or spec.loader is None:
            raise BadInput(f"{file} cannot be imported")
        sys.modules[module] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[module])
    return getattr(sys.modules[module], name)


def tokenizer(length: int, marks: Mapping[str, tuple[str, int]] | None = None, *, around: str = _TEXT) -> Any:
    """Return a tokenizer of words with outputs of at most `length` tokens.

    Args:
        marks: its attribute -> a special token and the number of that, as `marks_of` returns them.
        around: the template of a text with the tokens that begin and end it, as `around_text` returns it.
    """
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    numbers = {word: number for number, word in enumerate((*_SPECIAL, *_WORDS))} | dict((marks or {}).values())
    inner = Tokenizer(models.WordLevel(numbers, unk_token=_SPECIAL[-1]))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    if around != _TEXT:
        tokens = [(_SPECIAL[number], number) for number in (_BEGIN, _END)]
        inner.post_processor = processors.TemplateProcessing(single=around, special_tokens=tokens)
    named = dict(zip(_PLAIN_MARKS, _SPECIAL, strict=True))
    more = {name: word for name, (word, _) in (marks or {}).items()}
    made = transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner, model_max_length=length, extra_special_tokens=more, **named
    )
    made.chat_template = _TEMPLATE.replace("MARK", "".join(more.get(name, "") for name in _AROUND_IMAGES))
    return made


def around_text(class_name: str) -> str:
    """Return the template of a text in a tokenizer's class: an empty text has the tokens that begin and end others."""
    begin, end = _SPECIAL[_BEGIN], _SPECIAL[_END]
    if any(name in class_name for name in _BARE_TEXTS):
        return _TEXT
    if any(name in class_name for name in _BEGINS_TEXTS):
        return f"{begin} {_TEXT}"
    return f"{_TEXT} {end}" if _ENDS_TEXTS in class_name else f"{begin} {_TEXT} {end}"


def marks_of(models: Sequence[Any], texts: Sequence[str]) -> dict[str, tuple[str, int]]:
    """Return the special tokens that mark what text encoders read next to words, such as the place of an image.

    Args:
        texts: code that writes them; a token that none of it spells is called after its attribute.

    Returns:
        attribute of a tokenizer -> the token and its number: numbers of the encoders' configs, then others.
    """
    configs = (part for model in models for part in _configs(model.config.to_dict()))
    numbers = {name: value for part in configs for name, value in part.items()}
    found = {f"{match[1]}_token": value for name, value in numbers.items() if (match := _MARK.fullmatch(str(name)))}
    free = count(len(_SPECIAL) + len(_WORDS))
    for name in (name for text in texts for name in _READ_MARK.findall(text)):
        found.setdefault(name, next(free))
    marks = {name: value for name, value in found.items() if isinstance(value, int) and name not in _PLAIN_MARKS}
    return {name: (_spelled(name.removesuffix("_token"), texts), value) for name, value in marks.items()}


def _spelled(name: str, texts: Sequence[str]) -> str:
    """Return the first token in code that begins with a name."""
    written = re.compile(rf"<\|?{re.escape(name)}(?:_pad)?\|?>")
    return next((match[0] for text in texts if (match := written.search(text))), f"<|{name}|>")


def _configs(config: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield a config, and those of its parts."""
    yield config
    for value in config.values():
        if isinstance(value, dict):
            yield from _configs(value)


def code_of(component: Component) -> str:
    """Return the code of the module that has a class of transformers."""
    return inspect.getsource(inspect.getmodule(_of_transformers(component.class_name)) or transformers)


def encoder(component: Component, *, deep: bool = False) -> Any:
    """Return a text encoder of transformers, small.

    Args:
        deep: with as many layers as its class has by default, of which pipelines read some by their numbers.

    Raises:
        BadInput: transformers has no such class, or it cannot be built small.
    """
    cls = _of_transformers(_concrete(component.class_name))
    config_class = getattr(cls, "config_class", None)
    if config_class is None:
        raise BadInput(f"{component.class_name} of transformers {transformers.__version__} is not a model")
    whole = config_class().to_dict()
    values = toy_config(whole)
    _keep_patches(values, whole)
    if deep:
        _deepen(values, whole)
    known = {"pad_token_id": _PAD, "bos_token_id": _BEGIN, "eos_token_id": _END}
    try:
        config = config_class.from_dict({**values, **{key: one for key, one in known.items() if key in values}})
        for name in [name for name in known if not hasattr(config, name)]:
            setattr(config, name, known[name])  # published configs have them, also of classes that declare none
        made = _built(cls, config).eval()
        if made.can_generate():  # what it writes must not end by chance: pipelines count on so many tokens
            made.generation_config.eos_token_id = None
        return made
    except Exception as error:  # whatever its class raises for a small config
        raise BadInput(f"no small {component.class_name} can be built: {told(error)}") from error


def _built(cls: Any, config: Any) -> Any:
    """Return a model of a config, or of the first of its parts that makes one: encoders share a config with their
    decoders.
    """
    try:
        return cls._from_config(config, dtype=torch.float32)
    except AttributeError:
        for name in getattr(config, "sub_configs", {}):
            with contextlib.suppress(AttributeError):
                made = cls._from_config(getattr(config, name), dtype=torch.float32)
                setattr(made, _SHARED, config)
                return made
        raise


def save(pipeline: Any, out: Path) -> None:
    """Save a pipeline as it would be published: encoders with the config that they share with their decoders.

    diffusers writes its own name for classes that one of its pipelines' packages defines, and does not find them there.
    """
    pipeline.save_pretrained(out)
    index = read_mapping(out / INDEX)
    for name, part in pipeline.components.items():
        if (shared := getattr(part, _SHARED, None)) is not None:
            shared.save_pretrained(out / name)
        package, _, last = type(part).__module__.rpartition(".")
        if package == diffusers.pipelines.__name__ and index[name][0] == diffusers.__name__:
            index[name][0] = last
    (out / INDEX).write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")


def _deepen(values: dict[str, Any], whole: Mapping[str, Any]) -> None:
    """Give a small config the number of layers of the whole, also within."""
    for name, value in whole.items():
        if isinstance(value, dict) and isinstance(values.get(name), dict):
            _deepen(values[name], value)
        elif name in ("num_hidden_layers", "num_layers") and name in values:
            values[name] = value
            values.pop("layer_types", None)


def _keep_patches(values: dict[str, Any], whole: Mapping[str, Any]) -> None:
    """Give an encoder that merges patches its class's patches, also within: processors write down by how many pixels
    a picture shrinks."""
    for name, value in whole.items():
        if isinstance(value, dict) and isinstance(values.get(name), dict):
            _keep_patches(values[name], value)
    if _MERGED in values and isinstance(small := values.get("patch_size"), int):
        values["patch_size"] = whole["patch_size"]
        sides = {name: values[name] for name in ("image_size", "window_size") if isinstance(values.get(name), int)}
        values |= {name: side * values["patch_size"] // small for name, side in sides.items()}


def _concrete(name: str) -> str:
    """Return a class that can be made: pipelines also declare bases, of one sort of model or of all."""
    sort = name.removesuffix(_BASE)
    return name if sort == name else f"{sort or _ANY}Model"


def positions_of(model: Any) -> int:
    """Return the longest text that an encoder accepts."""
    text = model.config.get_text_config()
    return min(_LENGTH, int(getattr(text, "max_position_embeddings", _LENGTH) or _LENGTH))


def autoencoder(
    component: Component, changed: Mapping[str, Any] | None = None, *, levels: int = LEVELS, latents: int | None = None
) -> Any:
    """Return an autoencoder with few channels and few layers.

    Args:
        changed: other values for arguments of its constructor; those that it does not take are left out.
        levels: of those that keep the size of pictures by default; each but the last halves them.
        latents: the channels of latents; by default as its class has them.

    Raises:
        BadInput: it cannot be built so.
    """
    cls = _class(component)
    values = constructor_defaults(cls)
    declared = {name: one for name, one in values.items() if name in _LATENT_CHANNELS and isinstance(one, int)}
    values |= dict.fromkeys(declared, latents) if latents is not None else {}
    # some norms share them among their groups, and some classes among means and deviations of latents
    shared = math.lcm(_CHANNELS, 2 * max((values[name] for name in declared), default=1))
    channels = shared if shared <= _MOST_CHANNELS else _CHANNELS
    values = {name: _shrunk(name, value, channels) for name, value in values.items()}
    _level(values, levels)
    values |= {name: one for name, one in _UNDECLARED.items() if name in _required(cls)}
    values |= {name: other for name, (plain, other) in _MEASURES.items() if name in values and values[name] in plain}
    values |= {name: value for name, value in (changed or {}).items() if name in values}
    try:
        made = cls(**values).eval()
    except Exception as error:  # as above
        raise BadInput(f"no small {component.class_name} can be built: {told(error)}") from error
    let_decode(made)
    return made


def let_decode(made: Any) -> None:
    """Turn on the tiling of an autoencoder that decodes in no other way."""
    found = find_class(find_library("diffusers"), type(made).__name__)
    if found is not None and decodes_in_tiles_alone(found):
        made.enable_tiling()


def latent_channels(made: Mapping[str, Any]) -> int:
    """Return the channels of latents of the autoencoder among some parts."""
    configs = (part.config for part in made.values() if isinstance(part, diffusers.ModelMixin))
    found = (config.get(name) for config in configs for name in _LATENT_CHANNELS)
    return next((int(value) for value in found if isinstance(value, int)), 1)


def scheduler(component: Component, changed: Mapping[str, Any]) -> Any:
    """Return a scheduler with its class's defaults and the changed settings; of several accepted classes, the first."""
    several = getattr(diffusers.schedulers, component.class_name, None)
    if isinstance(several, type) and issubclass(several, Enum):
        component = replace(component, class_name=next(iter(several)).name)
    try:
        return _class(component)(**changed)
    except TypeError as error:  # it has arguments without a default
        raise BadInput(f"no {component.class_name} can be built: {told(error)}") from error


def scheduler_with(method: str, argument: str) -> Any:
    """Return the first class of a scheduler whose method takes an argument; None if there is none."""
    classes = (getattr(diffusers, name, None) for name in dir(diffusers.schedulers) if name.endswith("Scheduler"))
    asked = ((cls, inspect.getattr_static(cls, method, None)) for cls in classes)  # some only say what to install
    return next((cls for cls, one in asked if one is not None and argument in inspect.signature(one).parameters), None)


def processor(component: Component, reads: Any, sees: Mapping[str, int] | None = None) -> Any:
    """Return a processor of pictures, or of texts and pictures, as its class makes it.

    Args:
        reads: the tokenizer of those that read texts.
        sees: the sizes of pictures that the encoder reads, as `seen_by` returns them; by default those of its class.

    Raises:
        BadInput: transformers has no such class, or it cannot be built.
        ImportError: it needs a package that is not installed.
    """
    cls = _of_transformers(component.class_name)
    try:
        if not issubclass(cls, transformers.ProcessorMixin):
            return _pictured(cls, sees or {})
        sort = component.class_name.removesuffix("Processor")
        parts = [name for name in cls.get_attributes() if name != _READS_TEXT]
        made = {name: _pictured(_of_transformers(sort + name.title().replace("_", "")), sees or {}) for name in parts}
        return cls(**made, **{_READS_TEXT: reads}, chat_template=reads.chat_template)
    except (ImportError, BadInput):
        raise
    except Exception as error:  # whatever its constructor raises
        raise BadInput(f"no {component.class_name} can be built: {told(error)}") from error


def _pictured(cls: Any, sees: Mapping[str, int]) -> Any:
    """Return a processor of pictures as its class makes it, but for the sizes of its pictures and of their patches."""
    made = cls()
    patches = {name: sees[name] for name in _PATCH_SIZES if name in sees and isinstance(getattr(made, name, None), int)}
    found = {name: dict(getattr(made, name, None) or {}) for name in ("size", "crop_size")} if _SIDE in sees else {}
    sizes = {name: {key: sees[_SIDE] for key, one in size.items() if one} for name, size in found.items() if size}
    return cls(**sizes, **patches) if sizes or patches else made


def seen_by(model: Any) -> dict[str, int]:
    """Return the sizes of pictures that an encoder reads, by their names in a processor; none if it reads none.

    An encoder that merges patches reads pictures of any size; others read one size.
    """
    config = getattr(model.config, "vision_config", model.config)
    found = {_SIDE: getattr(config, "image_size", None)}
    if (merged := getattr(config, _MERGED, None)) is not None:
        values = (getattr(config, "patch_size", None), merged, getattr(config, "temporal_patch_size", 1))
        found = dict(zip(_PATCH_SIZES, values, strict=True))
    return {name: value for name, value in found.items() if isinstance(value, int)}


def _of_transformers(name: str) -> Any:
    """Return a class of transformers, or one that diffusers adds to it: to the module of that name that was
    there then.
    """
    modules = (transformers, sys.modules["transformers"])
    found = next((one for module in modules if (one := getattr(module, name, None)) is not None), None)
    if found is None:
        raise BadInput(f"transformers {transformers.__version__} has no class '{name}'")
    return found


def guider(component: Component) -> Any:
    """Return a guider as its class makes it."""
    return getattr(diffusers.guiders, component.class_name)()


def between_config(component: Component) -> dict[str, Any]:
    """Return the arguments of a small model between a text encoder and a denoiser; no two widths are alike.

    Raises:
        BadInput: it is not a model of diffusers.
    """
    cls = getattr(diffusers, component.class_name, None)
    if not (inspect.isclass(cls) and issubclass(cls, diffusers.ModelMixin)):
        raise BadInput(f"there is no rule for {component.name}, a {component.class_name}")
    values = toy_denoiser(constructor_defaults(cls))
    free = count(_BETWEEN, 2)
    for name in [name for name, value in values.items() if value is None and name in _required(cls)]:
        bound = next((bound for word, bound in _BOUNDS.items() if name.startswith(word)), None)
        values[name] = next(free) if bound is None else bound
    return values


def between(component: Component, values: Mapping[str, Any]) -> Any:
    """Return that model, with weights in which every element differs."""
    made = _class(component)(**values).eval()
    fill(made)
    return made


def _required(cls: Any) -> list[str]:
    parameters = inspect.signature(cls.__init__).parameters.values()
    return [one.name for one in parameters if one.default is one.empty]


def denoiser(component: Component, changed: Mapping[str, Any]) -> Any:
    """Return the denoiser, with weights in which every element differs.

    Args:
        changed: arguments of its constructor that have to be others than the toy's.
    """
    cls = _class(component)
    made = cls.from_config({**denoiser_config(component), **changed}).eval()
    fill(made)
    return made


def denoiser_config(component: Component) -> dict[str, Any]:
    """Return the arguments of a small denoiser."""
    return toy_denoiser(denoiser_defaults(component))


def denoiser_defaults(component: Component) -> dict[str, Any]:
    """Return the arguments of a denoiser as its class has them."""
    return constructor_defaults(_class(component))


def constructor_code(component: Component) -> str:
    """Return the code of a denoiser's constructor."""
    return textwrap.dedent(inspect.getsource(inspect.unwrap(_class(component).__init__)))


def _class(component: Component) -> Any:
    found = getattr(diffusers, component.class_name, None)
    if not inspect.isclass(found):
        raise BadInput(f"diffusers {diffusers.__version__} has no class '{component.class_name}'")
    return found


def _shrunk(name: str, value: Any, channels: int) -> Any:
    """Return one argument of an autoencoder: channels and layers are few, what says how latents lie is kept."""
    if name.endswith("block_out_channels") and isinstance(value, (list, tuple)):
        return tuple(channels for _ in value)
    if name.endswith(_LAYERS_OF):
        return tuple(1 for _ in value) if isinstance(value, (list, tuple)) else 1
    if name.endswith("norm_num_groups") or name == "attention_head_dim":
        return 2
    if name in _LEVELS_OF_SOUNDS:
        return value[:LEVELS]
    if name == "sampling_rate":
        return _RATE
    return _WIDTH if name in _WIDTHS and isinstance(value, int) else value


def _level(values: dict[str, Any], levels: int) -> None:
    """Autoencoders that keep the size of pictures by default halve them once: fewer latents, and a scale that shows."""
    channels = values.get("block_out_channels")
    if isinstance(channels, tuple) and len(channels) == 1:
        for name, value in values.items():
            if isinstance(value, tuple) and len(value) == 1 and name.endswith(("block_types", "block_out_channels")):
                values[name] = value * levels


def told(error: Exception) -> str:
    """Return an error in one line."""
    return in_short(error)
