"""modify_init: upstream's __init__ stays a method of its own, and the new one is given it."""

import ast
from dataclasses import replace

from omni_kit.patchgen.fragment import Fragment, NoSource
from omni_kit.patchgen.source import Definition, SourceModule
from omni_kit.patchgen.spans import Edit, Source, shift, splice
from omni_kit.pysource.nodes import without_docstring

KEPT_NAME = "_upstream_init"


def modified_init(source: SourceModule, definition: Definition, owner: Definition, fragment: Fragment) -> str:
    """Both methods, dedented: upstream's under another name, then the config's function as `__init__`.

    The function's first parameter becomes a local name for upstream's method, so that `original_init(self, ...)` in its
    body is a plain call of it, and `super()` inside upstream's body still works.

    Raises:
        NoSource: the function does not take (original_init, self, ...) or never calls original_init.
    """
    node = fragment.node
    if isinstance(node, ast.ClassDef) or len(node.args.posonlyargs + node.args.args) < 2:
        raise NoSource("modify_init needs a function of (original_init, self, ...)")
    original = (node.args.posonlyargs + node.args.args)[0].arg
    if not any(
        isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id == original for n in ast.walk(node)
    ):
        raise NoSource(f"the function does not call {original}(...), so the upstream body would be lost")
    upstream = shift(source.code_of(definition), definition.node.col_offset, 0)
    kept = upstream.replace("def __init__", f"def {KEPT_NAME}", 1)
    called = f"{owner.path}.{KEPT_NAME}"
    return f"{kept.rstrip()}\n\n{_with_original(fragment, original, called).block()}"


def _with_original(fragment: Fragment, original: str, called: str) -> Fragment:
    node = fragment.node
    assert isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    text = Source(fragment.text)
    first, second = (node.args.posonlyargs + node.args.args)[:2]
    body = without_docstring(node.body) or node.body
    at = text.start_of(body[0])
    lead = text.text[text.line_start(body[0].lineno) : at]
    indent = lead if not lead.strip() else "    "
    opening = f"{original} = {called}\n{indent}" if not lead.strip() else f"\n{indent}{original} = {called}\n{indent}"
    edits = [Edit(text.start_of(first), text.start_of(second), ""), Edit(at, at, opening)]
    return replace(fragment, text=splice(fragment.text, edits)).renamed("__init__", inside=False)
