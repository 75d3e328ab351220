"""Builds a wrapper over a class of diffusers, on the meta device with few layers, without loading anything."""

import copy
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from omni_kit.errors import in_short
from omni_kit.pysource.library import find_library
from omni_kit.upstream.diffusers.checkpointing import lost_by_checkpointing
from omni_kit.upstream.diffusers.classes import find_class

_FEW = {"num_layers": 1, "num_single_layers": 1, "num_refiner_layers": 1, "depth": 1}


def look_at(sides: Mapping[str, str], imported: Callable[[], None]) -> list[list[str]]:
    """[(which side, what is wrong)] of a diffusion model.

    Args:
        sides: "transformer" and "condition", the keys; "upstream", the class of diffusers, empty if it is none.
        imported: imports the package.
    """
    import diffusers

    upstream = getattr(diffusers, sides["upstream"], None) if sides["upstream"] else None
    before = getattr(upstream, "forward", None)
    imported()
    found: list[list[str]] = []
    if getattr(upstream, "forward", None) is not before:
        found.append(["transformer", f"importing the package replaces {sides['upstream']}.forward"])
    if sides["condition"]:
        found += [["condition", what] for what in _without_argument(sides["condition"])]
    if upstream is not None:
        found += [["transformer", what] for what in _tried(sides["transformer"], upstream)]
    return found


def _tried(key: str, upstream: Any) -> Iterator[str]:
    """Yield the faults that building shows, errors included."""
    try:
        yield from _built(key, upstream)
    except ImportError:
        raise
    except Exception as error:
        yield f"it cannot be built: {in_short(error)}"


def _without_argument(key: str) -> Iterator[str]:
    """Yield the trainer asks for both classes of the condition model without an argument."""
    from veomni.models.loader import MODEL_CONFIG_REGISTRY, MODELING_REGISTRY

    for registry in (MODEL_CONFIG_REGISTRY, MODELING_REGISTRY):
        if key not in registry.valid_keys():
            yield f"'{key}' is not registered"
            continue
        with suppress(ImportError):
            try:
                registry[key]()
            except TypeError as error:
                yield f"the function of '{key}' cannot be called without arguments: {error}"


def _built(key: str, upstream: Any) -> Iterator[str]:
    from veomni.models.loader import MODEL_CONFIG_REGISTRY, MODELING_REGISTRY

    config = MODEL_CONFIG_REGISTRY[key]()()
    yield from _dicts(config, upstream)
    theirs = _small(config, upstream)
    if theirs is None:
        return
    cls = MODELING_REGISTRY[key](upstream.__name__)
    with _counted(upstream) as count:
        made = _on_meta(lambda: cls._from_config(config, attn_implementation="eager"))
        if count[0] != 1:
            yield f"{upstream.__name__} is built {count[0]} times"
    if not isinstance(made.config, type(config)):
        yield f"the model's config is {type(made.config).__name__}, and no {type(config).__name__}"
    yield from _parts(made, theirs)
    yield from _saved(made, upstream)


def _small(config: Any, upstream: Any) -> Any | None:
    """diffusers' own model of the config, with few layers where it can be; None if its defaults make none."""
    kept = {name: getattr(config, name) for name in _FEW if hasattr(config, name)}
    for values in ({name: _FEW[name] for name in kept}, kept):
        for name, value in values.items():
            setattr(config, name, value)
        with suppress(TypeError, ValueError, IndexError, ZeroDivisionError):
            return _on_meta(lambda: upstream(**config.to_diffuser_dict()))
    return None


def _dicts(config: Any, upstream: Any) -> Iterator[str]:
    taken = [name for name in inspect.signature(upstream.__init__).parameters if name != "self"]
    given = config.to_diffuser_dict()
    if set(given) != set(taken):
        yield f"to_diffuser_dict differs from what {upstream.__name__} takes in {sorted(set(given) ^ set(taken))[0]}"
    default = inspect.signature(upstream.__init__).parameters
    for name in taken:
        wanted = default[name].default
        same = list(wanted) == list(given[name]) if _listed(wanted, given.get(name)) else wanted == given.get(name)
        if name in given and name not in _FEW and not same:
            yield f"'{name}' is {given[name]!r} by default, and {wanted!r} in {upstream.__name__}"
    written = config.to_dict()
    if written.get("_class_name") != upstream.__name__:
        yield f"to_dict gives {written.get('_class_name')!r} as _class_name"


def _listed(one: Any, two: Any) -> bool:
    return isinstance(one, list | tuple) and isinstance(two, list | tuple)


def _parts(made: Any, theirs: Any) -> Iterator[str]:
    own, wanted = set(made.state_dict()), set(theirs.state_dict())
    if own != wanted:
        yield f"the names of its weights differ from diffusers', as {sorted(own ^ wanted)[0]}"
    classes = {type(module).__name__ for module in made.modules()}
    optional = getattr(theirs, "_no_split_modules", None) or ()
    for name in getattr(made, "_no_split_modules", None) or ():
        if name not in classes and name not in optional:
            yield f"_no_split_modules names {name}, which the model has not"
    yield from _processors(made, theirs)
    if theirs._supports_gradient_checkpointing and not type(made).supports_gradient_checkpointing:
        upstream = find_class(find_library("diffusers"), type(theirs).__name__)
        if upstream is None or not lost_by_checkpointing(upstream):
            yield "supports_gradient_checkpointing is False"


def _processors(made: Any, theirs: Any) -> Iterator[str]:
    """Blocks of which some attention has a processor of the package, and other attention of the same sort has none.

    The sort is its class, and that of the processor that it has in diffusers.
    """
    package = type(made).__module__.rpartition(".")[0]
    before = {name: type(getattr(module, "processor", None)) for name, module in theirs.named_modules()}
    found: dict[tuple[str, Any], dict[bool, str]] = {}
    for name, module in made.named_modules():
        processor = getattr(module, "processor", None)
        if processor is not None and ".blocks." in f".{name.replace('transformer_blocks', 'blocks')}":
            own = type(processor).__module__.startswith(package)
            found.setdefault((type(module).__name__, before.get(name)), {}).setdefault(own, name)
    for kinds in found.values():
        if len(kinds) == 2:
            yield f"{kinds[False]} keeps diffusers' processor, and {kinds[True]} has the package's"


class _Full(OSError):
    """Stands for a disk that is full."""


def _saved(made: Any, upstream: Any) -> Iterator[str]:
    """Yield changes of the config that diffusers sees when it saves, and leftovers of a failed save."""
    seen: list[Any] = []
    kind, real = type(made.config), upstream.save_pretrained

    def fails(self: Any, *args: Any, **kwargs: Any) -> None:
        seen.append(copy.copy(self.config))
        raise _Full

    upstream.save_pretrained = fails
    try:
        with suppress(_Full):
            made.save_pretrained("/nowhere")
    finally:
        upstream.save_pretrained = real
    if seen and not isinstance(seen[0], dict):
        yield f"diffusers saves a {type(seen[0]).__name__} instead of a dict of its own config"
    if seen and not isinstance(made.config, kind):
        yield "the config is not put back when writing fails"


def _on_meta(make: Callable[[], Any]) -> Any:
    import torch

    with torch.device("meta"):
        return make()


@contextmanager
def _counted(upstream: Any) -> Iterator[list[int]]:
    """Count how often the constructor of a class runs."""
    count, real = [0], upstream.__init__

    def counting(self: Any, *args: Any, **kwargs: Any) -> None:
        count[0] += 1
        real(self, *args, **kwargs)

    upstream.__init__ = counting
    try:
        yield count
    finally:
        upstream.__init__ = real
