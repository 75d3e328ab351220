"""The scheduler that authors keep as an attribute, and settings of one that they make of entries of a config:
`DDIMScheduler(**config["diffusion"])`.
"""

import ast
import inspect
from collections.abc import Mapping
from typing import Any

from omni_kit.pysource.eval import UNKNOWN
from omni_kit.pysource.reads import literal
from omni_kit.pysource.source import SourceFile
from omni_kit.targets.diffusers.scheduling.betas import schedulers
from omni_kit.upstream.repositories.names import Defined, resolve
from omni_kit.upstream.repositories.published import documented
from omni_kit.upstream.repositories.repository import Repository

_DEEPEST = 3  # assignments that are followed
_FEWEST = 2  # settings by which a mapping is known as that of a scheduler
_SPREAD = None  # the name of what is passed by `**`
_WORDS = ("beta_schedule", "num_train_timesteps")  # of which configs of schedulers have one


def held_as(source: SourceFile, function: ast.FunctionDef, written: str) -> ast.expr | None:
    """Return the value that a scheduler has where a method says it: that of a variable in the method, and of an
    attribute in the class; of `given or made()` the last. None if nothing says it.
    """
    owner = next((cls for cls in source.classes.values() if function in cls.body), None)
    methods = [one for one in owner.body if isinstance(one, ast.FunctionDef)] if owner is not None else []
    found: ast.expr | None = None
    for _ in range(_DEEPEST):
        within = methods if written.startswith("self.") else [function] if found is None else []
        values = [one.value for method in within for one in ast.walk(method) if isinstance(one, ast.Assign)
                  and written in map(ast.unparse, one.targets)]  # fmt: skip
        if len({*map(ast.unparse, values)}) != 1:
            break
        found = values[0].values[-1] if isinstance(values[0], ast.BoolOp) else values[0]
        written = ast.unparse(found)
    return found


def constructed_with(
    source: SourceFile, call: ast.Call, meant: str | Defined | None, repository: Repository
) -> dict[str, Any]:
    """Return the arguments of a call that makes a scheduler; UNKNOWN for those that nothing says.

    Entries of a config, `config["steps"]` or `config.steps`, are those of the authors' configs that have all of them;
    of `config.get("steps", STEPS)` the default counts. What is passed by `**` is a config with settings of this
    scheduler alone. Several configs must agree.
    """
    given = {one.arg: _constant(source, one.value) for one in call.keywords}
    entries = {one.arg: key for one in call.keywords
               if one.arg and given[one.arg] is UNKNOWN and (key := _key(one.value))}  # fmt: skip
    spread, found = given.pop(_SPREAD, None) is UNKNOWN, {str(name): value for name, value in given.items()}
    if spread or len(entries) >= _FEWEST:
        taken = {*inspect.signature(schedulers()[meant].__init__).parameters} if isinstance(meant, str) else set()
        mapping = _config(repository, {*entries.values()}, taken if spread else None)
        if spread and not mapping:
            return {**found, "": UNKNOWN}
        found |= {name: mapping[key] for name, key in entries.items() if key in mapping}
        found |= {name: mapping[name] for name in mapping.keys() & taken if spread and name not in found}
    return found


def _constant(source: SourceFile, node: ast.expr) -> Any:
    """Return a literal, a constant of the authors' files, or the default of an entry that is either; else UNKNOWN."""
    match node:
        case ast.Call(func=ast.Attribute(attr="get"), args=[ast.Constant(), default]):
            return _constant(source, default)
        case ast.Name(id=name) if isinstance(found := resolve(source, name), Defined):
            return literal(getattr(found.node, "value", None))
    return literal(node)


def _key(node: ast.expr) -> str:
    """Return the name of an entry; empty for other expressions."""
    if isinstance(node, ast.Attribute):
        return node.attr
    key = literal(node.slice) if isinstance(node, ast.Subscript) else None
    return key if isinstance(key, str) else ""


def _config(repository: Repository, keys: set[str], only: set[str] | None) -> Mapping[str, Any]:
    """Return the config with these keys, and with no others than `only` if that is given; empty without one, or with
    several that differ.
    """
    found = [values for values, _ in documented(repository, keys or _WORDS) if keys <= values.keys()
             and (only is None or (len(values) >= _FEWEST and values.keys() <= only))]  # fmt: skip
    said = [{key: values[key] for key in keys or values} for values in found]
    return said[0] if said and all(one == said[0] for one in said) else {}
