"""Optional conditions of a model that are off by default and that the authors switch on where they make the model."""

import ast
import re
from collections.abc import Iterator

from omni_kit.pysource.eval import UNKNOWN
from omni_kit.pysource.reads import literal
from omni_kit.pysource.signatures import passed
from omni_kit.pysource.source import SourceFile, dotted
from omni_kit.upstream.repositories.names import Defined, resolve
from omni_kit.upstream.repositories.reference import Reference
from omni_kit.upstream.repositories.sources import sources_of

_IS_WIDTH = re.compile(r"_(dims?|width|channels?|features|size)$")
_OFF = (None, 0)


def switched_on(reference: Reference) -> list[str]:
    """Return the constructor's widths of optional conditions that are off by default, where calls of the class work one
    out and none passes that it is off: `Unet(cond_dim=cond_dim)`, of `cond_dim=None` and `forward(x, t, cond=None)`.
    """
    optional = {name for name, one in reference.forward.items() if not one.required}
    widths = [name for name, one in reference.arguments.items()
              if one.default in _OFF and _IS_WIDTH.sub("", name) in optional - {name}]  # fmt: skip
    if not widths:
        return []
    order, given = [*reference.arguments], dict[str, set[bool]]()
    for source in (one for one in sources_of(reference) if f"{reference.class_name}(" in one.text):
        for call in _calls(source, reference):
            for name, node in passed(call, order).items():
                given.setdefault(name, set()).add(literal(node) is UNKNOWN or literal(node) not in _OFF)
    return [name for name in widths if given.get(name) == {True}]


def _calls(source: SourceFile, reference: Reference) -> Iterator[ast.Call]:
    """Yield the calls in a file that make the class."""
    for call in (one for one in ast.walk(source.tree) if isinstance(one, ast.Call)):
        name = dotted(call.func) or ""
        if name.rpartition(".")[2] == reference.class_name:
            meant = resolve(source, name)
            if isinstance(meant, Defined) and meant.node is reference.cls.node:
                yield call
