"""Places in an integration's own code: of an exception, of a value that it returned, of a tensor that it made."""

import ast
import linecache
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from types import CodeType, FrameType, TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn

_DEPTH = 6
"""Depth of the search for names in a returned value: an object with a dict of dicts of names."""
_TEXTS = 10_000


class OwnCode:
    """The files of an integration. Places in them are "FILE:LINE", relative to its directory.

    Args:
        path: its directory, or its only file.
    """

    def __init__(self, path: Path) -> None:
        self._path = os.path.realpath(path)
        self._home = self._path if os.path.isdir(self._path) else os.path.dirname(self._path)
        self._known: dict[str, str] = {}

    @property
    def home(self) -> Path:
        """The directory that places are relative to."""
        return Path(self._home)

    def file(self, name: str) -> str:
        """Return a file of the integration relative to its directory; empty for any other file."""
        if name not in self._known:
            real = os.path.realpath(name)
            inside = real == self._path or real.startswith(os.path.join(self._path, ""))
            self._known[name] = os.path.relpath(real, self._home) if inside else ""
        return self._known[name]

    def at(self, name: str, line: int | None) -> str:
        """Return the place of a line; empty if the file is another's."""
        return f"{file}:{line or 1}" if (file := self.file(name)) else ""

    def of_error(self, error: BaseException | None) -> str:
        """Return the innermost own line that an exception passed; of its causes where it passed none itself."""
        while error is not None:
            if isinstance(error, SyntaxError) and error.filename and (place := self.at(error.filename, error.lineno)):
                return place
            passed = (self.at(code.co_filename, line) for code, line in _lines(error.__traceback__))
            if place := next((place for place in reversed([*passed]) if place), ""):
                return place
            error = error.__cause__ or error.__context__
        return ""

    def of_definition(self, name: str) -> str:
        """Return the first line, of the own modules that are imported, that defines or assigns this name."""
        files = {getattr(module, "__file__", None) or "" for module in [*sys.modules.values()]}
        for file in sorted(filter(self.file, files)):
            for node in ast.walk(_parsed(file)):
                if name in _defined(node):
                    return self.at(file, getattr(node, "lineno", 1))
        return ""


@dataclass(frozen=True)
class Return:
    """Value that one of the integration's functions returned, or the exception that left it.

    Attributes:
        place: the line; of a value that one function passed on from another, where it was made.
        taken, named: the texts among its arguments, and in what it returned.
        raised: the exception as "Type: message"; empty if it returned.
    """

    place: str
    taken: frozenset[str]
    named: frozenset[str]
    raised: str = ""


@dataclass
class Returns:
    """Values that the integration's functions returned while they were watched, in order."""

    found: list[Return] = field(default_factory=list)

    def naming(self, name: str) -> str:
        """Return the place that made a value which names `name`.

        Where none did, that of the last function that got a name below the same module and returned nothing of it.
        """
        if place := next((each.place for each in self.found if name in each.named), ""):
            return place
        module = name.rpartition(".")[0]
        within = f"{module}." if module else name
        kin = [each for each in self.found if any(text.startswith(within) for text in each.taken)]
        return kin[-1].place if kin else ""

    def last_named(self) -> str:
        """Return the place that made the last value with a name in it."""
        named = (each.place for each in reversed(self.found) if any("." in text for text in each.named))
        return next(named, "")

    def raising(self, message: str) -> str:
        """Return the innermost place of an exception whose message is part of `message`."""
        return next((each.place for each in self.found if each.raised and each.raised in message), "")

    def mentioned(self, message: str) -> str:
        """Return the place that made a value with a text that `message` quotes, the longest of them."""
        texts = {text for each in self.found for text in each.named if len(text) > 2 and text in message}
        return self.naming(max(texts, key=len)) if texts else ""


@contextmanager
def returns_of(own: OwnCode) -> Iterator[Returns]:
    """Watch what own functions of this thread return; slow, so only once something is known to be wrong."""
    seen, open_values = Returns(), list[tuple[object, str]]()
    depth = 0

    def local(frame: FrameType, event: str, value: Any) -> Any:
        nonlocal depth
        if event == "exception":
            place = own.at(frame.f_code.co_filename, frame.f_lineno)
            kind, error = value[0], value[1]
            said = f"{kind.__name__}: {' '.join(str(error).split())[:200]}"
            if not (seen.found and seen.found[-1].raised == said):
                seen.found.append(Return(place, frozenset(), frozenset(), said))
        elif event == "return":
            depth -= 1
            place = own.at(frame.f_code.co_filename, frame.f_lineno)
            origin = next((first for held, first in open_values if held is value), place)
            if value is not None and not isinstance(value, bool):
                open_values.append((value, place))
            seen.found.append(Return(origin, _taken(frame), frozenset(islice(_texts(value), _TEXTS))))
            if depth <= 0:
                open_values.clear()
        return local

    def called(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal depth
        if not own.file(frame.f_code.co_filename):
            return None
        depth += 1
        frame.f_trace_lines = False
        return local

    before = sys.gettrace()
    sys.settrace(called)
    try:
        yield seen
    finally:
        sys.settrace(before)


@dataclass
class Made:
    """Lines of the integration that made each part of a model.

    Attributes:
        places: (number of the module that holds it, name) -> the line that gave it to it.
        parts: (number of a module, name) -> number of the module that it holds under that name.
        modules: every module, so that none is freed and another takes its number.
    """

    own: OwnCode
    places: dict[tuple[int, str], str] = field(default_factory=dict)
    parts: dict[tuple[int, str], int] = field(default_factory=dict)
    modules: dict[int, "nn.Module"] = field(default_factory=dict)

    def note(self, holder: "nn.Module", name: str, thing: object) -> None:
        """Remember which own line gives `holder` a part of this name."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and not self.own.file(frame.f_code.co_filename):
            frame = frame.f_back
        self.modules[id(holder)] = holder
        if frame is not None:
            self.places[id(holder), name] = self.own.at(frame.f_code.co_filename, frame.f_lineno)
        if hasattr(thing, "_modules"):
            self.parts[id(holder), name] = id(thing)
            self.modules[id(thing)] = thing  # type: ignore[assignment]

    def of(self, name: str) -> str:
        """Return the line that made a tensor; of one that is not there, the constructor that should have made it."""
        for root in self._roots():
            *path, last = name.split(".")
            holder, around = root, ""
            for number, part in enumerate(path):
                around = self.places.get((holder, part), around)
                if (inner := self.parts.get((holder, part))) is None:
                    last = path[number]
                    break
                holder = inner
            if holder == root and path and (root, path[0]) not in self.parts:
                continue
            return self.places.get((holder, last)) or self._constructor(holder) or around
        return ""

    def _roots(self) -> list[int]:
        held = {*self.parts.values()}
        return [number for number in reversed(self.modules) if number not in held]

    def _constructor(self, number: int) -> str:
        for base in type(self.modules[number]).__mro__:
            code = getattr(vars(base).get("__init__"), "__code__", None)
            if code is not None and (place := self.own.at(code.co_filename, code.co_firstlineno)):
                return place
        return ""


@contextmanager
def making(own: OwnCode) -> Iterator[Made]:
    """Watch which own line gives a module its parameters, buffers and parts."""
    from torch.nn.modules.module import (
        register_module_buffer_registration_hook,
        register_module_module_registration_hook,
        register_module_parameter_registration_hook,
    )

    made = Made(own)
    handles = [
        register(made.note)
        for register in (
            register_module_buffer_registration_hook,
            register_module_module_registration_hook,
            register_module_parameter_registration_hook,
        )
    ]
    try:
        yield made
    finally:
        for handle in handles:
            handle.remove()


def _lines(traceback: TracebackType | None) -> Iterator[tuple[CodeType, int]]:
    while traceback is not None:
        yield traceback.tb_frame.f_code, traceback.tb_lineno
        traceback = traceback.tb_next


def _parsed(file: str) -> ast.Module:
    try:
        return ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError, RecursionError):
        return ast.Module([], [])


def _defined(node: ast.AST) -> Sequence[str]:
    """Return the names that a statement defines, the last part of an attribute's."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [getattr(target, "id", "") or getattr(target, "attr", "") for target in targets]


def _taken(frame: FrameType) -> frozenset[str]:
    code = frame.f_code
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return frozenset(value for name in names if isinstance(value := frame.f_locals.get(name), str))


def _texts(value: object, depth: int = _DEPTH) -> Iterator[str]:
    """Yield the texts in a value: those of containers and of an object's fields, too."""
    if isinstance(value, str):
        yield value
    elif depth and isinstance(value, dict):
        for key, held in value.items():
            yield from _texts(key, depth - 1)
            yield from _texts(held, depth - 1)
    elif depth and isinstance(value, (list, tuple, set, frozenset)):
        for held in value:
            yield from _texts(held, depth - 1)
    elif depth and value is not None and not isinstance(value, (type, int, float)):
        fields = {name: getattr(value, name, None) for name in getattr(type(value), "__slots__", ())}
        fields |= getattr(value, "__dict__", {})
        if "_modules" not in fields:
            yield from _texts(fields, depth - 1)
