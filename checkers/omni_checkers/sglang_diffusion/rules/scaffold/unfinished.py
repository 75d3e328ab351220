"""The rule about unfinished to-dos: SGD601."""

import ast
from collections.abc import Iterator
from pathlib import Path

from omni_checkers.engine.files import File, walked
from omni_checkers.engine.rule import Finding, Findings, Rule
from omni_checkers.sglang_diffusion.examples import DIT, QWEN, changed
from omni_checkers.sglang_diffusion.facts.serving import Serving
from omni_kit.pysource.nodes import last_name
from omni_kit.targets.protocol import TODO_MARK

_RAISED = "NotImplementedError"


class NothingIsUnfinished(Rule):
    """Finish the code that the scaffold left open.

    Open code is a function that is called and only raises NotImplementedError, or a line with a comment
    `TODO(omni-kit)`.

    Why: the first request fails there, or the pipeline runs with a guess.

    Fine when: a method rejects a feature that the model does not support; methods that override SGLang's are not
    reported.
    """

    id = "SGD601"
    name = "nothing-is-unfinished"
    target = "sglang-diffusion"
    obligations = ("SGL-51",)
    BAD = (
        changed(
            DIT,
            ("(timestep / 1000).to(hidden_states.dtype)", "_step(timestep)"),
            ("EntryClass", 'def _step(step):\n    raise NotImplementedError("write it")\n\n\nEntryClass'),
        ),
        changed(DIT, ("        x = torch.cat(", "        # TODO(omni-kit): join tokens\n        x = torch.cat(")),
    )  # fmt: skip
    GOOD = ({DIT: QWEN[DIT]},)

    def check(self, serving: Serving, files: dict[Path, File]) -> Findings:
        called = {
            last_name(node)
            for file in files.values()
            for node in file.nodes(ast.Call)
        }  # fmt: skip
        for path, file in files.items():
            marked = set()
            for number, line in enumerate(file.text.splitlines(), 1):
                if TODO_MARK in line and "#" in line.partition(TODO_MARK)[0]:
                    marked.add(number)
                    yield Finding(f"unfinished: {line.partition(TODO_MARK)[2].strip(' :')}", path, number)
            for node in file.nodes(ast.FunctionDef):
                if marked.intersection(range(node.lineno, (node.end_lineno or node.lineno) + 1)):
                    continue  # said already
                if node.name in called and (reason := next(_left_open(node), None)) is not None:
                    yield Finding(f"unfinished: {node.name} {reason}", path, node.lineno)


def _left_open(function: ast.FunctionDef) -> Iterator[str]:
    """Yield why a function is unfinished; nothing for one that does something, or is meant to be overridden."""
    if any(last_name(one).startswith("abstract") or last_name(one) == "overload" for one in function.decorator_list):
        return
    body = [item for item in function.body if not isinstance(item, (ast.Expr, ast.Delete, ast.Pass))]
    raised = body[0].exc if len(body) == 1 and isinstance(body[0], ast.Raise) else None
    if raised is not None and last_name(raised) == _RAISED and not function.name.startswith("__"):
        said = [node.value for node in walked(raised) if isinstance(node, ast.Constant)]
        yield f"raises {_RAISED}" + (f": {said[0]!s}" if said and isinstance(said[0], str) else "")
