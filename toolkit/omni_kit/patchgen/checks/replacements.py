"""Questions about one replacement and the definition that it replaces."""

import ast
import difflib
from collections.abc import Iterator

from omni_kit.patchgen.checks.facts import Facts
from omni_kit.patchgen.diagnostics import Diagnostic, error, info, warning
from omni_kit.patchgen.source import DefinitionNode
from omni_kit.pysource.nodes import blocks, without_docstring
from omni_kit.pysource.signatures import defaults, signature


def injected(facts: Facts) -> Iterator[Diagnostic]:
    """A method that upstream does not have is added: meant, or a misspelt name that leaves upstream's in place."""
    for applied in facts.applied:
        patch = applied.patch
        if applied.status != "injected":
            if patch.inject:
                message = f"{patch.target} has inject=True, but upstream defines it: the patch replaces it"
                yield warning("inject-exists", message, patch.origin, [patch.target])
            continue
        close = difflib.get_close_matches(applied.name, facts.source.methods_of(applied.owner_path), n=1, cutoff=0.85)
        if facts.config.strict and not patch.inject:
            message = f"{patch.target} is new to its class; pass inject=True if intended"
            yield error("injected", message, patch.origin, [patch.target])
        elif close and not patch.inject:
            message = f"{patch.target} is new to its class; did you mean {close[0]}? If not, pass inject=True"
            yield warning("injected", message, patch.origin, [patch.target])
        else:
            yield info("injected", f"{patch.target} is new to its class", patch.origin, [patch.target])


def guarded(facts: Facts) -> Iterator[Diagnostic]:
    """The target stands under a condition: only that branch is patched."""
    for applied in facts.applied:
        if applied.definition is not None and applied.definition.guarded:
            message = f"{applied.patch.target} is conditional upstream, and so is the patch"
            yield info("guarded-target", message, applied.patch.origin, [applied.patch.target])


def async_mismatch(facts: Facts) -> Iterator[Diagnostic]:
    """Yield a plain function instead of an async one, or the other way: every caller breaks."""
    for applied in facts.applied:
        if applied.definition is None or applied.fragment is None or applied.definition.is_class:
            continue
        upstream = isinstance(applied.definition.node, ast.AsyncFunctionDef)
        if upstream != isinstance(applied.fragment.node, ast.AsyncFunctionDef):
            kinds = "async, the patch is not" if upstream else "not async, the patch is"
            message = f"{applied.patch.target} is {kinds}"
            yield error("async-mismatch", message, applied.patch.origin, [applied.patch.target])


def decorators(facts: Facts) -> Iterator[Diagnostic]:
    """Decorators that stand twice, and registrations under another name."""
    for applied in facts.applied:
        patch, fragment = applied.patch, applied.fragment
        if fragment is None:
            continue
        for alias in fragment.aliased:
            message = f"{patch.target} is registered by {alias.split('(')[0]}, an alias of the config's method"
            yield info("aliased-decorator", message, patch.origin, [patch.target])
        if applied.definition is None or patch.kind != "method_override":
            continue
        upstream = {facts.source.of(d) for d in applied.definition.node.decorator_list}
        for decorator in fragment.decorators:
            if decorator[1:] in upstream:
                message = (
                    f"{patch.target}: {decorator} is inherited from upstream and repeated; remove it from the patch"
                )
                yield warning("duplicate-decorator", message, patch.origin, [patch.target])


def mutable_defaults(facts: Facts) -> Iterator[Diagnostic]:
    """A list, dict or set as a default is shared by all calls."""
    texts = [(a.patch.target, a.fragment, a.patch.origin) for a in facts.applied if a.fragment]
    texts += [(f"helper {h.name}", h, facts.config.origin) for h in facts.made.helpers]
    for name, fragment, origin in texts:
        for function in _functions(fragment.node):
            if any(map(_is_mutable, defaults(signature(function)).values())):
                yield warning("mutable-default", f"{name} has a mutable default argument; use None", origin, [name])
                break


def no_change(facts: Facts) -> Iterator[Diagnostic]:
    """The patch says what upstream says: it hides the next upstream change for nothing."""
    for applied in facts.applied:
        if applied.definition is None or applied.fragment is None or applied.patch.kind == "init_modification":
            continue
        upstream, patched = applied.definition.node, applied.fragment.node
        own = [] if applied.patch.kind == "method_override" else upstream.decorator_list
        if len(own) == len(applied.fragment.decorators) and _same(upstream, patched):
            message = f"{applied.patch.target} equals upstream's code; remove the patch"
            yield warning("no-change", message, applied.patch.origin, [applied.patch.target])


def _same(upstream: DefinitionNode, patched: DefinitionNode) -> bool:
    """Return whether two definitions say the same, decorators and the indentation of docstrings aside."""
    if ast.get_docstring(upstream) != ast.get_docstring(patched) or _head(upstream) != _head(patched):
        return False
    ours, theirs = without_docstring(patched.body), without_docstring(upstream.body)
    pairs = zip(ours, theirs, strict=False)
    return len(ours) == len(theirs) and all(ast.dump(one) == ast.dump(other) for one, other in pairs)


def _head(node: DefinitionNode) -> str:
    if isinstance(node, ast.ClassDef):
        return "".join(map(ast.dump, [*node.bases, *node.keywords]))
    return ast.dump(node.args) + (ast.dump(node.returns) if node.returns else "")


def _functions(node: ast.stmt) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        yield node
    for block in blocks(node):
        for inner in block:
            yield from _functions(inner)


def _is_mutable(node: ast.expr) -> bool:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return node.func.id in ("list", "dict", "set")
    return isinstance(node, (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp))
