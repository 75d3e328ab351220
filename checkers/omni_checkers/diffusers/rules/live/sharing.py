"""A rule about what two processes show: DFU704."""

import ast
import textwrap
from collections.abc import Mapping
from typing import TypeGuard

from omni_checkers.diffusers.examples import LUMEN, LUMEN_PLAN, TRANSFORMER, changed
from omni_checkers.engine.places import at
from omni_checkers.engine.rule import Edit, Findings, NotApplicable, Rule, Severity
from omni_kit.pysource.classes import ClassRef

_PLAN, _HOME = "_cp_plan", "_modeling_parallel"
_IMPORTED = "ContextParallelInput, ContextParallelOutput"


class TokensCanBeShared(Rule):
    """Declare a `_cp_plan` for models whose tokens can be split across devices.

    Runs with two input sizes find the token axis. Two processes with half of the tokens each must then reproduce the
    output of one process. `--fix` writes the plan into the class. The rule runs only models with a small config whose
    class comes from the checked package.

    Why: without a plan, `enable_parallelism(config=ContextParallelConfig(...))` raises, and long videos run out of
    memory.

    Fine when: the model is small and nobody uses context parallelism with it.
    """

    id = "DFU704"
    name = "tokens-can-be-shared"
    severity = Severity.info
    target = "diffusers"
    level = "toy"
    requires = ("torch", "diffusers")
    failure_modes = ("diffusers-capability-flags",)
    fixable = True
    BAD = (changed(TRANSFORMER, (LUMEN_PLAN, "")),)
    GOOD = ({TRANSFORMER: LUMEN[TRANSFORMER]},)

    def check(self, shared: Mapping[str, str], models: list[ClassRef]) -> Findings:
        unsaid = [cls for cls in models if _without_plan(cls)]
        if not shared["plan"] and unsaid:
            raise NotApplicable(shared["reason"])
        for cls in unsaid[:1]:  # the one that the small config is of
            edits = tuple(_edits(cls, shared["plan"]))
            message = f"{cls.node.name} declares no {_PLAN}, although its tokens can be split across devices"
            finding = at(cls.source, cls.node, message)
            yield type(finding)(finding.message, finding.path, finding.line, finding.column, edits=edits)


def _without_plan(cls: ClassRef) -> bool:
    found = cls.assigned(_PLAN)
    return found is None or (isinstance(found[1], ast.Constant) and found[1].value is None)


def _edits(cls: ClassRef, plan: str) -> list[Edit]:
    """Return the plan before the first method, and the import of what it is made of."""
    first = next((one for one in cls.node.body if isinstance(one, ast.FunctionDef)), None)
    known = next((one for one in cls.source.tree.body if _brings_the_base(one)), None)
    if first is None or known is None:
        return []
    line = min([first.lineno, *(one.lineno for one in first.decorator_list)])
    text = textwrap.indent(plan, " " * first.col_offset) + "\n\n"
    package = "." * known.level + (known.module or "").rpartition(".")[0]
    imported = f"from {package}{'' if package.endswith('.') else '.'}{_HOME} import {_IMPORTED}\n"
    own = cls.source.path
    return [
        Edit(own, (known.lineno, 0), (known.lineno, 0), imported), Edit(own, (line, 0), (line, 0), text),
    ]  # fmt: skip


def _brings_the_base(node: ast.stmt) -> TypeGuard[ast.ImportFrom]:
    return isinstance(node, ast.ImportFrom) and any(alias.name == "ModelMixin" for alias in node.names)
