"""Models that derive from the module of a training framework, as the modules of torch that they are."""

import ast
import re
from collections.abc import Iterator

from omni_kit.pysource.classes import ClassRef
from omni_kit.pysource.source import SourceFile, dotted
from omni_kit.upstream.repositories.constructed import with_texts
from omni_kit.upstream.repositories.names import resolve

IS_TRAINED = re.compile(r"^((pytorch_)?lightning\.([\w.]+\.)?LightningModule|composer\.([\w.]+\.)?ComposerModel)$")
"""The modules of training frameworks, by their full names."""
_MODULE = "torch.nn.Module"
_SILENT = re.compile(r"^self\.(save_hyperparameters|log|log_dict)$")
_KEPT, _CONFIG = "self.hparams", "self.config"


def with_plain_module(cls: ClassRef) -> ClassRef:
    """Return a class that derives from a framework's module as one that derives from torch's; any other class as it is.

    What it saves of its arguments is read from its config. Only what authors write in the file of the class changes;
    the lines of the file keep their numbers.
    """
    homes = [one for one in cls.mro if isinstance(one, ClassRef) and one.source is cls.source]
    bases = [base for one in homes for base in one.node.bases if _is_trained(one.source, base)]
    if not bases:
        return cls
    edits: list[tuple[ast.stmt | ast.expr, str]] = [(base, _MODULE) for base in bases]
    edits += [edit for one in homes for edit in _edits(one.node)]
    return with_texts(cls, edits, [] if resolve(cls.source, "torch") == "torch" else ["import torch"])


def _is_trained(source: SourceFile, base: ast.expr) -> bool:
    meant = resolve(source, dotted(base) or "")
    return isinstance(meant, str) and bool(IS_TRAINED.match(meant))


def _edits(cls: ast.ClassDef) -> Iterator[tuple[ast.stmt | ast.expr, str]]:
    """Yield the calls that only such a module has, and what it reads of its saved arguments."""
    for node in ast.walk(cls):
        if isinstance(node, ast.Attribute) and dotted(node) == f"{_KEPT}.{node.attr}":
            yield node, f"{_CONFIG}.{node.attr}"
        for block in (getattr(node, name, None) for name in ("body", "orelse", "finalbody")):
            silent = [one for one in block if _is_silent(one)] if isinstance(block, list) else []
            yield from ((one, "") for one in silent[1:])
            yield from ((one, "pass" if silent == block else "") for one in silent[:1])


def _is_silent(statement: ast.stmt) -> bool:
    called = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(called, ast.Call) and bool(_SILENT.match(dotted(called.func) or ""))
