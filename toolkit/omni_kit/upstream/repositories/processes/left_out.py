"""Arguments of a model that a call of it leaves out, and that code of its authors passes by name."""

import ast
import re
from collections.abc import Collection, Iterator, Mapping

from omni_kit.pysource.eval import UNKNOWN, Unsupported, evaluate
from omni_kit.pysource.reads import literal
from omni_kit.pysource.source import SourceFile, dotted
from omni_kit.upstream.repositories.processes.class_members import plain_arguments
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
    may = [name for name, one in reference.forward.items() if not one.required and name in read and name not in passed]
    usual = {name: reference.forward[name].default for name in may if not _switched_off(reference, name)}
    tools = [one[1] for line in process.imports if (one := _IMPORTED.search(line))]
    near, far = set[str](), dict[str, str]()
    for source in sources_of(reference) if usual else ():
        if not any(name in source.text for name in usual):
            continue
        uses = process.where.startswith(f"{source.where(source.tree).rpartition(':')[0]}:")
        uses = uses or any(re.search(rf"\b{name}\(", source.text) for name in tools)
        for name, node, called in _named(source):
            if name not in usual or _is_usual(source, node, usual[name]):
                continue
            samples = uses and (not called or bool(_SAMPLES.search(called)))
            decided = isinstance(usual[name], bool) or (usual[name] is None and name in process.empty)
            if samples and not decided:  # a switch is how, and not what for
                near.add(name)
            elif samples or _MODEL.search(called):
                far.setdefault(name, source.where(node))
    return [name for name in usual if name in near], {name: far[name] for name in usual if name in far.keys() - near}


def _is_usual(source: SourceFile, node: ast.expr, usual: object) -> bool:
    """Return whether a value is the usual one: as it is written, as a variable that never holds another one, or as an
    argument by default, which callers name where they pass another one.
    """
    if not isinstance(node, ast.Name):
        return _equals(node, usual)
    holders = [one for one in ast.walk(source.tree) if isinstance(one, ast.FunctionDef) and one.lineno <= node.lineno
               <= (one.end_lineno or 0)]  # fmt: skip
    if not holders:
        return False
    inner = max(holders, key=lambda one: one.lineno)
    stored = [one for one in ast.walk(inner) if isinstance(one, ast.Name) and one.id == node.id
              and isinstance(one.ctx, ast.Store)]  # fmt: skip
    values = [one.value for one in ast.walk(inner) if isinstance(one, ast.Assign) and dotted(one.targets[0]) == node.id]
    default = next((one for argument, one in plain_arguments(inner) if argument.arg == node.id), None)
    held = [*values, *([default] if default is not None else [])]
    return bool(held) and len(values) == len(stored) and all(_equals(one, usual) for one in held)


def _equals(node: ast.expr, usual: object) -> bool:
    value = literal(node)
    return value is not UNKNOWN and value == usual


def _switched_off(reference: Reference, name: str) -> bool:
    """Return whether forward reads an argument only where an attribute is set that the constructor leaves unset."""
    forward, made = reference.cls.method("forward"), reference.cls.method("__init__")
    if forward is None or made is None:
        return False
    usual = {one: argument.default for one, argument in reference.arguments.items() if not argument.required}
    given = {**usual, **(reference.published.values if reference.published is not None else {})}
    kept = (one for one in ast.walk(made[1]) if isinstance(one, ast.Assign))
    unset = {str(dotted(target)) for one in kept if _is_off(one.value, given, made[0].source) for target in one.targets}
    return not any(_reads(one, name, unset) for one in forward[1].body)


def _is_off(value: ast.expr, given: Mapping[str, object], source: SourceFile) -> bool:
    """Return whether a value that a constructor keeps is null or false for its arguments: `exists(dim) or words`."""
    from omni_kit.upstream.repositories.numbers import Numbers  # with numpy, which only authors' files need

    if isinstance(value, ast.Name):
        return value.id in given and given[value.id] in (None, False)
    try:
        return evaluate(value, Numbers(), dict(given), home=source) in (None, False)
    except (Unsupported, ArithmeticError, LookupError, TypeError, ValueError):
        return False


def _reads(node: ast.AST, name: str, unset: Collection[str]) -> bool:
    """Return whether a statement reads a name other than in an assertion and where an attribute is set."""
    if isinstance(node, ast.Assert):
        return False
    if isinstance(node, ast.If) and _set(node.test) in unset:
        return any(_reads(one, name, unset) for one in node.orelse)
    if isinstance(node, ast.Name):
        return node.id == name
    return any(_reads(one, name, unset) for one in ast.iter_child_nodes(node))


def _set(test: ast.expr) -> str:
    """Return the attribute that a test finds to be set: `self.classes`, or `self.classes is not None`."""
    if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.IsNot) and literal(test.comparators[0]) is None:
        test = test.left
    return dotted(test) or ""


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
