"""Models of authors that derive from transformers' PreTrainedModel, as the modules of torch that they are."""

import ast
from collections.abc import Iterator

from omni_kit.pysource.classes import ClassRef
from omni_kit.pysource.source import SourceFile, dotted
from omni_kit.upstream.repositories.constructed import constructs_base, with_texts
from omni_kit.upstream.repositories.names import Defined, resolve

_LIBRARY, _BASE, _MODULE = "transformers.", ".PreTrainedModel", "torch.nn.Module"
_CONFIG, _ENDS = "config_class", "self.post_init()"

_Edit = tuple[ast.stmt | ast.expr, str]


def config_class(cls: ClassRef) -> ClassRef | None:
    """Return the authors' class of the config that a PreTrainedModel is made with; None for any other class."""
    for one in _pretrained(cls):
        for statement in one.node.body:
            if isinstance(statement, ast.Assign) and [dotted(target) for target in statement.targets] == [_CONFIG]:
                meant = resolve(one.source, dotted(statement.value) or "")
                if isinstance(meant, Defined) and isinstance(meant.node, ast.ClassDef):
                    return ClassRef(meant.source, meant.node)
    return None


def with_torch_base(cls: ClassRef) -> ClassRef:
    """Return a PreTrainedModel as a module of torch that keeps its config; any other class as it is.

    Only what authors write in the file of the class changes. The lines of the file keep their numbers.
    """
    edits = [edit for one in _pretrained(cls) if one.source is cls.source for edit in _edits(one, cls)]
    if not edits:
        return cls
    return with_texts(cls, edits, [] if resolve(cls.source, "torch") == "torch" else ["import torch"])


def _pretrained(cls: ClassRef) -> list[ClassRef]:
    """Return the class and its bases among the authors' classes, if one of them derives from PreTrainedModel."""
    homes = [one for one in cls.mro if isinstance(one, ClassRef)]
    return homes if any(_is_base(one.source, base) for one in homes for base in one.node.bases) else []


def _is_base(source: SourceFile, base: ast.expr) -> bool:
    meant = resolve(source, dotted(base) or "")
    return isinstance(meant, str) and meant.startswith(_LIBRARY) and meant.endswith(_BASE)


def _edits(one: ClassRef, cls: ClassRef) -> Iterator[_Edit]:
    """Yield the parts of a class that change, and the text of each."""
    yield from ((base, _MODULE) for base in one.node.bases if _is_base(one.source, base))
    for statement in one.node.body:
        if isinstance(statement, ast.Assign) and [dotted(target) for target in statement.targets] == [_CONFIG]:
            yield statement, "" if len(one.node.body) > 1 else "pass"
    init = one.defines("__init__")
    last = not any(isinstance(above, ClassRef) and above.defines("__init__") for above in cls.after(one))
    for node in ast.walk(init) if init is not None else ():
        if isinstance(node, ast.Expr) and ast.unparse(node) == _ENDS:
            yield node, ""
        elif isinstance(node, ast.Expr) and isinstance(call := node.value, ast.Call) and constructs_base(call) and last:
            kept = f"; self.config = {ast.unparse(call.args[0])}" if call.args else ""
            yield node, f"super().__init__(){kept}"
