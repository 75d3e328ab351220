"""VEO421: what patched code reads from its own module is set somewhere."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from omni_checkers.engine.files import File, remembered, walked
from omni_checkers.engine.rule import Finding, Findings, NotApplicable, Rule
from omni_checkers.veomni.examples import GPU_CONFIG, patch_config
from omni_checkers.veomni.facts.constants import package_texts, veomni_package
from omni_checkers.veomni.facts.generated import Generated, upstream_function
from omni_kit.errors import MissingRequirement
from omni_kit.pysource.library import find_library
from omni_kit.pysource.source import SourceFile, dotted, parse_file
from omni_kit.targets.veomni.model_dir import ModelDir

_PATCH = """\


@config.override_method("OlmoeMLP.forward", description="in one line")
def olmoe_mlp_forward(self, x):
    return self.down_proj(self.{name}(self.gate_proj(x)) * self.up_proj(x))
"""
# Where the classes of every model come from, besides transformers' own files.
_TORCH = ("nn/modules/module.py", "nn/modules/container.py", "nn/modules/linear.py", "nn/modules/sparse.py")
_SETTERS = {"register_buffer", "register_parameter", "add_module", "setattr", "hasattr", "getattr"}


class OwnAttributesAreSet(Rule):
    """Read from `self` only attributes that the class sets, defines or declares.

    Attributes that upstream's `__init__` sets and a patched `__init__` does not are missing. The rule searches the
    class, its bases in transformers and torch, upstream's class of that name, and assignments from outside in the
    directory and in VeOmni.

    Why: the first forward raises AttributeError. The attribute belongs to another upstream release or to the copied
    model, or an edit reads it and sets it nowhere.

    Fine when: other code sets it; then read it with `getattr` and a default.
    """

    id = "VEO421"
    name = "own-attributes-are-set"
    target = "veomni"
    obligations = ("VEO-PG-39", "VEO-ENV-07")
    failure_modes = ("override-signature-drift", "upstream-drift-body")
    BAD = ({GPU_CONFIG: patch_config(_PATCH.format(name="activation_fn"))},)
    GOOD = ({GPU_CONFIG: patch_config(_PATCH.format(name="act_fn"))},)

    def check(self, generated: list[Generated], files: dict[Path, File], model_dir: ModelDir) -> Findings:
        judged = False
        for item in generated:
            known: dict[str, set[str] | None] = {}
            for owner, function in item.patched:
                if owner and owner not in known:
                    known[owner] = _attributes(item.source, owner)
                    theirs = upstream_function(item, owner, "__init__")
                    if (own := known[owner]) is not None and theirs is not None:
                        own |= _set_in(theirs)
                names = known.get(owner)
                if names is None:
                    continue
                judged = True
                for node in _dropped(item, owner, function):
                    message = f"{owner}.__init__ no longer sets self.{node.attr} before it is read"
                    yield Finding(message, item.file.path, function.lineno)
                for node in _reads(function):
                    if node.attr not in names and not _set_outside(node.attr, files, model_dir):
                        message = f"{owner}.{function.name} reads self.{node.attr}, but nothing sets it"
                        yield Finding(message, item.file.path, node.lineno, node.col_offset + 1)
        if not judged:
            raise NotApplicable("the bases of the patched classes are unknown")


def _dropped(item: Generated, owner: str, function: ast.FunctionDef) -> Iterator[ast.Attribute]:
    """Yield attributes that upstream's `__init__` sets and a patched one does not, though another method reads them."""
    theirs = upstream_function(item, owner, "__init__") if function.name == "__init__" else None
    node = item.source.classes.get(owner)
    if theirs is None or node is None:
        return
    methods = {one.name: one for one in node.body if isinstance(one, ast.FunctionDef)}
    called = (dotted(call.func) or "" for call in walked(function) if isinstance(call, ast.Call))
    helpers = [methods[name[5:]] for name in called if name.startswith("self.") and name[5:] in methods]
    bases = [found for base in item.source.bases(node) if (found := _attributes(item.source, base)) is not None]
    own = set().union(*map(_set_in, (function, *helpers)), *bases) | {
        name for one in node.body if not isinstance(one, ast.FunctionDef) for name in _set_in(one)
    }
    lost = {name for name in _stores(theirs) if name not in own and name not in methods}
    for method in methods.values():
        first = {read.attr: read for read in _reads(method) if read.attr in lost}
        sets = _stores(method)
        for name, read in first.items():
            if read.lineno <= sets.get(name, read.lineno):
                lost.discard(name)
                yield read


def _stores(function: ast.FunctionDef) -> dict[str, int]:
    """Attribute that a method sets on its instance -> the first line where it does."""
    found: dict[str, int] = {}
    for node in walked(function):
        match node:
            case ast.Attribute(ast.Name("self"), name, ast.Store()):
                found[name] = min(node.lineno, found.get(name, node.lineno))
    return found


def _reads(function: ast.FunctionDef) -> Iterator[ast.Attribute]:
    """Yield each attribute that a method reads from its instance, once; those that it asks for first are left out."""
    asked = {
        inner.value
        for call in walked(function)
        if isinstance(call, ast.Call) and dotted(call.func) in {"hasattr", "getattr"}
        for inner in call.args
        if isinstance(inner, ast.Constant)
    }
    seen: set[str] = set()
    for node in walked(function):
        match node:
            case ast.Attribute(ast.Name("self"), name, ast.Load()) if name not in seen | asked:
                if not name.startswith("__"):
                    seen.add(name)
                    yield node


def _attributes(source: SourceFile, class_name: str) -> set[str] | None:
    """Return the attributes of a class and its bases; None if one cannot be read, or accepts any name."""
    found: set[str] = set()
    todo, seen = [(source, class_name)], set[tuple[Path, str]]()
    while todo:
        file, name = todo.pop()
        if name in {"object", "ABC", "Generic"} or (file.path, name) in seen:
            continue
        seen.add((file.path, name))
        resolved = file.resolve_class(name)
        if resolved is None:
            own = _torch_class(name.rpartition(".")[2])
            if own is None:
                return None
            found |= own
            continue
        home, node = resolved
        if any(getattr(item, "name", "") in {"__getattr__", "__getattribute__"} for item in node.body):
            return None
        found |= _set_in(node)
        todo += [(home, base) for base in home.bases(node)]
        if len(home.bases(node)) != len(node.bases) and not all(isinstance(b, ast.Subscript) for b in node.bases):
            return None
    return found


@cache
def _torch_class(name: str) -> set[str] | None:
    """Return the attributes of a class of torch in the files read here, with those of its bases."""
    try:
        root = find_library("torch").root
    except MissingRequirement:
        return None
    for file in _TORCH:
        path = root / file
        tree = parse_file(path)[1] if path.is_file() else ast.Module([], [])
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and node.name == name:
                own = _set_in(node) | {"training"}
                above = (_torch_class((dotted(base) or "").rpartition(".")[2]) for base in node.bases)
                return own.union(*(item for item in above if item is not None))
    return None


@remembered
def _set_in(node: ast.AST) -> set[str]:
    """Return every attribute that code defines, declares, or sets on `self`, by name or by a word."""
    found: set[str] = set()
    for inner in walked(node):
        match inner:
            case ast.FunctionDef(name) | ast.ClassDef(name) | ast.AnnAssign(ast.Name(name)):
                found.add(name)
            case ast.Assign(targets):
                found |= {target.id for target in targets if isinstance(target, ast.Name)}
            case ast.Attribute(ast.Name("self"), name, ast.Store()):
                found.add(name)
            case ast.Call(func, args) if (dotted(func) or "").rpartition(".")[2] in _SETTERS:
                found |= {arg.value for arg in args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)}
    return found


def _set_outside(name: str, files: dict[Path, File], model_dir: ModelDir) -> bool:
    """Return whether the directory, or VeOmni, sets an attribute of this name on anything."""
    word = re.escape(name)
    pattern = re.compile(rf"(?<!\bself)\.{word}\s*(:[^=]+)?=[^=]|setattr\([^)]*[\"']{word}[\"']")
    package = veomni_package(model_dir)
    return any(pattern.search(file.text) for file in files.values()) or (
        package is not None and any(pattern.search(text) for text in package_texts(package).values())
    )
