"""Decisions about every model of the installed libraries, as facts that two versions are compared by."""

import json
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from omni_checkers.engine.run import check
from omni_kit.errors import OmniKitError
from omni_kit.isolation.pool import map_in_forks
from omni_kit.layout import check_layout
from omni_kit.patchgen import run_config
from omni_kit.pysource.library import find_library
from omni_kit.pysource.source import without_collection
from omni_kit.scaffold import new_model
from omni_kit.targets.protocol import Request, Target
from omni_kit.targets.registry import targets
from omni_kit.toys.configs.language import toy_config
from omni_kit.upstream.diffusers.classes import class_names, find_class, transformer_names
from omni_kit.upstream.kinds import Kind
from omni_kit.upstream.subject import DIFFUSERS, TRANSFORMERS, Subject, open_source
from omni_kit.upstream.transformers.autoclasses import CAUSAL_TABLE, auto_table
from omni_kit.upstream.transformers.configs import model_types
from omni_kit.upstream.transformers.models import UpstreamModel

_PROCESSES = 2
_MULTIMODAL = "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES"
_OF_EACH_KIND, _KINDS, _STRIDE = 2, 8, 17
_OF_RULES = "rules of "
CHECKED = ("llama", "mixtral", "qwen3_moe", "deepseek_v3", "gemma3_text", "glm4_moe", "olmoe", "mamba")
"""Scaffolds of these are generated and checked by every rule: one of each way in which a model can be built."""


@dataclass(frozen=True)
class Fact:
    """One thing that was decided about a subject.

    Attributes:
        room: what decided it: decisions, layouts, toys, feeds, wrappers, pipelines, modular, rules.
        what: on what, as "experts OlmoeExperts".
        choice: what was decided.
        evidence: the upstream line that it was read from, as file:line; empty if there is none.
    """

    room: str
    what: str
    choice: str
    evidence: str = ""


@dataclass(frozen=True)
class Facts:
    """The facts about one pair of versions.

    Attributes:
        versions: library -> version.
        roots: library -> the directory of its package.
        subjects: name -> its facts.
    """

    versions: dict[str, str]
    roots: dict[str, str]
    subjects: dict[str, list[Fact]]

    def dump(self) -> str:
        """Return JSON that `load` reads."""
        return json.dumps(asdict(self))

    @classmethod
    def load(cls, text: str) -> "Facts":
        """Read what `dump` wrote."""
        data = json.loads(text)
        subjects = {name: [Fact(**fact) for fact in facts] for name, facts in data["subjects"].items()}
        return cls(data["versions"], data["roots"], subjects)


def collect(names: Sequence[str], checked: Sequence[str]) -> Facts:
    """Collect the facts about models of the installed libraries.

    Args:
        checked: models whose fresh integrations are generated and checked by every rule.
    """
    libraries = [find_library(name) for name in (TRANSFORMERS, DIFFUSERS)]
    found = dict(map_in_forks(_subject, names, _PROCESSES))
    found |= {f"{_OF_RULES}{name}": facts for name, facts in map_in_forks(_rules, checked, _PROCESSES)}
    return Facts({one.name: one.version for one in libraries}, {one.name: str(one.root) for one in libraries}, found)


def names_of(facts: Facts) -> tuple[list[str], list[str]]:
    """Return the names of facts that the installed libraries have, and those that were checked by rules."""
    known = set(all_names())
    checked = [name.removeprefix(_OF_RULES) for name in facts.subjects if name.startswith(_OF_RULES)]
    return [name for name in facts.subjects if name in known], checked


def all_names() -> list[str]:
    """Return every causal and multimodal model_type, transformer and pipeline of the installed libraries."""
    transformers, diffusers = find_library(TRANSFORMERS), find_library(DIFFUSERS)
    known = model_types(transformers)
    types = {name for table in (CAUSAL_TABLE, _MULTIMODAL) for name in auto_table(transformers, table) if name in known}
    pipelines = [name for name in class_names(diffusers) if name.endswith("Pipeline") and "Modular" not in name]
    return [*sorted(types), *transformer_names(diffusers), *sorted(pipelines)]


def quick_names() -> list[str]:
    """Return two names of each kind that the installed libraries have, spread over the alphabet."""
    by_kind: dict[Kind, list[str]] = {}
    names = all_names()
    for name in (name for start in range(_STRIDE) for name in names[start::_STRIDE]):
        with suppress(OmniKitError):
            kind = open_source(name).kinds[-1]
            if len(by_kind.setdefault(kind, [])) < _OF_EACH_KIND:
                by_kind[kind].append(name)
        if len(by_kind) == _KINDS and all(len(found) == _OF_EACH_KIND for found in by_kind.values()):
            break
    return sorted({name for found in by_kind.values() for name in found})


def _subject(name: str) -> tuple[str, list[Fact]]:
    with without_collection():
        try:
            subject = open_source(name)
            where = _place(subject)
            found = [Fact("decisions", "kind", str(subject.kind)), *_facts(subject)]
            return name, [one if one.evidence else replace(one, evidence=where) for one in found]
        except OmniKitError as error:
            return name, [_refused("decisions", "kind", error)]


def _place(subject: Subject) -> str:
    """Return the file that defines a subject: what was decided without a line of its own was read from it."""
    library = subject.library
    try:
        model = subject.loaded
        if model is not None:
            return f"{library.show(model.source.path)}:1"
        found = find_class(library, subject.name)
    except OmniKitError:
        return ""
    return f"{library.show(found.source.path)}:{found.node.lineno}" if found is not None else ""


def _refused(room: str, what: str, error: OmniKitError) -> Fact:
    """Return the fact that something was refused, with the reason; upstream's lines in the message are its evidence."""
    places = re.findall(r"[\w./-]+\.py:\d+", error.message)
    plain = re.sub(r"[\w./-]+\.py:\d+|\b\d+\.\d+\.\d+\b", "...", error.message)
    return Fact(room, what, plain[:200], "; ".join(places))


def _facts(subject: Subject) -> Iterator[Fact]:
    for target in targets().values():
        if subject.library.name in target.reads:
            yield from _decided(target, subject)
    if isinstance(model := subject.loaded, UpstreamModel):
        yield from _layout(subject.given)
        yield from _toy(model)
        yield from _feed(model)


def _decided(target: Target, subject: Subject) -> Iterator[Fact]:
    """Yield the decisions of the target's plan, for each kind that the subject can be integrated as."""
    for kind in subject.kinds:
        if kind not in target.kinds or not target.kinds[kind].templates:
            continue
        room = {Kind.dit: "wrappers", Kind.pipeline: "pipelines", Kind.modular: "modular"}.get(kind, "decisions")
        try:
            plan = target.kinds[kind].plan(subject, Request("subject", Path()))
        except OmniKitError as error:
            yield _refused(room, f"{target.name} {kind}", error)
            continue
        yield Fact(room, f"{target.name} files", str(len(plan.files)))
        yield from (Fact(room, one.what, str(one.choice), one.evidence) for one in plan.decisions)


def _layout(name: str) -> Iterator[Fact]:
    try:
        verdict = check_layout(name)
    except OmniKitError as error:
        yield _refused("layouts", "layout", error)
        return
    yield Fact("layouts", "layout", verdict.verdict)
    for one in verdict.subtrees:
        how = f"{one.disk} -> {one.memory}: {one.converter}"
        yield Fact("layouts", f"{one.role} {one.prefix}", how, next(iter(one.evidence), ""))


def _toy(model: UpstreamModel) -> Iterator[Fact]:
    """Yield the values of its toy's config."""
    config = model.built_config.as_dict()
    where = model.source.library.show(model.config.cls.source.path) + ":1"
    try:
        toy = toy_config(config)
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        yield Fact("toys", "toy", f"{type(error).__name__}: {error}", where)
        return
    defaults = model.config.cls.defaults
    for key, value in toy.items():
        if key in config:
            yield Fact("toys", key, _shown(value), defaults[key].evidence if key in defaults else where)


def _feed(model: UpstreamModel) -> Iterator[Fact]:
    """Yield the inputs of the model's forward, which its feed fills by name."""
    forward = model.source.method(model.class_name, "forward")
    if forward is not None:
        names = [arg.arg for arg in (*forward.args.args[1:], *forward.args.kwonlyargs)]
        fed = [name for name in names if re.search(r"ids|labels|mask|embeds|pixel|grid|features|logits", name)]
        yield Fact("feeds", "inputs", ", ".join(sorted(fed)), model.source.where(forward))


def _rules(name: str) -> tuple[str, list[Fact]]:
    """Return the rules' findings in a fresh integration."""
    with tempfile.TemporaryDirectory(prefix="omni-kit-facts-") as place:
        try:
            new_model(name, name, target="veomni", into=Path(place), transformers=find_library(TRANSFORMERS).root)
            for config in Path(place, name).glob("*_patch_gen_config.py"):
                run_config(config)
            found = check([Path(place, name)]).findings
        except OmniKitError as error:
            return name, [_refused("rules", "check", error)]
        by_rule: dict[str, int] = {}
        for one in found:
            by_rule[one.rule] = by_rule.get(one.rule, 0) + 1
        counted = [Fact("rules", rule, f"{count} findings") for rule, count in sorted(by_rule.items())]
        return name, [Fact("rules", "check", "done"), *counted]


def _shown(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)
