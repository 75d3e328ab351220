"""Reasons why a key may feed no parameter: ignored by the model on purpose, or in a part that could not be read."""

import ast
import re
import sys
from collections.abc import Mapping
from functools import cached_property

from omni_kit.layout.checkpoint import Checkpoint
from omni_kit.layout.quantised import beside
from omni_kit.upstream.model import Model

# What makes speech of what a model thinks; left out unless the config asks for audio.
_SPEECH = frozenset({"talker", "code2wav", "token2wav"})
_LAYER = re.compile(r"^(?P<list>(?:.*?\.)?)(?P<layer>[0-9]{1,9})\.")
# What a layer for multi-token prediction has beside an ordinary layer: it joins an embedding to a hidden state.
_JOINS = frozenset({"eh_proj", "enorm", "hnorm", "embed_proj", "pre_fc_norm_embedding", "pre_fc_norm_hidden"})
_ANNOUNCED = re.compile(r"mtp|nextn|next_n|multi_token")


class Ignoring:
    """The reasons for which keys of one checkpoint feed nothing of one model."""

    def __init__(self, checkpoint: Checkpoint, model: Model) -> None:
        self._model = model
        self._checkpoint = checkpoint
        self._listed = [re.compile(pattern) for pattern in _ignore_list(model)]
        self._unread = [f"{path.removesuffix('.*')}." for path, _ in model.skeleton.unresolved]

    def reason(self, key: str, names: tuple[str, ...]) -> str | None:
        """Return why a key feeds nothing; None without a reason.

        Args:
            names: where the recipe leads it.
        """
        listed = next((pattern.pattern for pattern in self._listed if pattern.search(key)), None)
        if self.predicts(key, names):
            known = f"the class ignores {listed}" if listed else "transformers reports it as unexpected"
            return f"multi-token prediction: the model does not build this layer; {known}"
        if listed:
            return f"the class ignores {listed}"
        part = key.partition(".")[0]
        if part in _SPEECH and not self._builds(part):
            return f"the talker: {self._model.class_name} does not build it"
        if beside(key):
            return "quantization data of a weight"
        return "computed when the model is built" if key.endswith("rotary_emb.inv_freq") else None

    def unread(self, names: tuple[str, ...]) -> str | None:
        """Return the unreadable submodule that would have one of these names; None if there is none."""
        spelled = [s for name in names for s in self._spellings(name)]
        found = (path for path in self._unread if any(name.startswith(path) for name in spelled))
        return next((path.removesuffix(".") for path in found), None)

    def predicts(self, key: str, names: tuple[str, ...]) -> bool:
        """Return whether a key is of a layer for multi-token prediction, which the model does not build.

        Such a layer stands beyond the last one, or in a list of its own, and the config, the class or the layer's own
        parts say what it is: a layer too many is none.
        """
        if key.startswith(("mtp.", "model.mtp.")):
            return True
        match, beyond = _LAYER.match(key), self._beyond(names)
        if match is None or beyond is None:
            return False
        said = beyond[1] < self._said
        return said or match.group(0) in self._joining or any(pattern.search(key) for pattern in self._listed)

    def beyond(self, names: tuple[str, ...]) -> str | None:
        """Return the layer that one of these names is of, where the model builds such layers, and fewer; else None."""
        found = self._beyond(names)
        return found[0] if found is not None else None

    def _beyond(self, names: tuple[str, ...]) -> tuple[str, int] | None:
        """Return the layer's name, and its distance from the last layer that is built."""
        for spelled in (s for name in names for s in self._spellings(name)):
            match = _LAYER.match(spelled)
            count = self._layers.get(match["list"]) if match is not None else None
            if match is not None and count is not None and int(match["layer"]) >= count:
                return match.group(0).removesuffix("."), int(match["layer"]) - count
        return None

    def _spellings(self, name: str) -> tuple[str, ...]:
        """Return a name as it is, and with the base model's prefix added and removed."""
        prefix = f"{self._model.skeleton.base_prefix}."
        return (name, f"{prefix}{name}", name.removeprefix(prefix)) if prefix != "." else (name,)

    @cached_property
    def _layers(self) -> Mapping[str, int]:
        """For each list of layers, as its names begin, how many the model builds."""
        found: dict[str, int] = {}
        for parameter in self._model.skeleton.parameters:
            if match := _LAYER.match(parameter.name):
                found[match["list"]] = max(found.get(match["list"], 0), int(match["layer"]) + 1)
        return found

    @cached_property
    def _said(self) -> int:
        """Number of such layers in the config; unlimited if it only states that there are some."""
        values = self._model.given
        parts = [values, *(value for value in values.values() if isinstance(value, Mapping))]
        said = [value for part in parts for key, value in part.items() if _ANNOUNCED.search(str(key)) and value]
        counts = [value for value in said if isinstance(value, int) and not isinstance(value, bool)]
        return max(counts) if counts else (sys.maxsize if said else 0)

    @cached_property
    def _joining(self) -> frozenset[str]:
        """Layers, as keys begin with them, that have a part which joins embeddings to hidden states."""
        keys = (key for key in self._checkpoint.tensors if _JOINS & {*key.split(".")})
        return frozenset(match.group(0) for key in keys if (match := _LAYER.match(key)))

    def _builds(self, part: str) -> bool:
        """Return whether the model has a part of that name, be it one that could not be read."""
        skeleton = self._model.skeleton
        built = (*(p.name for p in skeleton.parameters), *(f"{path}." for path, _ in skeleton.unresolved))
        return any(name.startswith(f"{part}.") for name in built)


def _ignore_list(model: Model) -> list[str]:
    """`_keys_to_ignore_on_load_unexpected` of the class and of its pre-trained base."""
    found: list[str] = []
    for name, node in model.source.classes.items():
        if name != model.class_name and not name.endswith("PreTrainedModel"):
            continue
        for item in node.body:
            if isinstance(item, ast.Assign) and ast.unparse(item.targets[0]) == "_keys_to_ignore_on_load_unexpected":
                found += [
                    e.value for e in ast.walk(item.value) if isinstance(e, ast.Constant) and isinstance(e.value, str)
                ]
    return found
