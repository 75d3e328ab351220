"""Classes of results: a framework's own class follows where upstream returns another class than it did."""

import ast
from collections.abc import Callable
from dataclasses import dataclass

from omni_kit.patchgen.locate import Libraries
from omni_kit.patchgen.source import SourceModule, read_module
from omni_kit.patchgen.spans import Edit, splice
from omni_kit.patchgen.upgrade.code import Code, dumps
from omni_kit.patchgen.upgrade.importing import imports_from
from omni_kit.patchgen.upgrade.renames import Renames


@dataclass(frozen=True)
class ResultClass:
    """The classes that one function returns.

    Attributes:
        old, new: upstream's, in the older version and in the newer one.
        own: the patch's, which extends `old`.
        other: the one in the same module, `module`, that differs from `own` only in that it extends `new`.
    """

    old: str
    new: str
    own: str
    other: str
    module: str

    def before(self, base: str, mine: str) -> tuple[str, str]:
        """`base` and `mine` with upstream's newer class."""
        return Renames(names={self.old: self.new}).apply(base), Renames(names={self.own: self.new}).apply(mine)

    def after(self, text: str) -> str:
        """Merged code with the framework's class."""
        return Renames(names={self.new: self.other}).apply(text)


def result_class(base: str, mine: str, theirs: str, config: SourceModule, libraries: Libraries) -> ResultClass | None:
    """Return the classes where upstream returns another one, and the framework has one class that extends it."""
    nodes = [Code(one).node for one in (base, mine, theirs)]
    made = [_made(one) for one in nodes]
    if any(len(one) != 1 for one in made):
        return None
    (old,), (own,), (new,) = made
    names = [{one.id for one in ast.walk(node) if isinstance(one, ast.Name)} for node in nodes]
    if len({old, own, new}) < len(made) or old in names[2] or new in names[0] | names[1]:
        return None
    module = next((source for _, source, imported in imports_from(config.tree) if own in imported), "")
    path = libraries.file_of(module) if module else None
    if path is None:
        return None
    tree = read_module(module, path).tree
    classes = {one.name: dumps(one.bases) for one in tree.body if isinstance(one, ast.ClassDef)}
    bases = classes.get(own, [])
    wanted = [one.replace(f"'{old}'", f"'{new}'") for one in bases]
    found = [name for name, given in classes.items() if given == wanted]
    return ResultClass(old, new, own, found[0], module) if wanted != bases and len(found) == 1 else None


def replaced_results(old: SourceModule, new: SourceModule) -> dict[str, str]:
    """Return classes of results that a newer module no longer defines, each with the one that it returns instead.

    Functions return what they make or, if they pass a result on, what their annotations name.
    """
    found: dict[str, set[str]] = {}
    for path, definitions in old.definitions.items():
        now = new.get(path)
        if now is not None and not definitions[-1].is_class and not now.is_class:
            nodes = definitions[-1].node, now.node
            made, noted = [_made(one) for one in nodes], [_noted(one) for one in nodes]
            before, after = made if all(made) else (noted[0] - noted[1], noted[1] - noted[0])
            for was in before:
                if old.get(was) is not None and new.get(was) is None:
                    found.setdefault(was, set()).update(after)
    return {was: made.pop() for was, made in found.items() if len(made) == 1}


def annotated(text: str, newer: Callable[[str], str | None]) -> str:
    """Return a function with upstream's newer classes of results in its annotations.

    Args:
        newer: the newer class by the name that the function's file has for the older one; None for other names.
    """
    code = Code(text)
    notes = [getattr(one, name, None) for one in ast.walk(code.node) for name in ("returns", "annotation")]
    names = [one for note in notes if note is not None for one in ast.walk(note) if isinstance(one, ast.Name)]
    edits = [Edit(code.start_of(one), code.end_of(one), name) for one in names if (name := newer(one.id))]
    return splice(code.text, edits) if edits else text


def _noted(node: ast.AST) -> set[str]:
    """Return the names in the annotation of what a function returns."""
    returns = getattr(node, "returns", None)
    return {one.id for one in ast.walk(returns) if isinstance(one, ast.Name)} if returns is not None else set()


def _made(node: ast.AST) -> set[str]:
    """Return the classes of named fields that a function returns."""
    returned = [one.value for one in ast.walk(node) if isinstance(one, ast.Return)]
    calls = [one for one in returned if isinstance(one, ast.Call) and not one.args]
    return {one.func.id for one in calls if isinstance(one.func, ast.Name) and one.func.id[:1].isupper()}
