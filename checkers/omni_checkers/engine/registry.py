"""The registry of rules: those of every target's package, and third parties' through `omni_kit.rules`."""

import importlib
import pkgutil
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from importlib.metadata import entry_points
from types import ModuleType

from omni_checkers.engine.own_rules import ENGINE_RULES
from omni_checkers.engine.rule import LEVELS, Rule
from omni_kit.diagnostics.definition import Definition, Selection
from omni_kit.errors import BadInput
from omni_kit.layout import codes as layout
from omni_kit.patchgen import codes as patchgen
from omni_kit.targets.registry import targets

GROUP = "omni_kit.rules"
SKILLS = "skill"
"""Target of rules about skills; `check` leaves them out, `skills check` runs them alone."""
RETIRED: dict[str, str] = {}
"""Ids that were in use once -> what became of them. They are never given to another rule."""


@cache
def all_rules() -> tuple[type[Rule], ...]:
    """Return every rule, by id.

    Raises:
        BadInput: two rules claim one id, or a rule claims a retired one.
    """
    found: dict[str, type[Rule]] = {}
    modules = [_package(target.name, target.rules) for target in targets().values()]
    modules += [importlib.import_module("omni_checkers.skills.rules")]
    modules += [entry.load() for entry in entry_points(group=GROUP)]
    for rule in (*ENGINE_RULES, *(rule for module in modules for rule in _rules_of(module))):
        if rule.id in RETIRED:
            raise BadInput(f"{rule.__module__}.{rule.__name__} uses the retired id {rule.id}", RETIRED[rule.id])
        _check_complete(rule)
        if found.setdefault(rule.id, rule) is not rule:
            raise BadInput(f"{rule.__name__} and {found[rule.id].__name__} both claim the id {rule.id}")
    return tuple(found[key] for key in sorted(found))


def _package(target: str, name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise BadInput(f"the rules of the target '{target}' cannot be imported: {error}", f"see {name}") from error


def _check_complete(rule: type[Rule]) -> None:
    """Raise if a rule lacks a required attribute, or names a target that is not registered."""
    where = f"{rule.__module__}.{rule.__name__}"
    if missing := [name for name in ("name", "target") if not hasattr(rule, name)]:
        raise BadInput(f"the rule {where} has no '{missing[0]}'", "every rule has an id, a name and a target")
    if rule.target not in {"any", SKILLS, *targets()}:
        raise BadInput(f"the rule {where} is for the target '{rule.target}', which does not exist")


def _rules_of(module: ModuleType) -> Iterator[type[Rule]]:
    """Yield the rules that a package, with all packages inside it, or a module defines itself."""
    inner = sorted(info.name for info in pkgutil.walk_packages(getattr(module, "__path__", ()), f"{module.__name__}."))
    for each in (module, *map(importlib.import_module, inner)):
        for value in vars(each).values():
            own = isinstance(value, type) and issubclass(value, Rule) and value.__module__ == each.__name__
            if own and "id" in vars(value):
                yield value


def find_rule(rule_id: str) -> type[Rule]:
    """Return a rule by its ID, or by that of one of its detectors.

    Raises:
        BadInput: there is none, or it is retired.
    """
    for rule in all_rules():
        if rule_id.upper() in (rule.id, *(one.id for one in rule.definitions() if one.family)):
            return rule
    if rule_id.upper() in RETIRED:
        raise BadInput(f"{rule_id.upper()} is retired: {RETIRED[rule_id.upper()]}")
    close = get_close_matches(rule_id.upper(), list(all_definitions()), cutoff=0.5)
    nearest = f"the nearest are {', '.join(close)}; " if close else ""
    raise BadInput(f"unknown rule '{rule_id}'", f"{nearest}see `omni-kit rules list`")


def all_definitions() -> Mapping[str, Definition]:
    """Return every ID with its definition: rules, detectors of families, patchgen and check-layout."""
    return _definitions(all_rules())


@cache
def _definitions(rules: tuple[type[Rule], ...]) -> Mapping[str, Definition]:
    own = (one for rule in rules for one in rule.definitions())
    return {one.id: one for one in (*own, *patchgen.DEFINITIONS.values(), *layout.DEFINITIONS.values())}


def find_definition(rule_id: str) -> Definition:
    """Return the definition of an ID.

    Raises:
        BadInput: no rule or diagnostic has it, or it is retired.
    """
    found = all_definitions().get(rule_id.upper())
    return found if found is not None else find_rule(rule_id).definition()


def definitions_below(prefix: str) -> list[Definition]:
    """Return the definitions of all IDs with a prefix; only detectors if the prefix is a family's ID with a dot."""
    wanted = prefix.upper()
    found = [one for one in all_definitions().values() if wanted and one.id.startswith(wanted)]
    return [one for one in found if not one.family or "." in wanted]


def select_rules(
    select: Sequence[str] = (), ignore: Sequence[str] = (), level: str = "static", about: str = ""
) -> list[type[Rule]]:
    """Return the rules, up to a level, that a selection reports something of; see Selection.

    Args:
        about: SKILLS for the rules about skills; without it, those about integrations.

    Raises:
        BadInput: a prefix fits no rule, or there is no such level.
    """
    if level not in LEVELS:
        raise BadInput(f"unknown level '{level}'", f"one of {', '.join(LEVELS)}")
    known = [rule for rule in all_rules() if (rule.target == SKILLS) == (about == SKILLS)]
    selection = Selection(select, ignore)
    for prefix in selection.unknown(one.id for rule in known for one in rule.definitions()):
        raise BadInput(f"no rule has an id that starts with '{prefix}'", "see `omni-kit rules list`")
    reached = [rule for rule in known if LEVELS.index(rule.level) <= LEVELS.index(level)]
    return [rule for rule in reached if any(one.id in selection for one in rule.reported())]
