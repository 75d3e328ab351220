"""Arguments of a model that a call of it leaves out, and that code of its authors passes by name."""

import ast
import re
from collections.abc import Collection, Iterator

from omni_kit.pysource.eval import UNKNOWN
from omni_kit.pysource.reads import literal
from omni_kit.pysource.source import SourceFile, dotted
from omni_kit.upstream.repositories.processes.process import Process
from omni_kit.upstream.repositories.reference import Reference
from omni_kit.upstream.repositories.sources import sources_of

_SAMPLES = re.compile(r"sampl|denoise|generate|apply_model", re.IGNORECASE)
_MODEL = re.compile(r"model|net|dit|transformer|forward|denois", re.IGNORECASE)
_IMPORTED = re.compile(r"\bimport (\w+)$")


def left_out(reference: Reference, process: Process, passed: Collection[str]) -> tuple[list[str], dict[str, str]]:
    """Return the arguments with a default that the authors' sampling names; and file:line of those that only other code
    of theirs names, or for which this sampling passes None.

    Args:
        passed: what the process passes the model.
    """
    found = reference.cls.method("forward")
    read = {one.id for one in ast.walk(found[1]) if isinstance(one, ast.Name)} if found is not None else set()
    usual = {name: one.default for name, one in reference.forward.items()
             if not one.required and name in read and name not in passed}  # fmt: skip
    tools = [one[1] for line in process.imports if (one := _IMPORTED.search(line))]
    near, far = set[str](), dict[str, str]()
    for source in sources_of(reference) if usual else ():
        if not any(name in source.text for name in usual):
            continue
        uses = process.where.startswith(f"{source.where(source.tree).rpartition(':')[0]}:")
        uses = uses or any(re.search(rf"\b{name}\(", source.text) for name in tools)
        for name, node, called in _named(source):
            value = literal(node)
            if name not in usual or (value is not UNKNOWN and value == usual[name]):
                continue
            samples = uses and (not called or bool(_SAMPLES.search(called)))
            decided = isinstance(usual[name], bool) or (usual[name] is None and name in process.empty)
            if samples and not decided:  # a switch is how, and not what for
                near.add(name)
            elif samples or _MODEL.search(called):
                far.setdefault(name, source.where(node))
    return [name for name in usual if name in near], {name: far[name] for name in usual if name in far.keys() - near}


def _named(source: SourceFile) -> Iterator[tuple[str, ast.expr, str]]:
    """Yield keys of dictionaries and keywords of calls, with the value, and the function that is called, if any."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Dict):
            keys = ((key, value) for key, value in zip(node.keys, node.values, strict=True) if key is not None)
            yield from ((name, value, "") for key, value in keys if isinstance(name := literal(key), str))
        elif isinstance(node, ast.Assign):
            targets = (one.slice for one in node.targets if isinstance(one, ast.Subscript))
            yield from ((name, node.value, "") for one in targets if isinstance(name := literal(one), str))
        elif isinstance(node, ast.Call):
            called = (dotted(node.func) or "").rpartition(".")[2]
            yield from ((one.arg, one.value, "" if called == "dict" else called or "?")
                        for one in node.keywords if one.arg)  # fmt: skip
