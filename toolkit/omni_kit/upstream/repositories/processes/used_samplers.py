"""The samplers that the authors' own code uses, of several: those that it names, by names alone."""

import ast
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from omni_kit.pysource.source import SourceFile
from omni_kit.upstream.repositories.processes.class_members import every_method
from omni_kit.upstream.repositories.processes.sampler_entries import is_entry, loops
from omni_kit.upstream.repositories.processes.written_arguments import configs_of
from omni_kit.upstream.repositories.published import made_in_configs
from omni_kit.upstream.repositories.reference import Reference
from omni_kit.upstream.repositories.sources import sources_of

UNUSED = "is not used by the authors' own code"
"""The reason why a sampler decides nothing where the authors use another one."""
_CALLED = ("__call__", "forward")
_EXPORTS = "__all__"
_MOST_FILES = 400
_LARGEST = 1_000_000  # characters of a document


@dataclass(frozen=True)
class _Part:
    """Code that is used where its class and its method are.

    Attributes:
        cls, method: empty for code outside samplers, for a function, and for the other code of a class.
        names: the names in it.
    """

    cls: str
    method: str
    names: frozenset[str]

    def is_used(self, named: Collection[str]) -> bool:
        """Return whether these names are enough to run it."""
        return all(not one or one in named or one in _CALLED for one in (self.cls, self.method))


def used_samplers(reference: Reference, full_names: Collection[str]) -> frozenset[str]:
    """Return of some samplers, and of the other samplers of their classes, those that the authors' code uses.

    Where configs that make the model make samplers, too, these are used. Else one is used if code outside all of them
    names it and its class, or if a used one does. Documents count as code. The result is empty if nothing is known.

    Args:
        full_names: module, class and function, with dots.
    """
    wanted = {name: _split(name) for name in full_names}
    functions = {function for _, function in wanted.values()}
    sources = [*sources_of(reference)]
    classes = {cls for cls, _ in wanted.values()} & {name for source in sources for name in source.classes}
    if described := _described(reference, classes):
        return frozenset(name for name, (cls, _) in wanted.items() if cls in described)
    parts = [part for source in sources for part in _parts(source, classes, functions)]
    words = classes | functions | {part.method for part in parts}
    named = {*_documented(reference, words)}
    while more := {name for part in parts if part.is_used(named) for name in part.names - {part.cls}} - named:
        named |= more
    found = {name for name, (cls, function) in wanted.items()
             if _Part(cls if cls in classes else "", function, frozenset()).is_used(named)}  # fmt: skip
    others = {f"{part.cls}.{part.method}" for part in parts if part.cls and part.method and part.is_used(named)}
    return frozenset(found | others)


def _described(reference: Reference, classes: Collection[str]) -> frozenset[str]:
    """Return the classes of which the configs that make the model make an object."""
    configs = configs_of(reference)
    made = [one for name in (classes if configs else ()) for one in made_in_configs(reference.repository, name)]
    return frozenset(one.cls.rpartition(".")[2] for one in made if one.where in configs) & {*classes}


def _split(full_name: str) -> tuple[str, str]:
    """Return the class, or the module, and the function."""
    owner, _, function = full_name.rpartition(".")
    return owner.rpartition(".")[2], function


def _parts(source: SourceFile, classes: Collection[str], functions: Collection[str]) -> Iterator[_Part]:
    rest: list[ast.AST] = []
    for node in source.tree.body:
        if isinstance(node, ast.ClassDef) and node.name in classes:
            methods = every_method(source, node)
            inner: list[ast.AST] = [*node.bases, *node.decorator_list]
            for one in node.body:
                if isinstance(one, ast.FunctionDef) and (one.name in functions or is_entry(one)):
                    sampling = one.name in functions or loops(one, methods)
                    yield _Part(node.name, one.name if sampling or one.name not in _CALLED else "", _names([one]))
                else:
                    inner.append(one)
            yield _Part(node.name, "", _names(inner))
        elif isinstance(node, ast.FunctionDef) and node.name in functions:
            yield _Part("", node.name, _names([node]))
        else:
            rest.append(node)
    yield _Part("", "", _names(rest))


def _names(nodes: Collection[ast.AST]) -> frozenset[str]:
    """Return the names that code reads, and the texts that may be one."""
    found = set()
    for node in nodes:
        if isinstance(node, ast.Assign) and any(ast.unparse(one) == _EXPORTS for one in node.targets):
            continue
        for one in ast.walk(node):
            match one:
                case ast.Name(id=name) | ast.Attribute(attr=name):
                    found.add(name)
                case ast.Constant(value=str(text)):
                    found.add(text.rpartition(".")[2])
    return frozenset(found)


def _documented(reference: Reference, words: Collection[str]) -> Iterator[str]:
    """Yield the words in documents and configs, and in the files of a project outside its root of imports."""
    inside = reference.repository
    whole = replace(inside, root=inside.outermost, own=None)
    outside = [file for file in whole.files if inside.own is None and file not in inside.files][:_MOST_FILES]
    files = (*whole.documents, *whole.commands, *outside)
    for file in files:
        if file.stat().st_size < _LARGEST:
            text = {*re.findall(r"\w+", file.read_text(encoding="utf-8", errors="ignore"))}
            yield from (one for one in words if one in text)
