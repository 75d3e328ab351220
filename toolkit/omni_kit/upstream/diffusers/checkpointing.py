"""Determine whether a transformer of diffusers checkpoints its blocks, and whether that computes the same."""

import ast
from collections.abc import Iterator, Sequence

from omni_kit.pysource.classes import ClassRef


def checkpoints(cls: ClassRef) -> bool:
    """Return whether the class says that its forward checkpoints."""
    found = cls.assigned("_supports_gradient_checkpointing")
    return found is not None and isinstance(found[1], ast.Constant) and found[1].value is True


def lost_by_checkpointing(cls: ClassRef) -> str:
    """Return an argument of a block's call that is lost under checkpointing; empty for none, or for options alone."""
    found = cls.method("forward")
    for choice in ast.walk(found[1]) if found is not None else ():
        if isinstance(choice, ast.If) and "gradient_checkpointing" in ast.unparse(choice.test):
            checkpointed, plain = (next(_block_calls(part), None) for part in (choice.body, choice.orelse))
            if checkpointed is None or plain is None:
                continue
            handed = {ast.unparse(one) for one in (*checkpointed.args, *(each.value for each in checkpointed.keywords))}
            told = {ast.unparse(one): ast.unparse(one) for one in plain.args}
            told |= {ast.unparse(one.value): one.arg or ast.unparse(one.value) for one in plain.keywords}
            lost = [name for value, name in told.items() if value not in handed and not name.endswith("kwargs")]
            if lost and len(handed) <= len(told):
                return lost[0]
    return ""


def _block_calls(body: Sequence[ast.stmt]) -> Iterator[ast.Call]:
    """The calls of assigned values, in order."""
    for statement in body:
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Call):
            yield statement.value
