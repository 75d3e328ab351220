"""Methods and constructors of the authors' classes, with what they inherit from other classes of theirs."""

import ast
from collections.abc import Collection, Iterable, Mapping

from omni_kit.pysource.source import SourceFile, dotted
from omni_kit.upstream.repositories.names import Defined, resolve
from omni_kit.upstream.repositories.sampler_step.members import MADE, Given, methods_of, of_self, sets_of


def every_method(source: SourceFile, cls: ast.ClassDef, deep: int = 4) -> dict[str, ast.FunctionDef]:
    """Return the methods of a class, those that it inherits from the authors' classes among them."""
    found: dict[str, ast.FunctionDef] = {}
    for base in reversed(cls.bases if deep else []):
        meant = resolve(source, dotted(base) or "")
        if isinstance(meant, Defined) and isinstance(meant.node, ast.ClassDef):
            found |= every_method(meant.source, meant.node, deep - 1)
    return found | methods_of(cls)


def constructor_arguments(source: SourceFile, cls: ast.ClassDef, deep: int = 4) -> list[Given]:
    """Return the arguments of a class; of one that passes any on, those of the class that it inherits from, too."""
    init = methods_of(cls).get(MADE)
    own = plain_arguments(init)[1:] if init is not None else []
    if (init is not None and init.args.kwarg is None) or not deep:
        return own
    for base in cls.bases:
        meant = resolve(source, dotted(base) or "")
        if isinstance(meant, Defined) and isinstance(meant.node, ast.ClassDef):
            known = {one.arg for one, _ in own}
            own += [one for one in constructor_arguments(meant.source, meant.node, deep - 1) if one[0].arg not in known]
    return own


def bases(source: SourceFile, cls: ast.ClassDef, deep: int = 4) -> list[ast.ClassDef]:
    """Return the authors' classes that a class inherits from."""
    found: list[ast.ClassDef] = []
    for base in cls.bases if deep else []:
        meant = resolve(source, dotted(base) or "")
        if isinstance(meant, Defined) and isinstance(meant.node, ast.ClassDef):
            found += [meant.node, *bases(meant.source, meant.node, deep - 1)]
    return found


def plain_arguments(function: ast.FunctionDef) -> list[Given]:
    """Return the arguments that have a name, each with its default; `self` among them."""
    given = function.args
    every = [*given.posonlyargs, *given.args]
    defaults = [None] * (len(every) - len(given.defaults)) + [*given.defaults]
    return [*zip(every, defaults, strict=True), *zip(given.kwonlyargs, given.kw_defaults, strict=True)]


def compared_with_none(function: ast.FunctionDef) -> set[str]:
    """Return the variables that a function compares with None."""
    tests = (node for node in ast.walk(function) if isinstance(node, ast.Compare))
    return {one.left.id for one in tests if isinstance(one.left, ast.Name)
            and isinstance(one.comparators[0], ast.Constant) and one.comparators[0].value is None}  # fmt: skip


def set_up_by(
    methods: Mapping[str, ast.FunctionDef], entries: Collection[str], inits: Iterable[ast.FunctionDef]
) -> ast.FunctionDef | None:
    """Return the method that must be called before others: it sets attributes that those read, and that neither they
    nor a constructor set; None without one, or with several.

    Args:
        methods: of a class, with those that it inherits.
        entries: the names of the methods that are called afterwards.
        inits: the constructors.
    """
    every = {**methods, **{f"{MADE} {at}": one for at, one in enumerate(inits)}}
    made = _reached(every, [name for name in every if name.startswith(MADE)])
    used = _reached(every, entries)
    known = {name for name, _ in sets_of({name: every[name] for name in {*made, *used}})} | every.keys()
    nodes = (node for name in used for node in ast.walk(every[name]) if isinstance(node, ast.Attribute))
    missing = {name for node in nodes if isinstance(node.ctx, ast.Load) and (name := of_self(node))} - known
    setters = [one for name, one in methods.items() if name not in {*made, *used}
               and {each for each, _ in sets_of({name: one})} & missing]  # fmt: skip
    return setters[0] if len(setters) == 1 else None


def _reached(methods: Mapping[str, ast.FunctionDef], names: Collection[str]) -> set[str]:
    """Return the names of methods, and of those that they name, whichever these name in turn."""
    found, waiting = set[str](), [*names]
    while waiting:
        if (name := waiting.pop()) in methods and name not in found:
            found.add(name)
            waiting += filter(None, map(of_self, ast.walk(methods[name])))
    return found
