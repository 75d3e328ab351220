"""Other toys of the same model: what one config cannot show, because a value stands at its default or is off."""

import copy
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import count
from typing import Any

from omni_kit.pysource.eval import UNKNOWN
from omni_kit.toys.configs.layers import COUNTS
from omni_kit.toys.configs.rope import PARTIAL, ROPE, scaled
from omni_kit.toys.configs.values import OF_LAYERS, Declared, alternatives, elsewhere
from omni_kit.upstream.transformers.fields import ConfigField, FieldsRead

TIED = "tie_word_embeddings"
# Each number moves by a share of its own, so that one in the place of another shows; 0 would hide what it multiplies.
_MOVED, _APART, _EPS, _FROM_ZERO = 1.25, 0.03125, 0.03, 0.25
# Floats that are chance, or shares of a width that has to stay even.
_KEPT = ("drop", "_prob", "init", "jitter", "noise", "partial")
_OWN = "model_type"  # what a config within a config has, and a mere group of settings has not
_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
_MANY = 12  # the first number whose name comes before those of smaller ones
_NUMEROUS = 101
_SHOWN = 40  # characters of a value
MOVED = "no number at its default"
_BUT_NONE, _BUT_ZERO = f"{MOVED}, except fields without a float", f"{MOVED}, except floats that are 0"
TOGETHER, LAYERS = "every field at once", "every choice of layers at once"
SWITCHED = "every switch at once"
Accepts = Callable[[Mapping[str, Any]], str]


class Extent(StrEnum):
    """Fields that differ: one per config, as many at once as upstream accepts, the numbers alone, or the switches."""

    apart = "apart"
    together = "together"
    numbers = "numbers"
    switches = "switches"


@dataclass(frozen=True)
class FieldVaried:
    """A field that upstream's code reads, and the value that it was set to.

    Attributes:
        toy: its value in the toy.
        tried: other values that upstream accepts.
        why: why none was tried; empty if one was.
    """

    name: str
    toy: str = ""
    tried: Sequence[str] = ()
    why: str = ""


@dataclass(frozen=True)
class Variation:
    """Configs that differ from a toy's in one respect; the first that upstream accepts stands for them.

    Attributes:
        configs: name -> config.
        fields: the names of what is different in them.
        layers: they differ in how many layers there are, or of what kinds.
    """

    configs: Mapping[str, Mapping[str, Any]]
    fields: Sequence[str] = ()
    layers: bool = False


@dataclass
class Variants:
    """The configs to compare on, and the result of each field.

    Attributes:
        refused: name of a config -> why upstream does not accept it.
    """

    configs: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    fields: list[FieldVaried] = field(default_factory=list)


@dataclass(frozen=True)
class Source:
    """The inputs of variants.

    Attributes:
        toy: the complete config of a toy.
        read: what upstream's code reads of it.
        ropes: type of scaled positions -> the parameters that the library's function for it reads.
        spoken: the one config within it that the model is asked by; empty if it is asked as a whole.
    """

    toy: Mapping[str, Any]
    read: FieldsRead
    declared: Declared = field(default_factory=Declared)
    ropes: Mapping[str, Collection[str]] = field(default_factory=dict)
    spoken: str = ""

    def variations(self) -> Iterator[Variation]:
        """Each differs in one respect, or in two that one condition depends on; configs within it by themselves."""
        optional = {
            name for name in self.read.fields if float in self.declared.types.get(name, ()) and not elsewhere(name)
        }
        none: Collection[str] = ()
        moved = {
            name: _moved(self.toy, count(), zeros, turned)
            for name, zeros, turned in ((MOVED, True, optional), (_BUT_NONE, True, none), (_BUT_ZERO, False, none))
        }
        yield Variation(moved, [name for name, _ in self._own(self.toy) if _floats(self.toy, moved[MOVED], name)])
        yield from self._within(self.toy)

    def _within(self, toy: Mapping[str, Any]) -> Iterator[Variation]:
        yield from self._of_one(toy)
        for name, part in toy.items():
            if isinstance(part, Mapping) and _OWN in part and self.spoken in ("", name):
                # A switch that the whole has, too, is turned with it.
                own = {key: value for key, value in part.items() if not isinstance(toy.get(key), bool)}
                for made in Source(own, self.read, self.declared, self.ropes)._within(own):
                    configs = {
                        f"{name}: {what}": {**copy.deepcopy(dict(toy)), name: {**copy.deepcopy(dict(part)), **config}}
                        for what, config in made.configs.items()
                    }
                    yield Variation(configs, made.fields, made.layers)

    def _own(self, toy: Mapping[str, Any]) -> Iterator[tuple[str, ConfigField]]:
        """The fields that the code reads and this config has, or gets from a default of the code."""
        for name, one in sorted(self.read.fields.items()):
            if name in toy or (one.default is not UNKNOWN and _OWN in toy):
                yield name, one

    def _of_one(self, toy: Mapping[str, Any]) -> Iterator[Variation]:
        yield from _many(toy)
        singles: dict[str, Variation] = {}
        for name, one in self._own(toy):
            if elsewhere(name):
                continue
            for group in alternatives(one, toy, self.declared, self.read.strings):
                configs = {f"{name}={_shown(value)}": _with(toy, name, value) for value in group}
                made = Variation(configs, [name], name in COUNTS or bool(one.uses & OF_LAYERS))
                singles.setdefault(name, made)
                yield made
        for what, rope in scaled(toy, self.ropes if ROPE in self.read.fields else {}):
            yield Variation({what: {**copy.deepcopy(dict(toy)), ROPE: rope}}, [ROPE])
        for first, second in sorted(self.read.pairs):
            if first in singles and second in singles:
                yield _both(toy, singles[first], singles[second])

    def unvaried(self, tried: Mapping[str, Sequence[str]]) -> Iterator[FieldVaried]:
        """Return each field that the code reads, with the values that were tried or the reason why none was.

        Args:
            tried: field -> the names of configs that differ in it.
        """
        parts = [self.toy, *(part for part in self.toy.values() if isinstance(part, Mapping) and _OWN in part)]
        for name in sorted(self.read.fields):
            held = next((part for part in parts if name in part), None)
            one = self.read.fields[name]
            if held is None and one.default is UNKNOWN:
                continue  # of another config that is not this model's
            value = _shown(held[name]) if held is not None else "absent"
            why = "" if tried.get(name) else elsewhere(name) or "no other value is known for it"
            yield FieldVaried(name, value, tuple(tried.get(name, ())), why)


def chosen(source: Source, accepts: Accepts, extent: Extent = Extent.apart) -> Variants:
    """Return the variants that upstream accepts.

    Args:
        accepts: why upstream does not accept a config; empty if it does.
    """
    choice = _Choice(source, accepts)
    if extent is Extent.numbers:
        return choice.apart(one for one in source.variations() if any(n == MOVED or PARTIAL in n for n in one.configs))
    if extent is Extent.switches:
        return choice.switched()
    return choice.together() if extent is Extent.together else choice.apart(source.variations())


@dataclass
class _Choice:
    """Configs that upstream has tried, and the outcome of each."""

    source: Source
    accepts: Accepts
    found: Variants = field(default_factory=Variants)
    tried: dict[str, list[str]] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)

    def apart(self, variations: Iterable[Variation]) -> Variants:
        """Return one config for each variation: the first that is accepted."""
        for variation in variations:
            if name := self._accepted(variation, self.source.toy):
                self.found.configs[name] = variation.configs[name]
            else:
                first = next(iter(variation.configs))
                self.found.refused[first] = self.refused[first]
        return self._with_fields()

    def together(self) -> Variants:
        """Return the first variation of each field: those of layers in one config, and all others in another."""
        first: dict[bool, dict[str, Variation]] = {True: {}, False: {}}
        for variation in self.source.variations():
            one = " ".join(variation.fields)
            if MOVED in variation.configs or (len(variation.fields) == 1 and one not in COUNTS):
                first[variation.layers].setdefault(one, variation)
        for layers, variations in first.items():
            made = self._merged(self.source.toy, list(variations.values()))
            if made is not self.source.toy:
                self.found.configs[LAYERS if layers else TOGETHER] = made
        return self._with_fields()

    def switched(self) -> Variants:
        """Return every switch turned in one config, but for that which ties embeddings."""
        variations = [one for one in self.source.variations() if one.fields != [TIED] and _turns(one)]
        if (made := self._merged(self.source.toy, variations)) is not self.source.toy:
            self.found.configs[SWITCHED] = made
        return self._with_fields()

    def _merged(self, base: Mapping[str, Any], variations: Sequence[Variation]) -> Mapping[str, Any]:
        """Return a config with all variations that are accepted with each other: halves are tried where the whole is
        not.
        """
        if len(variations) > 1:
            made, names = base, [next(iter(one.configs)) for one in variations]
            for name, one in zip(names, variations, strict=True):
                made = _overlaid(made, self.source.toy, one.configs[name])
            if not self.accepts(made):
                for name, one in zip(names, variations, strict=True):
                    self._note(one, name)
                return made
            half = len(variations) // 2
            return self._merged(self._merged(base, variations[:half]), variations[half:])
        for one in variations:
            if name := self._accepted(one, base):
                return _overlaid(base, self.source.toy, one.configs[name])
        return base

    def _accepted(self, variation: Variation, base: Mapping[str, Any]) -> str:
        """Return the name of the first config that is accepted on top of another; empty if none is."""
        first = next(iter(variation.configs))
        for name, config in variation.configs.items():
            why = self.accepts(_overlaid(base, self.source.toy, config))
            if not why:
                self._note(variation, name)
                return name
            self.refused.setdefault(first, why)
        for one in variation.fields:
            self.refused.setdefault(one, f"{first}: {self.refused[first]}")
        return ""

    def _note(self, variation: Variation, name: str) -> None:
        for one in variation.fields:
            self.tried.setdefault(one, []).append(name)

    def _with_fields(self) -> Variants:
        for one in self.source.unvaried(self.tried):
            refused = one.why and self.refused.get(one.name)
            why = f"upstream refuses it: {refused}" if refused else one.why
            self.found.fields.append(FieldVaried(one.name, one.toy, one.tried, why))
        return self.found


def _turns(variation: Variation) -> bool:
    """Return whether it differs in one switch."""
    config = next(iter(variation.configs.values()))
    parts = [config, *(part for part in config.values() if isinstance(part, Mapping))]
    turned = [any(isinstance(part.get(name), bool) for part in parts) for name in variation.fields]
    return turned == [True] and not variation.layers


def _overlaid(base: Mapping[str, Any], toy: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Return a config with everything in which another differs from the toy's."""
    made = copy.deepcopy(dict(base))
    for key, value in other.items():
        before = toy.get(key, UNKNOWN)
        if before == value and type(before) is type(value):
            continue
        both = isinstance(value, Mapping) and isinstance(before, Mapping) and isinstance(made.get(key), Mapping)
        made[key] = _overlaid(made[key], before, value) if both else copy.deepcopy(value)
    return made


def _both(toy: Mapping[str, Any], first: Variation, second: Variation) -> Variation:
    configs = {
        f"{one}, {other}": _overlaid(config, toy, more)
        for one, config in first.configs.items()
        for other, more in second.configs.items()
    }
    return Variation(configs, [*first.fields, *second.fields], first.layers or second.layers)


def _with(toy: Mapping[str, Any], key: str, value: Any) -> dict[str, Any]:
    """Return another value; a switch is turned in the parts that say the same of themselves, too."""
    made = copy.deepcopy(dict(toy))
    if isinstance(value, bool):
        for part in made.values():
            if isinstance(part, dict) and key in part and part[key] is made.get(key):
                part[key] = value
    if key in COUNTS and isinstance(toy.get(key), int):
        for name, held in made.items():
            if "layer" in name and isinstance(held, list) and len(held) == toy[key]:  # one entry a layer
                made[name] = (held * value)[: value - 1] + held[-1:]
    made[key] = copy.deepcopy(value)
    return made


def enlarged(toy: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Name -> a config with more layers, or more experts, than have names of two digits; for names alone.

    Configs within it are enlarged by themselves.
    """
    layers = next((key for key in COUNTS if isinstance(toy.get(key), int)), "")
    if layers:
        yield f"{_NUMEROUS} layers", _with(toy, layers, _NUMEROUS)
    if experts := [name for name in _EXPERTS if isinstance(toy.get(name), int)]:
        yield f"{_NUMEROUS} experts", {**copy.deepcopy(dict(toy)), **dict.fromkeys(experts, _NUMEROUS)}
    for name, part in toy.items():
        if isinstance(part, Mapping) and _OWN in part:
            for what, made in enlarged(part):
                yield f"{name}: {what}", {**copy.deepcopy(dict(toy)), name: made}


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def _moved(value: Any, numbers: Iterator[int], zeros: bool, turned: Collection[str], key: str = "") -> Any:
    """Return a config with every float moved away from its value, and from what others are moved to.

    Args:
        numbers: counts the floats.
        zeros: also move those that are 0.
        turned: fields that may be floats and get one where they are None or the integer 0, which turn something off.
    """
    if isinstance(value, Mapping):
        return {name: _moved(one, numbers, zeros, turned, name) for name, one in value.items()}
    if isinstance(value, list):
        return [_moved(one, numbers, zeros, turned, key) for one in value]
    off = key in turned and not value and not isinstance(value, (bool, str))
    moves = off or (isinstance(value, float) and (value or zeros))
    if not moves or any(word in key for word in _KEPT):
        return value
    share = _APART * next(numbers)
    if not value:
        return _FROM_ZERO + share
    return _EPS * (1 + share) if "eps" in key else value * (_MOVED + share)


def _floats(toy: Mapping[str, Any], moved: Mapping[str, Any], name: str) -> bool:
    return name in toy and toy[name] != moved[name]


def _many(toy: Mapping[str, Any]) -> Iterator[Variation]:
    """More layers and experts than have names of one digit."""
    key = next((key for key in COUNTS if isinstance(toy.get(key), int)), "")
    if not key or toy[key] >= _MANY:
        return
    made = _with(toy, key, _MANY)
    experts = [name for name in _EXPERTS if isinstance(toy.get(name), int)]
    made |= {name: _MANY for name in experts if toy[name] < _MANY}
    yield Variation({f"{_MANY} layers" + (f" and {_MANY} experts" if experts else ""): made}, [key, *experts], True)
