"""Signatures: what callers pass and the patch does not take, and what the patch wants and callers do not pass."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from omni_kit.patchgen.apply import Applied
from omni_kit.patchgen.callgraph import Call, calls_in
from omni_kit.patchgen.checks.facts import Facts
from omni_kit.patchgen.diagnostics import Diagnostic, error, info, warning
from omni_kit.patchgen.imports import absolute, bound_by
from omni_kit.patchgen.source import SourceModule, read_module

_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Signature:
    """Parameters of a function without self: `positional` in order, `keyword_only`, `required`, and the stars."""

    positional: tuple[str, ...]
    keyword_only: tuple[str, ...]
    required: frozenset[str]
    star: bool
    double_star: bool

    @property
    def names(self) -> tuple[str, ...]:
        """All named parameters, positional ones first."""
        return self.positional + self.keyword_only


def signature_of(node: _Function, *, method: bool) -> Signature:
    """The signature of a function; of a method, without its first parameter unless it is static."""
    arguments = node.args
    positional = [*arguments.posonlyargs, *arguments.args]
    defaulted = {a.arg for a in positional[len(positional) - len(arguments.defaults) :]}
    defaulted |= {a.arg for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if d is not None}
    static = any(isinstance(d, ast.Name) and d.id == "staticmethod" for d in node.decorator_list)
    names = [a.arg for a in positional[1 if method and not static else 0 :]]
    only = [a.arg for a in arguments.kwonlyargs]
    required = frozenset(n for n in [*names, *only] if n not in defaulted)
    return Signature(tuple(names), tuple(only), required, arguments.vararg is not None, arguments.kwarg is not None)


def signatures(facts: Facts) -> Iterator[Diagnostic]:
    """The patch and its callers do not agree: a TypeError, or a value that silently goes nowhere."""
    changed = [(a, old, new) for a in facts.applied for old, new in [_signatures(a)] if new is not None and old != new]
    calls = calls_in(facts.generated) if any(_may_break(old, new) for _, old, new in changed) else []
    for applied, old, new in changed:
        place = f"{applied.owner.path}.{applied.name}" if applied.owner else applied.patch.target
        yield from _against_callers(applied, old, new, [c for c in calls if c.target == place], facts)
        if old is None:
            yield from _against_base(applied, new, facts)


def _may_break(old: Signature | None, new: Signature) -> bool:
    """Whether a call that fits `old` can fail to fit `new`; more optional parameters at the end cannot."""
    if old is None:
        return bool(new.required)
    lost_star = (old.star and not new.star) or (old.double_star and not new.double_star)
    kept = new.positional[: len(old.positional)] == old.positional and set(old.names) <= set(new.names)
    return lost_star or not kept or not new.required <= old.required


def _signatures(applied: Applied) -> tuple[Signature | None, Signature | None]:
    node = applied.fragment.node if applied.fragment else None
    if node is None or isinstance(node, ast.ClassDef) or applied.patch.kind == "init_modification":
        return None, None
    method = applied.owner is not None
    new = signature_of(node, method=method)
    if method and any(d == "@staticmethod" for d in _decorators(applied)):
        new = signature_of(node, method=False)
    upstream = applied.definition.node if applied.definition else None
    old = signature_of(upstream, method=method) if upstream and not isinstance(upstream, ast.ClassDef) else None
    return old, new


def _decorators(applied: Applied) -> list[str]:
    kept = applied.definition.node.decorator_list if applied.definition else []
    own = applied.fragment.decorators if applied.fragment else ()
    return [f"@{ast.unparse(d)}" for d in kept] + list(own)


def _against_callers(
    applied: Applied, old: Signature | None, new: Signature, calls: list[Call], facts: Facts
) -> Iterator[Diagnostic]:
    dropped = [n for n in old.names if n not in new.names] if old else []
    refused: dict[str, Call] = {}
    for call in calls:
        refused.update(dict.fromkeys(_refused(call, old, new), call))
    yield from _dropped(applied, new, refused, [n for n in dropped if n not in refused], calls)
    yield from _required(applied, old, new, calls)
    theirs = [call for call in calls if facts.patch_around(call.caller) is None]
    if old and any(_misplaced(call, old, new) for call in theirs):
        message = f"{applied.patch.target} takes its parameters in another order, and callers pass them by position"
        yield error("parameter-order", message, applied.patch.origin, [applied.patch.target])


def _dropped(
    applied: Applied, new: Signature, refused: dict[str, Call], silent: list[str], calls: list[Call]
) -> Iterator[Diagnostic]:
    target, origin = applied.patch.target, applied.patch.origin
    for name, call in refused.items():
        if new.double_star:
            message = f"{target} takes no {name}, {call.caller} passes it and **kwargs swallows it"
            yield warning("dropped-parameter", message, origin, [name])
        else:
            message = f"{target} takes no {name}, but {call.caller} passes it: TypeError"
            yield error("dropped-parameter", message, origin, [name])
    if silent:
        say = info if new.double_star or calls else warning
        message = (
            f"{target} takes no {', '.join(silent)} any more; keep upstream's parameters, callers elsewhere pass them"
        )
        yield say("dropped-parameter", message, origin, silent)


def _required(applied: Applied, old: Signature | None, new: Signature, calls: list[Call]) -> Iterator[Diagnostic]:
    target, origin = applied.patch.target, applied.patch.origin
    for name in sorted(new.required - (old.required if old else frozenset())):
        lacking = next((c for c in calls if _complete(c) and name not in _given(c, new)), None)
        if lacking is not None:
            message = f"{target} requires {name}, which {lacking.caller} does not pass: TypeError; give it a default"
            yield error("required-parameter", message, origin, [name])
        elif old is not None and not calls and name not in old.names and len(new.required) > len(old.required):
            message = f"{target} requires {name}, which upstream does not; give it a default"
            yield warning("required-parameter", message, origin, [name])


def _against_base(applied: Applied, new: Signature, facts: Facts) -> Iterator[Diagnostic]:
    """An injected public method that a base class has too must take what the base's takes."""
    if applied.name.startswith("_") or applied.owner is None or new.double_star:
        return
    base = _base_method(facts.source, applied.owner.path, applied.name, facts)
    if base is None:
        return
    node, owner = base
    missing = [n for n in signature_of(node, method=True).names if n not in new.names]
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
    """The module that `base` is imported from, read only when its text has such a method at all."""
    for node in module.tree.body:
        if isinstance(node, ast.ImportFrom) and any(bound_by(a, node) == base for a in node.names):
            dotted = absolute(node, module.name, module.path.name == "__init__.py")
            path = facts.libraries.file_of(dotted)
            if path is not None and f"def {method}" in path.read_text(encoding="utf-8"):
                return read_module(dotted, path)
    return None


def _refused(call: Call, old: Signature | None, new: Signature) -> list[str]:
    """The parameters that a call gives and the new signature has no place for."""
    names = [k.arg for k in call.node.keywords if k.arg and k.arg not in new.names]
    if new.double_star:
        names = [name for name in names if old and name in old.names]
    count = _positions(call)
    if count > len(new.positional) and not new.star:
        upstream = old.positional if old else ()
        names += [upstream[i] if i < len(upstream) else f"argument {i + 1}" for i in range(len(new.positional), count)]
    return names


def _misplaced(call: Call, old: Signature, new: Signature) -> bool:
    """Whether a position means another parameter than upstream's, which still exists elsewhere."""
    pairs = list(zip(old.positional, new.positional, strict=False))[: _positions(call)]
    return any(before != after and before in new.names and after in old.names for before, after in pairs)


def _given(call: Call, signature: Signature) -> set[str]:
    return {k.arg for k in call.node.keywords if k.arg} | set(signature.positional[: _positions(call)])


def _positions(call: Call) -> int:
    """How many arguments a call surely gives by position."""
    stars = [i for i, a in enumerate(call.node.args) if isinstance(a, ast.Starred)]
    return stars[0] if stars else len(call.node.args)


def _complete(call: Call) -> bool:
    """Whether a call shows all that it passes: no * and no **."""
    return not any(isinstance(a, ast.Starred) for a in call.node.args) and all(k.arg for k in call.node.keywords)
