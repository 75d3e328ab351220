"""Lines with which authors print and log: no output of a model depends on them."""

import ast
import re

from omni_kit.pysource.source import dotted

_LOGGER = re.compile(r"(?i)^(\w*logger|logging|log|loguru)$")
_LOGS = re.compile(r"^(debug|info|warn|warning|error|exception|critical|log|success|trace)(_once|_rank0)?$")


def is_logger(name: str) -> bool:
    """Return whether a name is a logger's: `logger` of `self.logger`."""
    return bool(_LOGGER.match(name.rpartition(".")[2]))


def logger_of(called: str) -> str:
    """Return the logger of a dotted name that is called, `self.logger.warning`; empty of another."""
    owner, _, method = called.rpartition(".")
    return owner if _LOGS.match(method) and is_logger(owner) else ""


def only_logs(node: ast.AST) -> bool:
    """Return whether a node is a statement that logs, and no more."""
    call = node.value if isinstance(node, ast.Expr) else None
    return isinstance(call, ast.Call) and bool(logger_of(dotted(call.func) or ""))
