"""Published configs of a repository's model: calls of the class, presets, and configs in yaml and json."""

import ast
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from omni_kit.errors import BadInput
from omni_kit.pysource.eval import UNKNOWN
from omni_kit.pysource.reads import literal
from omni_kit.pysource.source import SourceFile, dotted, read_source
from omni_kit.upstream.repositories.interpolated import interpolated, is_reference
from omni_kit.upstream.repositories.names import Defined, resolve
from omni_kit.upstream.repositories.repository import Repository

_MOST_FILES, _MOST_BYTES = 2000, 300_000
_NAMES_CLASS, _OF_PATH = ("target", "_target_", "class_path", "_class_name"), re.compile(r"[.:]")
SIGNED = "_reference"  # the key under which a config of a port says the class of its authors' repository
_FEWEST = 2  # arguments that a config names, else it is that of something else
_DEEPEST = 8
_REGISTERED = "type"
CLASSES = {"_target_": "", "_class_name": "", "class_path": "init_args", "target": "params", _REGISTERED: ""}
"""Keys for a class -> for what has its arguments; empty where they stand next to it."""
_SAFE: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_ADDS, _DEFINES = "add_argument", "DEFINE_"
_NUMBER = r"-?\d+(?:\.\d+)?"
_COMMENT = re.compile(r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
"""A comment in JSON, which some programs take out before they read it; or a string, which may look like having one."""


class _Loader(_SAFE):  # type: ignore[misc]
    """Reads what has a tag of the authors' own, `!!python/tuple [4, 8]`, as it would be without one."""


def _untagged(loader: Any, tag: str, node: Any) -> Any:
    if isinstance(node, yaml.MappingNode):
        return loader.construct_mapping(node, deep=True)
    if isinstance(node, yaml.SequenceNode):
        return loader.construct_sequence(node, deep=True)
    plain = loader.resolve(yaml.ScalarNode, node.value, (not node.style, bool(node.style)))
    return loader.construct_object(yaml.ScalarNode(plain, node.value, style=node.style))


_Loader.add_multi_constructor("", _untagged)


@dataclass(frozen=True)
class Published:
    """One set of values.

    Attributes:
        values: by the names of the constructor's arguments, and of what it passes on.
        where: file:line, or the file.
        calls: it is a call of the class itself.
        choices: what a command line takes for some of them.
        around: the values of the mappings that contain them.
    """

    values: Mapping[str, Any]
    where: str
    calls: bool = False
    choices: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    around: Mapping[str, Any] = field(default_factory=dict)

    def makes(self, cls: str) -> bool:
        """Return whether a document says that the class is made of them: `target: package.module.Net` around them."""
        said = (one.get(key) for one in (self.values, self.around) for key in _NAMES_CLASS)
        return any(isinstance(text, str) and _OF_PATH.split(text)[-1] == cls for text in said)


def published(
    repository: Repository, cls: str, names: Collection[str], more: Collection[str] = (), others: Collection[str] = ()
) -> Published | None:
    """Return the set of values that names most of a constructor's arguments, of those that say the class if any do, and
    of equal ones that with the fewest arguments of other classes; None if the repository has none.

    Args:
        cls: the class.
        names: its constructor's arguments.
        more: what its constructor may hand on under `**`.
        others: what only the constructors of other classes take.
    """
    found = [one for one in _all(repository, cls, names) if _fits(one, names)]
    if not found:
        return None
    named = [one for one in found if one.makes(cls)]
    best = max(named or found, key=lambda one: (
        len(one.values.keys() & set(names)), one.calls, -len(one.values.keys() & set(others))
    ))  # fmt: skip
    kept = {name: value for name, value in best.values.items() if name in names or name in more}
    renamed = {} if best.calls else _renamed(repository, cls, names)
    kept |= {name: best.values[other] for name, other in renamed.items() if name not in kept and other in best.values}
    return replace(best, values=kept)


def _renamed(repository: Repository, cls: str, names: Collection[str]) -> dict[str, str]:
    """Return the arguments that a function passes to the class under other names: `width` of `Net(width=channels)`."""
    found: dict[str, str] = {}
    for file in (one for one in repository.files[:_MOST_FILES] if f"{cls}(" in _text(one)):
        with suppress(BadInput):
            calls = (one for one in ast.walk(read_source(repository, file).tree) if isinstance(one, ast.Call))
            for call in (one for one in calls if (dotted(one.func) or "").rpartition(".")[2] == cls):
                found |= {one.arg: one.value.id for one in call.keywords if one.arg and one.arg in names
                          and isinstance(one.value, ast.Name) and one.value.id not in names}  # fmt: skip
    return found


def options(repository: Repository, names: Collection[str]) -> Published | None:
    """Return what a command line gives these names by default; None if no file has most of them.

    Args:
        names: options, with underscores.
    """
    found = [_options(repository, file) for file in repository.files[:_MOST_FILES]
             if _ADDS in (text := _text(file)) and _speaks_of(text, "", names)]  # fmt: skip
    shared = [(len(one.values.keys() & set(names)), one) for one in found]
    most, best = max(shared, key=lambda one: one[0], default=(0, None))
    if best is None or 2 * most < len(names):
        return None
    return replace(best, values={name: value for name, value in best.values.items() if name in names})


def _options(repository: Repository, file: Path) -> Published:
    """Return the default of each option in the parsers of a file; `set_defaults` takes precedence. Where an option has
    none it is the number, or the numbers, that the first command in the documentation passes.
    """
    added: dict[str, Any] = {}
    set_apart: dict[str, Any] = {}
    choices: dict[str, Sequence[Any]] = {}
    several: dict[str, bool] = {}
    with suppress(BadInput):
        for node in ast.walk(read_source(repository, file).tree):
            name = (dotted(node.func) or "").rpartition(".")[2] if isinstance(node, ast.Call) else ""
            if isinstance(node, ast.Call) and name == _ADDS:
                added = (own := _argument(node)) | added
                listed = next((literal(one.value) for one in node.keywords if one.arg == "choices"), None)
                choices |= dict.fromkeys(own, listed) if isinstance(listed, (list, tuple)) else {}
                several[_option(node)] = any(one.arg == "nargs" and literal(one.value) != "?" for one in node.keywords)
            elif isinstance(node, ast.Call) and name == "set_defaults":
                set_apart |= _keywords(node)
    known = added | set_apart
    passed = ((name, _passed(repository, name, many)) for name, many in several.items() if known.get(name) is None)
    known |= {name: value for name, value in passed if value is not None}
    return Published(known, repository.show(file), choices=choices)


def _passed(repository: Repository, option: str, several: bool) -> Any:
    """Return the number, or list of numbers, that a command in the documentation or a script passes; None without
    one.
    """
    if not option:
        return None
    spelled = re.compile(rf"--{option.replace('_', '[-_]')}(?:=|[ \t]+)((?:{_NUMBER}[ \t]+)*{_NUMBER})(?=[\s`'\"\\]|$)")
    found = next(filter(None, (spelled.search(_text(file)) for file in repository.commands)), None)
    numbers = [literal(ast.parse(one, mode="eval").body) for one in found[1].split()] if found is not None else []
    return numbers if several and numbers else next(iter(numbers), None)


def _fits(one: Published, names: Collection[str]) -> bool:
    shared = len(one.values.keys() & set(names))
    most = shared > _FEWEST and 2 * shared > len(names)  # among settings of something else, such as an optimizer
    return shared >= min(_FEWEST, len(names)) and (one.calls or most or 2 * shared >= len(one.values))


def _all(repository: Repository, cls: str, names: Collection[str]) -> Iterator[Published]:
    for file in repository.files[:_MOST_FILES]:
        if not _speaks_of(_text(file), cls, names):
            continue
        with suppress(BadInput):
            source = read_source(repository, file)
            added: dict[str, Any] = {}
            for node in ast.walk(source.tree):
                if isinstance(node, ast.FunctionDef) and len(values := _set_fields(node, source)) > _FEWEST:
                    yield Published(values, source.where(node))
                elif isinstance(node, ast.Call):
                    name = (dotted(node.func) or "").rpartition(".")[2]
                    added |= _argument(node) if name == _ADDS else {}
                    values = _keywords(node) | _computed(node, source, names)
                    if values and (name in (cls, "dict") or _says_most(node, values, names)):
                        yield Published(values, source.where(node), name == cls)
                elif isinstance(node, ast.Dict) and (values := _entries(node)):
                    yield Published(values, source.where(node))
            if added:
                yield Published(added, repository.show(file))
    for file in repository.documents[:_MOST_FILES]:
        if _speaks_of(text := _text(file), "", names):
            found = _mappings(_parsed(text, file.suffix), {}, 0)
            yield from (Published(values, repository.show(file), around=around) for values, around in found)


def _set_fields(function: ast.FunctionDef, source: SourceFile, deep: int = _DEEPEST) -> dict[str, Any]:
    """Return the fields that a function sets of a config: `model.width = 128`, after those of the config that it begins
    with: `config = get_default_config()`.
    """
    found: dict[str, Any] = {}
    for node in (one for one in function.body if isinstance(one, ast.Assign)):
        target = node.targets[0]
        if isinstance(target, ast.Attribute) and (value := literal(node.value)) is not UNKNOWN:
            found[target.attr] = value
        elif isinstance(target, ast.Name) and isinstance(node.value, ast.Call) and not node.value.args and deep:
            meant = resolve(source, dotted(node.value.func) or "")
            if isinstance(meant, Defined) and isinstance(meant.node, ast.FunctionDef):
                found |= _set_fields(meant.node, meant.source, deep - 1)
    return found


def fields(repository: Repository, names: Collection[str]) -> Published | None:
    """Return what a mapping of a YAML or JSON file has for these names; None if none has half of them."""
    found = [(len(values.keys() & set(names)), values, file) for values, file in documented(repository, names)]
    most, values, file = max(found, key=lambda one: one[0], default=(0, {}, repository.root))
    if not most or 2 * most < len(names):
        return None
    return Published({name: value for name, value in values.items() if name in names}, repository.show(file))


def documented(repository: Repository, words: Collection[str]) -> Iterator[tuple[Mapping[str, Any], Path]]:
    """Yield the mappings of the repository's YAML and JSON files that contain a word, each with its file."""
    for file in repository.documents[:_MOST_FILES]:
        text = _text(file)
        if any(word in text for word in words):
            yield from ((values, file) for values, _ in _mappings(_parsed(text, file.suffix), {}, 0))


def sections(repository: Repository, words: Collection[str]) -> Iterator[tuple[Mapping[str, Any], Path]]:
    """Yield the mappings of the repository's YAML and JSON files that contain all of these keys, with all that is in
    them, each with its file.
    """
    for file in repository.documents[:_MOST_FILES]:
        text = _text(file)
        if words and all(word in text for word in words):
            yield from ((one, file) for one in _sections(_parsed(text, file.suffix)) if one.keys() >= {*words})


def _sections(value: Any, depth: int = 0) -> Iterator[Mapping[str, Any]]:
    if isinstance(value, Mapping):
        yield value
        value = [*value.values()]
    if isinstance(value, Sequence) and not isinstance(value, str) and depth <= _DEEPEST:
        for one in value:
            yield from _sections(one, depth + 1)


@dataclass(frozen=True)
class Made:
    """An object that a config describes: its class, and what that is made with.

    Attributes:
        key: under which the config has it; empty for a whole document.
        cls: the class, as it is named there.
        given: the arguments of its constructor.
        where: the file.
    """

    key: str
    cls: str
    given: Mapping[str, Any]
    where: str


def made_in_configs(repository: Repository, word: str) -> Iterator[Made]:
    """Yield the objects in YAML and JSON files whose class has a name with a word.

    Classes are named as Hydra, diffusers, LightningCLI and latent diffusion do: `_target_` or `_class_name` next to the
    arguments, `class_path` next to `init_args`, `target` next to `params`; and as registries do, by `type`, if the
    name is the word.
    """
    for file in repository.documents[:_MOST_FILES]:
        if word in (text := _text(file)):
            yield from _made(_parsed(text, file.suffix), "", word, repository.show(file))


def _made(value: Any, key: str, word: str, where: str, depth: int = 0) -> Iterator[Made]:
    if isinstance(value, Sequence) and not isinstance(value, str):
        value = dict(enumerate(value))
    if not isinstance(value, Mapping) or depth > _DEEPEST:
        return
    for named, inside in CLASSES.items():
        exact = named == _REGISTERED
        if isinstance(cls := value.get(named), str) and (cls == word if exact else word in cls):
            given = value.get(inside) or {} if inside else value
            if isinstance(given, Mapping):
                yield Made(key, cls, {str(name): one for name, one in given.items() if name != named}, where)
    for name, one in value.items():
        yield from _made(one, str(name), word, where, depth + 1)


def _says_most(call: ast.Call, values: Mapping[str, Any], names: Collection[str]) -> bool:
    """Return whether a call of something else, a helper that makes configs, gives most of the arguments."""
    return not call.args and len(values) > _FEWEST and 2 * len(values.keys() & set(names)) >= len(names)


def _keywords(call: ast.Call) -> dict[str, Any]:
    known = ((one.arg, literal(one.value)) for one in call.keywords if one.arg)
    return {name: value for name, value in known if value is not UNKNOWN}


def _computed(call: ast.Call, source: SourceFile, names: Collection[str]) -> dict[str, Any]:
    """Return the values of a call's arguments that are worked out from numbers, of those with these names."""
    from omni_kit.upstream.repositories.numbers import worked_out  # with numpy, which only authors' files need

    nodes = {one.arg: one.value for one in call.keywords if one.arg in names and literal(one.value) is UNKNOWN}
    known = ((str(name), worked_out(node, source)) for name, node in nodes.items())
    return {name: value for name, value in known if value is not UNKNOWN}


def _entries(node: ast.Dict) -> dict[str, Any]:
    named = ((literal(key), literal(value)) for key, value in zip(node.keys, node.values, strict=True) if key)
    return {name: value for name, value in named if isinstance(name, str) and value is not UNKNOWN}


def options_of(source: SourceFile) -> dict[str, Any]:
    """Return the defaults of the options of a command line: of `argparse`, or of flags of `absl`."""
    found: dict[str, Any] = {}
    for call in (node for node in ast.walk(source.tree) if isinstance(node, ast.Call)):
        name = (dotted(call.func) or "").rpartition(".")[2]
        if name == _ADDS:
            found |= _argument(call)
        elif name.startswith(_DEFINES) and len(call.args) > 1 and isinstance(flag := literal(call.args[0]), str):
            found |= {flag: value} if (value := literal(call.args[1])) is not UNKNOWN else {}
    return found


def _argument(call: ast.Call) -> dict[str, Any]:
    """Return the default that `add_argument` gives an option."""
    given = {one.arg: literal(one.value) for one in call.keywords if one.arg}
    switched = {"store_true": False, "store_false": True}.get(str(given.get("action")))
    default = given.get("default", UNKNOWN if given.get("required") else switched)
    name = _option(call)
    return {name: default} if name and default is not UNKNOWN else {}


def _option(call: ast.Call) -> str:
    """Return the name under which a parser keeps an option."""
    dest = next((literal(one.value) for one in call.keywords if one.arg == "dest"), None)
    names = [value for one in call.args if isinstance(value := literal(one), str) and value.startswith("--")]
    return str(dest or (names[0].lstrip("-").replace("-", "_") if names else ""))


def _text(file: Path) -> str:
    with suppress(OSError, UnicodeDecodeError):
        if file.stat().st_size <= _MOST_BYTES:
            return file.read_text(encoding="utf-8")
    return ""


def _speaks_of(text: str, cls: str, names: Collection[str]) -> bool:
    """Return whether a file may have what is looked for: parsing it takes much longer."""
    spelled = (name in text or name.replace("_", "-") in text for name in names)
    return bool(cls and f"{cls}(" in text) or sum(spelled) >= min(_FEWEST, len(names))


def _parsed(text: str, suffix: str) -> Any:
    with suppress(ValueError, yaml.YAMLError, RecursionError):
        if suffix != ".json":
            return interpolated(yaml.load(text, _Loader))
        return json.loads(_COMMENT.sub(lambda found: found[1] or "", text) if "//" in text or "/*" in text else text)
    return None


def _mappings(
    value: Any, around: Mapping[str, Any], depth: int
) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Yield every mapping in a document, the outermost first, each with the values of those that contain it."""
    if depth > _DEEPEST:
        return
    if isinstance(value, Mapping):
        plain = {name: one for name, one in value.items()
                 if isinstance(name, str) and not isinstance(one, Mapping) and not is_reference(one)}  # fmt: skip
        if plain and SIGNED not in plain:  # else it is a toy of this very class
            yield plain, around
        for one in value.values():
            yield from _mappings(one, {**around, **plain}, depth + 1)
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for one in value:
            yield from _mappings(one, around, depth + 1)
