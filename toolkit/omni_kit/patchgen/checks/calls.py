"""Signatures: what callers pass and the patch does not take, and what the patch requires and callers do not pass."""

import ast
from collections.abc import Iterator
from inspect import Signature

from omni_kit.patchgen.apply import Applied
from omni_kit.patchgen.callgraph import Call, calls_in
from omni_kit.patchgen.checks.facts import Facts
from omni_kit.patchgen.diagnostics import Diagnostic, error, info, warning
from omni_kit.patchgen.imports import absolute, bound_by
from omni_kit.patchgen.source import SourceModule, read_module
from omni_kit.pysource.signatures import bind, double_star, misfit, named, positional, required, signature, star
from omni_kit.pysource.source import read_text

_Function = ast.FunctionDef | ast.AsyncFunctionDef


def signatures(facts: Facts) -> Iterator[Diagnostic]:
    """The patch and its callers do not agree: a TypeError, or a value that silently goes nowhere."""
    changed = [
        (a, old, new)
        for a in facts.applied
        for old, new in [_signatures(a)]
        if new is not None and (old is None or _form(old) != _form(new))
    ]
    calls = calls_in(facts.generated) if any(_may_break(old, new) for _, old, new in changed) else []
    for applied, old, new in changed:
        place = f"{applied.owner.path}.{applied.name}" if applied.owner else applied.patch.target
        yield from _against_callers(applied, old, new, [c for c in calls if c.target == place], facts)
        if old is None:
            yield from _against_base(applied, new, facts)


def _may_break(old: Signature | None, new: Signature) -> bool:
    """Return whether a call that fits `old` can fail to fit `new`; more optional parameters at the end cannot."""
    if old is None:
        return bool(required(new))
    lost_star = (star(old) and not star(new)) or (double_star(old) and not double_star(new))
    kept = positional(new)[: len(positional(old))] == positional(old) and {*named(old)} <= {*named(new)}
    return bool(lost_star) or not kept or not {*required(new)} <= {*required(old)}


def _form(signature: Signature) -> list[tuple[str, object, bool]]:
    """Return the properties that make two signatures the same for callers: of defaults, only their presence."""
    return [(one.name, one.kind, one.default is one.empty) for one in signature.parameters.values()]


def _signatures(applied: Applied) -> tuple[Signature | None, Signature | None]:
    node = applied.fragment.node if applied.fragment else None
    if node is None or isinstance(node, ast.ClassDef) or applied.patch.kind == "init_modification":
        return None, None
    method = applied.owner is not None
    new = signature(node, bound=method and "@staticmethod" not in _decorators(applied))
    upstream = applied.definition.node if applied.definition else None
    old = signature(upstream, bound=method) if upstream and not isinstance(upstream, ast.ClassDef) else None
    return old, new


def _decorators(applied: Applied) -> list[str]:
    kept = applied.definition.node.decorator_list if applied.definition else []
    own = applied.fragment.decorators if applied.fragment else ()
    return [f"@{ast.unparse(d)}" for d in kept] + list(own)


def _against_callers(
    applied: Applied, old: Signature | None, new: Signature, calls: list[Call], facts: Facts
) -> Iterator[Diagnostic]:
    dropped = [n for n in named(old) if n not in named(new)] if old else []
    refused: dict[str, Call] = {}
    for call in calls:
        refused.update(dict.fromkeys(_refused(call, old, new), call))
    yield from _dropped(applied, new, refused, [n for n in dropped if n not in refused], calls)
    yield from _required(applied, old, new, calls)
    theirs = [call for call in calls if facts.patch_around(call.caller) is None]
    if old and any(_misplaced(call, old, new) for call in theirs):
        message = f"{applied.patch.target} has another parameter order, and callers pass arguments by position"
        yield error("parameter-order", message, applied.patch.origin, [applied.patch.target])


def _dropped(
    applied: Applied, new: Signature, refused: dict[str, Call], silent: list[str], calls: list[Call]
) -> Iterator[Diagnostic]:
    target, origin = applied.patch.target, applied.patch.origin
    for name, call in refused.items():
        if double_star(new):
            message = f"{target} takes no {name}, {call.caller} passes it and **kwargs discards it"
            yield warning("dropped-parameter", message, origin, [name])
        else:
            message = f"{target} takes no {name}, but {call.caller} passes it: TypeError"
            yield error("dropped-parameter", message, origin, [name])
    if silent:
        say = info if double_star(new) or calls else warning
        message = (
            f"{target} no longer takes {', '.join(silent)}; keep upstream's parameters, callers elsewhere pass them"
        )
        yield say("dropped-parameter", message, origin, silent)


def _required(applied: Applied, old: Signature | None, new: Signature, calls: list[Call]) -> Iterator[Diagnostic]:
    target, origin = applied.patch.target, applied.patch.origin
    for name in sorted({*required(new)} - {*(required(old) if old else ())}):
        lacking = next((c for c in calls if _lacks(c, new, name)), None)
        if lacking is not None:
            message = f"{target} requires {name}, which {lacking.caller} does not pass: TypeError; give it a default"
            yield error("required-parameter", message, origin, [name])
        elif old is not None and not calls and name not in named(old) and len(required(new)) > len(required(old)):
            message = f"{target} requires {name}, which upstream does not; give it a default"
            yield warning("required-parameter", message, origin, [name])


def _against_base(applied: Applied, new: Signature, facts: Facts) -> Iterator[Diagnostic]:
    """An injected public method that a base class has too must take what the base's takes."""
    if applied.name.startswith("_") or applied.owner is None or double_star(new):
        return
    base = _base_method(facts.source, applied.owner.path, applied.name, facts)
    if base is None:
        return
    node, owner = base
    missing = [n for n in named(signature(node, bound=True)) if n not in named(new)]
    if missing:
        message = f"{applied.patch.target} lacks {', '.join(missing)}, which {owner}.{applied.name} takes"
        yield warning("base-signature", message, applied.patch.origin, missing)


def _base_method(
    module: SourceModule, owner: str, name: str, facts: Facts, depth: int = 0
) -> tuple[_Function, str] | None:
    definition = module.get(owner)
    if definition is None or not isinstance(definition.node, ast.ClassDef) or depth > 6:
        return None
    for base in definition.node.bases:
        if not isinstance(base, ast.Name):
            continue
        home = module if module.get(base.id) else _module_of(module, base.id, name, facts)
        if home is None:
            continue
        found = home.get(f"{base.id}.{name}")
        if found is not None and not isinstance(found.node, ast.ClassDef):
            return found.node, base.id
        further = _base_method(home, base.id, name, facts, depth + 1)
        if further is not None:
            return further
    return None


def _module_of(module: SourceModule, base: str, method: str, facts: Facts) -> SourceModule | None:
    """Return the module that `base` is imported from, read only when its text has such a method at all."""
    for node in module.tree.body:
        if isinstance(node, ast.ImportFrom) and any(bound_by(a, node) == base for a in node.names):
            dotted = absolute(node, module.name, module.path.name == "__init__.py")
            path = facts.libraries.file_of(dotted)
            if path is not None and f"def {method}" in read_text(path):
                return read_module(dotted, path)
    return None


def _refused(call: Call, old: Signature | None, new: Signature) -> list[str]:
    """The parameters that a call gives and the new signature has no place for."""
    names = [name for name in _keywords(call) if name not in named(new)]
    if double_star(new):
        names = [name for name in names if old and name in named(old)]
    count, upstream = _positions(call), positional(old) if old else []
    if misfit(new, count, (), partial=True):
        taken = range(len(positional(new)), count)
        names += [upstream[i] if i < len(upstream) else f"argument {i + 1}" for i in taken]
    return names


def _misplaced(call: Call, old: Signature, new: Signature) -> bool:
    """Return whether a position means another parameter than upstream's, which still exists elsewhere."""
    pairs = list(zip(positional(old), positional(new), strict=False))[: _positions(call)]
    return any(one != now and one in named(new) and now in named(old) for one, now in pairs)


def _lacks(call: Call, signature: Signature, name: str) -> bool:
    """Return whether a call that shows all that it passes leaves a parameter without a value."""
    names = [one for one in _keywords(call) if one in named(signature)]
    count = min(_positions(call), len(positional(signature)))
    if not _complete(call) or misfit(signature, count, names, partial=True):
        return False
    return name not in bind(signature, [None] * count, dict.fromkeys(names), partial=True).arguments


def _keywords(call: Call) -> list[str]:
    return [keyword.arg for keyword in call.node.keywords if keyword.arg]


def _positions(call: Call) -> int:
    """Return how many arguments a call surely passes by position."""
    stars = [i for i, a in enumerate(call.node.args) if isinstance(a, ast.Starred)]
    return stars[0] if stars else len(call.node.args)


def _complete(call: Call) -> bool:
    """Return whether a call shows all that it passes: no * and no **."""
    return not any(isinstance(a, ast.Starred) for a in call.node.args) and all(k.arg for k in call.node.keywords)
