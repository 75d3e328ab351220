"""VEO420: what an edit that was not finished leaves behind."""

import ast
from collections.abc import Iterator
from pathlib import Path

from omni_checkers.engine.files import File, walked, within
from omni_checkers.engine.rule import Finding, Findings, NotApplicable, Rule, Severity
from omni_checkers.veomni.examples import CONVERTER
from omni_checkers.veomni.facts.generated import Generated

_FILE = "checkpoint_tensor_converter.py"
_WHOLE = "        if any(len(experts) < self.num_experts for experts in found):\n"
_HALF = "        complete = all(len(experts) == self.num_experts for experts in found)\n" + _WHOLE


class NothingIsLeftBehind(Rule):
    """Remove unused values from hand-written code.

    The rule ignores generated files. Unused imports change no result; a linter reports them.

    Why: an unused value is the rest of an incomplete edit: the code computes a value and uses another one.

    Fine when: something outside the file reads the name; give it a leading underscore.
    """

    id = "VEO420"
    name = "nothing-is-left-behind"
    severity = Severity.warning
    target = "veomni"
    obligations = ("VEO-PG-39",)
    failure_modes = ("override-signature-drift",)
    BAD = ({_FILE: CONVERTER.replace(_WHOLE, _HALF)},)
    GOOD = ({_FILE: CONVERTER}, {_FILE: CONVERTER.replace("import re\n", "import os\nimport re\n")})

    def check(self, files: dict[Path, File], generated: list[Generated] | None = None) -> Findings:
        made = {item.file.path for item in generated or ()}
        written = [file for path, file in files.items() if path not in made and file.tree is not None]
        if not written:
            raise NotApplicable("the model has no hand-written code")
        for file in written:
            for function in file.nodes(ast.FunctionDef):
                for name, line in _unused_locals(function):
                    yield Finding(f"{function.name} computes '{name}' but never reads it", file.path, line)


def _unused_locals(function: ast.FunctionDef) -> Iterator[tuple[str, int]]:
    nodes = walked(function)
    read = _read(function)
    outer = {name for node in within(function, ast.Global) for name in node.names}
    outer |= {name for node in within(function, ast.Nonlocal) for name in node.names}
    if "locals" in read:
        return
    for node in nodes:
        match node:
            case ast.Assign([ast.Name(name)]) | ast.AnnAssign(ast.Name(name)) if name not in read | outer:
                if not name.startswith("_") and not _in_class(nodes, node):
                    yield name, node.lineno


def _in_class(nodes: list[ast.AST], statement: ast.AST) -> bool:
    """Return whether an assignment is that of a class inside the function."""
    return any(isinstance(node, ast.ClassDef) and statement in node.body for node in nodes)


def _read(whole: ast.AST) -> set[str]:
    """Return names that are read, deleted, changed in place, or spelled in a string such as those of `__all__`."""
    found = {node.id for node in within(whole, ast.Name) if not isinstance(node.ctx, ast.Store)}
    found |= {node.value for node in within(whole, ast.Constant) if isinstance(node.value, str)}
    changed = (node.target for node in within(whole, ast.AugAssign))
    return found | {target.id for target in changed if isinstance(target, ast.Name)}
