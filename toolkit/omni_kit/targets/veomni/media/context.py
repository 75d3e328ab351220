"""What the module for media of an integration is rendered with."""

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from omni_kit.pysource.source import dotted
from omni_kit.targets.veomni.media.dummies import Dummy, batched, dummies_of
from omni_kit.targets.veomni.media.merging import POSITIONS, Merging
from omni_kit.upstream.transformers.models import UpstreamModel

TEMPLATE = "media.py.jinja"
_BY_TOKEN = ("token_type_ids", "mm_token_type_ids", "moe_mm_token_type_ids")


@dataclass(frozen=True)
class MediaContext:
    """The names that the template may use, beside those of the text context.

    Attributes:
        upstream: the class that answers.
        positions: its positions have several axes.
        position_attributes: what the method for them reads of the model besides its config -> where the config has it.
        joined: argument of forward -> the dimension along which samples are joined.
        by_token: further arguments with a value for each token.
        dummies: the smallest input of each kind.
        towers: the attributes of the merging module that hold a tower.
    """

    upstream: str
    positions: bool
    position_attributes: Sequence[tuple[str, str]]
    joined: Sequence[tuple[str, int]]
    by_token: Sequence[str]
    dummies: Sequence[Dummy]
    towers: Sequence[str]


def media_context(model: UpstreamModel, merging: Merging) -> MediaContext:
    """The context of one integration."""
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
    )


def _towers(model: UpstreamModel, merging: Merging) -> Iterator[str]:
    """The first module that each method for features calls."""
    for one in merging.features:
        method = model.source.method(merging.owner, f"get_{one.kind}_features")
        calls = [node for node in ast.walk(method) if isinstance(node, ast.Call)] if method is not None else []
        named = (dotted(call.func) or "" for call in sorted(calls, key=lambda call: call.lineno))
        own = (name.removeprefix("self.") for name in named if name.startswith("self."))
        yield from (name for name in [next((name for name in own if "." not in name), "")] if name)


def _attributes(model: UpstreamModel, merging: Merging) -> Iterator[tuple[str, str]]:
    """What `__init__` takes from the config, and the method for positions reads from the model."""
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
