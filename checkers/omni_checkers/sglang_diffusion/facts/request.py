"""What a request of SGLang has, and how the files of a pipeline use it."""

import ast
import importlib.util
import json
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from omni_checkers.engine.files import File, read_file
from omni_kit.upstream.python.source import dotted

REQUESTS = frozenset({"batch", "req", "request"})
"""What people call the variable that holds it."""
_RECORDED = Path(__file__).with_name("request_fields.json")
# The files that define it, and the classes.
_DEFINED = {
    "runtime/pipelines_core/schedule_batch.py": "Req",
    "configs/sample/sampling_params.py": "SamplingParams",
}


@cache
def request_fields() -> frozenset[str]:
    """The fields of a request and of its sampling parameters: of the installed SGLang, else of the recorded version."""
    spec = importlib.util.find_spec("sglang")
    if spec is not None and spec.origin is not None:
        return read_fields(Path(spec.origin).parent / "multimodal_gen")
    return frozenset(json.loads(_RECORDED.read_text(encoding="utf-8"))["fields"])


def read_fields(package: Path) -> frozenset[str]:
    """The fields that SGLang's package of diffusion defines, with the properties and methods."""
    return frozenset(name for file, cls in _DEFINED.items() for name in _members(read_file(package / file), cls))


def _members(file: File, name: str) -> Iterator[str]:
    for node in file.nodes(ast.ClassDef):
        if node.name == name:
            yield from (dotted(one.target) or "" for one in node.body if isinstance(one, ast.AnnAssign))
            yield from (one.name for one in node.body if isinstance(one, ast.FunctionDef))


def set_fields(files: Sequence[File]) -> Iterator[tuple[str, File, int]]:
    """Field, file and line of every `batch.field = ...`."""
    for file in files:
        for node in file.nodes(ast.Attribute):
            if isinstance(node.ctx, ast.Store) and dotted(node.value) in REQUESTS:
                yield node.attr, file, node.lineno


def read_names(files: Sequence[File]) -> frozenset[str]:
    """Every attribute that is read of anything, and every text that may be the name of one."""
    read = {node.attr for file in files for node in file.nodes(ast.Attribute) if isinstance(node.ctx, ast.Load)}
    texts = {node.value for file in files for node in file.nodes(ast.Constant) if isinstance(node.value, str)}
    return frozenset(read | texts)
