"""Recognises the directory of one VeOmni model: a plugin package or a directory of VeOmni itself."""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

from omni_kit.errors import BadInput, reason
from omni_kit.files import files_matching
from omni_kit.pysource.source import parse_file

REGISTRY = "MODELING_REGISTRY"
_HINT = "pass the directory of one model, whose __init__.py registers it with MODELING_REGISTRY"
# A diffusion model is two packages: the transformer's config names the model that makes its conditions.
_COMPANION = re.compile(r"^\s+condition_model_type\b.*=", re.MULTILINE)
_PAIR = ("_condition", "_transformer")


@dataclass(frozen=True)
class ModelDir:
    """One model's directory.

    Attributes:
        path: the directory, absolute.
        style: "in-tree" inside a `veomni` package, "plugin" everywhere else.
        import_name: dotted name that imports the directory.
        sys_path: the directory that must come first on `sys.path` for that name to mean this directory.
        registered: MODELING_REGISTRY key -> line of the `__init__.py` that registers it: of the directory, or of one of
            the two packages that a diffusion model consists of.
    """

    path: Path
    style: Literal["plugin", "in-tree"]
    import_name: str
    sys_path: Path
    registered: Mapping[str, int]

    @property
    def training_files(self) -> Path:
        """Prefix of its training files: a checkout has all of them in one folder."""
        if self.style == "plugin":
            return self.path / "train"
        folder = "dit" if self.path.parent.name == "diffusers" else "text"
        return self.sys_path / "configs" / folder / self.path.name


def find_model_dir(path: Path) -> ModelDir:
    """Read what `path` registers, without importing anything.

    Raises:
        BadInput: the path is missing, is no package, cannot be parsed or registers no model.
    """
    path = path.resolve()
    init = path / "__init__.py"
    if not path.is_dir():
        raise BadInput(f"{path} is not a directory" if path.exists() else f"{path} does not exist", _HINT)
    if not init.is_file():
        raise BadInput(f"{path} is not a Python package: it has no __init__.py", _HINT)
    registered = _registrations(_parse(init)) or _of_a_pair(path)
    if not registered:
        raise BadInput(f"{init} registers nothing with {REGISTRY}", _HINT)
    found = located(path, registered)
    if strange := [part for part in found.import_name.split(".") if not part.isidentifier()]:
        raise BadInput(f"{path} cannot be imported: '{strange[0]}' is not a Python identifier", "rename the directory")
    return found


def located(path: Path, registered: Mapping[str, int]) -> ModelDir:
    """Return a directory, whose `__init__.py` may be broken, by where it lies."""
    root = _outermost_package(path)
    parts = path.relative_to(root.parent).parts
    in_tree = parts[:2] == ("veomni", "models")
    return ModelDir(path, "in-tree" if in_tree else "plugin", ".".join(parts), root.parent, registered)


def place_of(model: ModelDir, key: str) -> tuple[Path, int]:
    """Return the file and the line that register a key: those of the directory itself, or of a package inside it."""
    line = model.registered.get(key, 1)
    for init in (model.path / "__init__.py", *files_matching(model.path, "*/__init__.py")):
        if _registrations(_parse(init)).get(key) == line:
            return init, line
    return model.path / "__init__.py", 1


def registers(path: Path) -> bool:
    """Return whether a directory registers a model."""
    return bool(registered_in(path))


def registered_in(path: Path) -> Mapping[str, int]:
    """Registry key -> line; empty for what is no model's directory."""
    try:
        return find_model_dir(path).registered
    except BadInput:
        return {}


def cannot_be_parsed(path: Path) -> bool:
    """Return whether a directory seems to register a model, by an `__init__.py` that is not valid Python."""
    file = path / "__init__.py"
    try:
        parse_file(file)
    except SyntaxError:
        return REGISTRY.encode() in file.read_bytes()
    except (OSError, UnicodeDecodeError):
        return False
    return False


def _of_a_pair(path: Path) -> dict[str, int]:
    """Return the registrations of a diffusion model's packages; empty if `path` does not contain two such packages."""
    parts = [entry for entry in sorted(path.iterdir()) if (entry / "__init__.py").is_file()]
    if not any(part.name.endswith(_PAIR) or _names_companion(part) for part in parts):
        return {}
    return {key: line for part in parts for key, line in _registrations(_parse(part / "__init__.py")).items()}


def _names_companion(package: Path) -> bool:
    """Return whether a package's own modules say which model makes the conditions of its model."""
    try:
        return any(_COMPANION.search(file.read_text(encoding="utf-8")) for file in files_matching(package, "*.py"))
    except (OSError, UnicodeDecodeError):
        return False


def _parse(file: Path) -> ast.Module:
    try:
        return parse_file(file)[1]
    except SyntaxError as error:
        raise BadInput(f"{file}:{error.lineno or 1} is not valid Python: {error.msg}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"cannot read {file}: {reason(error)}") from error


def _outermost_package(path: Path) -> Path:
    while (path.parent / "__init__.py").is_file():
        path = path.parent
    return path


@lru_cache(maxsize=512)
def _registrations(tree: ast.Module) -> Mapping[str, int]:
    """Registry key -> line, in source order; the first line wins where a key is registered twice."""
    names = _registry_names(tree)
    values = _string_values(tree)
    found: dict[str, int] = {}
    for key, line in sorted(_keys(tree, names), key=lambda item: item[1]):
        for text in _strings(key, values):
            found.setdefault(text, line)
    return found


def _keys(tree: ast.Module, names: set[str]) -> Iterator[tuple[ast.expr, int]]:
    """Yield the key expression of every `REGISTRY.register(key...)` and `REGISTRY[key] = ...`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "register":
            key = node.args[0] if node.args else next((k.value for k in node.keywords if k.arg == "key"), None)
            if key is not None and _is_registry(node.func.value, names):
                yield key, node.lineno
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Subscript) and _is_registry(target.value, names):
                    yield target.slice, node.lineno


def _is_registry(node: ast.expr, names: set[str]) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr == REGISTRY
    return isinstance(node, ast.Name) and node.id in names


def _registry_names(tree: ast.Module) -> set[str]:
    """Return the file's names of the registry: by import, import alias or plain assignment."""
    names = {REGISTRY}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            names |= {alias.asname or alias.name for alias in node.names if alias.name == REGISTRY}
    for node in tree.body:
        if isinstance(node, ast.Assign) and _is_registry(node.value, names):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return names


def _string_values(tree: ast.Module) -> dict[str, list[str]]:
    """Return the strings that a name stands for: a top-level constant, or the variable of a loop over constants."""
    values: dict[str, list[str]] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign):
            pairs: Iterable[ast.expr] = node.targets
            source: ast.expr = node.value
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            pairs, source = [node.target], node.value
        elif isinstance(node, ast.For):
            pairs, source = [node.target], node.iter
        else:
            continue
        for target in pairs:
            if isinstance(target, ast.Name) and (strings := _strings(source, values)):
                values[target.id] = strings
    return values


def _strings(node: ast.expr, values: Mapping[str, list[str]]) -> list[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return [node.value]
    if isinstance(node, ast.Name):
        return values.get(node.id, [])
    if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
        return [text for item in node.elts for text in _strings(item, values)]
    return []
