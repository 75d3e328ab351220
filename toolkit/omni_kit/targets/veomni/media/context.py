"""Variables for the media module of an integration."""

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from omni_kit.pysource.source import dotted
from omni_kit.targets.veomni.media.dummies import Dummy, batched, dummies_of
from omni_kit.targets.veomni.media.merging import POSITIONS, Merging, mask_dropped
from omni_kit.upstream.transformers.configs import GRIDS
from omni_kit.upstream.transformers.models import UpstreamModel

TEMPLATE = "media.py.jinja"
_BY_TOKEN = ("token_type_ids", "mm_token_type_ids", "moe_mm_token_type_ids")


@dataclass(frozen=True)
class MediaContext:
    """The names that the template may use, next to those of the text context.

    Attributes:
        upstream: the class that answers.
        positions: its positions have several axes.
        position_attributes: what their method reads of the model outside the config -> where the config has it.
        joined: argument of forward -> the dimension along which samples are joined.
        by_token: further arguments with a value for each token.
        dummies: the smallest input of each kind.
        towers: the attributes of the merging module that hold what makes features.
        padded: towers need masks, of padding or of pictures in one row, that VeOmni's attention does not get.
        shared: kinds of media have one placeholder.
        uneven: media of samples may differ in more than their number, which VeOmni's collator does not join.
        sounds: the only medium is sound.
    """

    upstream: str
    positions: bool
    position_attributes: Sequence[tuple[str, str]]
    joined: Sequence[tuple[str, int]]
    by_token: Sequence[str]
    dummies: Sequence[Dummy]
    towers: Sequence[str]
    padded: bool
    shared: bool
    uneven: bool
    sounds: bool


def media_context(model: UpstreamModel, merging: Merging) -> MediaContext:
    """Return the context of one integration."""
    joined: Mapping[str, int] = {
        name: int(batched(one)) for one in merging.features for name in one.inputs if not name.startswith("vision_")
    }
    taken = {argument.arg for argument in merging.forward.args.args}
    heard = any(one.kind == "audio" for one in merging.features)
    return MediaContext(
        upstream=model.class_name,
        positions=merging.positions,
        position_attributes=list(_attributes(model, merging)),
        joined=sorted(joined.items()),
        by_token=[*(["audio_mask"] if heard else []), *(name for name in _BY_TOKEN if name in taken)],
        dummies=dummies_of(model, merging),
        towers=list(dict.fromkeys(_towers(model, merging))),
        padded=any(one.padded for one in merging.features) or mask_dropped(model) is not None,
        shared=merging.shared,
        uneven=not any(name.endswith(GRIDS) for name in joined),
        sounds=all(one.kind == "audio" for one in merging.features),
    )


def _towers(model: UpstreamModel, merging: Merging) -> Iterator[str]:
    """Yield the modules that the methods for features call, themselves or by other methods of their class."""
    for one in merging.features:
        yield from _modules_called(model, merging.owner, f"get_{one.kind}_features", frozenset())


def _modules_called(model: UpstreamModel, owner: str, name: str, before: frozenset[str]) -> Iterator[str]:
    """Yield the modules of a class that its method calls, in the order of the source."""
    source = model.source
    method, init = source.method(owner, name), source.method(owner, "__init__")
    calls = [node for node in ast.walk(method) if isinstance(node, ast.Call)] if method is not None else []
    held = {target.partition(".")[2] for target in _assigned(init)}
    for call in sorted(calls, key=lambda call: call.lineno):
        this, called, *_ = [*(dotted(call.func) or "").split("."), ""]
        if this == "self" and called in held:
            yield called
        elif this == "self" and called not in before:
            yield from _modules_called(model, owner, called, before | {name})


def _assigned(method: ast.FunctionDef | None) -> Iterator[str]:
    """Yield the names that a method assigns, as written."""
    for node in ast.walk(method) if method is not None else ():
        if isinstance(node, ast.Assign):
            yield from (dotted(target) or "" for target in node.targets)


def _attributes(model: UpstreamModel, merging: Merging) -> Iterator[tuple[str, str]]:
    """Yield the attributes that `__init__` takes from the config and the method for positions reads."""
    method = model.source.method(merging.owner, POSITIONS) if merging.positions else None
    init = model.source.method(merging.owner, "__init__")
    if method is None or init is None:
        return
    read = {dotted(node) for node in ast.walk(method) if isinstance(node, ast.Attribute)}
    for statement in ast.walk(init):
        if isinstance(statement, ast.Assign) and (name := dotted(statement.targets[0])) in read:
            value = ast.unparse(statement.value)
            if name is not None and value.startswith("config."):
                yield name.removeprefix("self."), f"self.{value}"
