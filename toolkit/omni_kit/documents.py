"""JSON, TOML and YAML that somebody else wrote: read within limits, or refused with the line and the cause."""

import json
import re
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

from omni_kit.errors import BadInput

_DEEPEST = 100  # levels of YAML
_LARGEST = 100_000  # nodes of YAML more than there are in the text: what aliases repeat counts each time


class DocumentError(ValueError):
    """A document that cannot be read.

    Attributes:
        line: where, from 1.
        reason: why, in one line.
    """

    def __init__(self, line: int, reason: str) -> None:
        self.line = line
        self.reason = " ".join(reason.split())
        super().__init__(f"line {line}: {self.reason}")


def read_mapping(path: Path) -> dict[str, Any]:
    """Return the mapping that a JSON, TOML or YAML file holds, by its suffix.

    Raises:
        BadInput: it cannot be read, or holds something else; the message names file and line.
    """
    try:
        return mapping_of(path)
    except DocumentError as error:
        raise BadInput(f"{path}:{error.line}: {error.reason}", "fix the file") from error


def mapping_of(path: Path) -> dict[str, Any]:
    """Return the file's mapping, with errors that do not name the file.

    Raises:
        DocumentError: it cannot be read, or holds something else.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DocumentError(1, f"the file cannot be read: {error}") from error
    value = _READERS.get(path.suffix, read_yaml)(text)
    if not isinstance(value, dict):
        raise DocumentError(1, f"a mapping is needed, not {'nothing' if value is None else type(value).__name__}")
    return value


def read_json(text: str) -> Any:
    """Return the value of a JSON text.

    Raises:
        DocumentError: it is not JSON, is nested too deeply, or has an integer that is too long.
    """
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise DocumentError(error.lineno, error.msg) from error
    except (ValueError, RecursionError) as error:
        raise _refused(error) from error


def read_toml(text: str) -> dict[str, Any]:
    """Return the tables of a TOML text.

    Raises:
        DocumentError: it is not TOML, is nested too deeply, or has a number or a date that is none.
    """
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        found = re.search(r"line (\d+)", str(error))
        raise _refused(error, int(found[1]) if found else 1) from error


def read_yaml(text: str) -> Any:
    """Return the value of a YAML text of one document, without tags of its own.

    Raises:
        DocumentError: it is not such YAML, is nested too deeply, repeats too much by aliases, contains itself, or has a
            number or a date that is none.
    """
    first, *more = [*_documents(text, _Loader), None]
    if len(more) > 1:
        raise DocumentError(1, "there are several documents")
    return first


def check_yaml(text: str) -> None:
    """Check every document of a YAML text; tags of any application are fine.

    Raises:
        DocumentError: as `read_yaml`.
    """
    for _ in _documents(text, _TaggedLoader):
        pass


def yaml_scalar(value: Any) -> str:
    """Return a value as YAML writes it in one line: plain where it can be, else quoted."""
    text = _dumped(value)
    return _dumped(value, '"') if "\n" in text else text


def _dumped(value: Any, quotes: str | None = None) -> str:
    text: str = yaml.safe_dump(value, default_flow_style=True, default_style=quotes, width=sys.maxsize)
    return text.removesuffix("\n").removesuffix("\n...")


def _documents(text: str, kind: "type[_Loader]") -> Iterator[Any]:
    try:
        loader = kind(text)
        while loader.check_data():  # type: ignore[no-untyped-call]
            yield loader.get_data()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise DocumentError(mark.line + 1 if mark else 1, error.problem or "not YAML") from error
    except yaml.YAMLError as error:
        raise DocumentError(1, str(error)) from error
    except RecursionError as error:
        raise _refused(error) from error


class _Loader(yaml.SafeLoader):
    """Composes within limits: before a value is made of an alias, all that it repeats is counted."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = 0
        self._sizes: dict[int, int] = {}
        self._repeated = 0

    def compose_document(self) -> yaml.Node | None:
        self._sizes.clear()
        return super().compose_document()

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        line = self.peek_event().start_mark.line + 1  # type: ignore[no-untyped-call]
        alias = self.check_event(yaml.AliasEvent)
        self._depth += 1
        if self._depth > _DEEPEST:
            raise DocumentError(line, f"nested more than {_DEEPEST} levels deep")
        node = super().compose_node(parent, index)
        self._depth -= 1
        if node is not None:
            size = self._sizes.get(id(node), 0) if alias else self._size(node)
            if alias and not size:
                raise DocumentError(line, "a node contains itself")
            self._repeated += size if alias else 0
            if self._repeated > _LARGEST or size > _LARGEST + len(self._sizes):
                raise DocumentError(line, "aliases repeat too much")
        return node

    def _size(self, node: yaml.Node) -> int:
        """Count a node with all below it, aliases by what they stand for."""
        inner: list[yaml.Node] = []
        if isinstance(node, yaml.SequenceNode):
            inner = list(node.value)
        elif isinstance(node, yaml.MappingNode):
            inner = [part for pair in node.value for part in pair]
        self._sizes[id(node)] = 1 + sum(self._sizes.get(id(part), 1) for part in inner)
        return self._sizes[id(node)]

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except DocumentError:
            raise
        except (ValueError, OverflowError) as error:
            raise DocumentError(node.start_mark.line + 1, str(error)) from error


class _TaggedLoader(_Loader):
    """Takes tags that it does not know for nothing."""


_TaggedLoader.add_multi_constructor("", lambda loader, suffix, node: None)


def _refused(error: Exception, line: int = 1) -> DocumentError:
    return DocumentError(line, "nested too deeply" if isinstance(error, RecursionError) else str(error))


_READERS: dict[str, Callable[[str], Any]] = {".json": read_json, ".toml": read_toml}
