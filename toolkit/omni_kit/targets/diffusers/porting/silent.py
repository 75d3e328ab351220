"""Without what authors print and log, and the loggers that they make for it."""

import libcst as cst

from omni_kit.targets.diffusers.porting.syntax import Removal, chain, code
from omni_kit.targets.diffusers.porting.visiting import walk
from omni_kit.upstream.repositories.logs import is_logger, logger_of


class Silent(Removal):
    """Without lines that only print or log, and without conditions and loggers that served nothing else."""

    def __init__(self) -> None:
        self._loggers: list[set[str]] = []

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:  # noqa: N802
        """Find the variables that only log."""
        self._loggers.append({name for name in _made_loggers(node) if _only_logs(node, name)})

    def leave_FunctionDef(  # noqa: N802
        self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef
    ) -> cst.FunctionDef:
        """Return the function as its statements are now."""
        self._loggers.pop()
        return updated_node

    def leave_SimpleStatementLine(  # noqa: N802
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.SimpleStatementLine | cst.RemovalSentinel:
        """Leave out what does nothing else of a line, and the line if nothing is left."""
        left = self._left(updated_node)
        if len(left) == len(updated_node.body):
            return updated_node
        return updated_node.with_changes(body=left) if left else cst.RemoveFromParent()

    def leave_SimpleStatementSuite(  # noqa: N802
        self, original_node: cst.SimpleStatementSuite, updated_node: cst.SimpleStatementSuite
    ) -> cst.SimpleStatementSuite:
        """Leave the same out of what stands behind a colon."""
        left = self._left(updated_node)
        changed = len(left) < len(updated_node.body)
        return updated_node.with_changes(body=left or [cst.Pass()]) if changed else updated_node

    def _left(self, line: cst.SimpleStatementLine | cst.SimpleStatementSuite) -> list[cst.BaseSmallStatement]:
        loggers = self._loggers[-1] if self._loggers else set()
        return [one for one in line.body if not (_says(one) or _made_logger(one) in loggers)]

    def leave_If(  # noqa: N802
        self, original_node: cst.If, updated_node: cst.If
    ) -> cst.If | cst.RemovalSentinel:
        """Leave out an `else`, and a condition, under which nothing else happens, if that calls nothing."""
        rest, before = updated_node.orelse, original_node.orelse
        if isinstance(rest, cst.Else) and isinstance(before, cst.Else) and _emptied(before.body, rest.body):
            updated_node = updated_node.with_changes(orelse=None)
        plain = not any(isinstance(one, cst.Call) for one in walk(updated_node.test)) and updated_node.orelse is None
        return cst.RemoveFromParent() if plain and _emptied(original_node.body, updated_node.body) else updated_node


def _emptied(before: cst.BaseSuite, after: cst.BaseSuite) -> bool:
    return code(after).strip() == "pass" != code(before).strip()


def _says(statement: cst.BaseSmallStatement) -> bool:
    """Return whether a statement prints or logs, and no more."""
    return bool(_logging(statement)) or _called(statement) == "print"


def _logging(statement: cst.BaseSmallStatement) -> str:
    """Return the logger of `logger.info("...")`, or of `self.logger.warning("...")`; empty for another statement."""
    return logger_of(_called(statement))


def _called(statement: cst.BaseSmallStatement) -> str:
    call = statement.value if isinstance(statement, cst.Expr) else None
    return chain(call.func) if isinstance(call, cst.Call) else ""


def _made_logger(statement: cst.BaseSmallStatement) -> str:
    """Return the variable of `logger = get_logger(...)`; empty for another statement."""
    match statement:
        case cst.Assign(targets=[cst.AssignTarget(target=cst.Name(value=name))], value=cst.Call()):
            return name if is_logger(name) else ""
    return ""


def _made_loggers(function: cst.FunctionDef) -> set[str]:
    return {_made_logger(one) for one in walk(function.body) if isinstance(one, cst.BaseSmallStatement)} - {""}


def _only_logs(function: cst.FunctionDef, name: str) -> bool:
    """Return whether a variable is only assigned, and asked to log in statements of their own."""
    used = sum(isinstance(one, cst.Name) and one.value == name for one in walk(function.body))
    statements = (one for one in walk(function.body) if isinstance(one, cst.BaseSmallStatement))
    return used == sum(name in (_made_logger(one), _logging(one)) for one in statements)
