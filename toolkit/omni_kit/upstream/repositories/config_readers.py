"""Constructors that read a field of a config by a function of the authors: as if they called `get` itself."""

import ast
import re
from collections.abc import Iterator

from omni_kit.pysource.classes import ClassRef
from omni_kit.pysource.reads import literal
from omni_kit.pysource.signatures import passed, positional, signature
from omni_kit.pysource.source import dotted
from omni_kit.upstream.repositories.constructed import with_texts
from omni_kit.upstream.repositories.names import Defined, resolve

_FORMS = tuple(
    re.compile(form.replace(" ", r"\s+").format(c=r"(?P<config>\w+)", k=r"(?P<key>\w+)", d=r"(?P<default>\w+)"))
    for form in (
        r"return {c}\[{k}\] if (?P=key) in (?P=config) else {d}",
        r"if {k} in (?P<config>\w+):\s+return (?P=config)\[(?P=key)\]\s+(?:else:\s+)?return {d}",
        r"return {c}\.get\({k}, {d}\)",
        r"return getattr\({c}, {k}, {d}\)",
    )
)
"""Bodies of such functions, as `ast.unparse` writes them."""


def with_plain_reads(cls: ClassRef) -> ClassRef:
    """Return a class whose constructor reads fields by `config.get("x", None)` where a function of the authors does
    the same: `value_of(config, "x", None)`. The lines of its file keep their numbers.
    """
    init = cls.defines("__init__")
    found = [*_reads(cls, init)] if init is not None else []
    return with_texts(cls, found) if found else cls


def _reads(cls: ClassRef, init: ast.FunctionDef) -> Iterator[tuple[ast.Call, str]]:
    """Yield the calls that read a field of an argument with a literal name and default, each as a call of `get`."""
    own = {one.arg for one in (*init.args.args, *init.args.kwonlyargs)}
    for call in (one for one in ast.walk(init) if isinstance(one, ast.Call)):
        meant = resolve(cls.source, dotted(call.func) or "")
        if not isinstance(meant, Defined) or not isinstance(meant.node, ast.FunctionDef):
            continue
        body = [one for one in meant.node.body if not _is_text(one)]
        said = "\n".join(map(ast.unparse, body))
        form = next(filter(None, (one.fullmatch(said) for one in _FORMS)), None)
        given = passed(call, positional(signature(meant.node))) if form is not None else {}
        if form is not None and {form["config"], form["key"], form["default"]} <= given.keys():
            config, key, default = (given[form[name]] for name in ("config", "key", "default"))
            if isinstance(literal(key), str) and dotted(config) in own:
                yield call, f"{ast.unparse(config)}.get({ast.unparse(key)}, {ast.unparse(default)})"


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
