"""The rule about to-dos that the scaffold left: VEO639."""

import ast
from pathlib import Path

from omni_checkers.engine.files import File
from omni_checkers.engine.rule import Finding, Findings, Rule, Severity
from omni_kit.targets.protocol import TODO_MARK
from omni_kit.upstream.kinds import Kind

_FILE = "wan_condition/conditioning.py"
_OPEN = f"""\
class Condition:
    def get_condition(self, inputs):
        # {TODO_MARK}: write how prompts become latents
        raise NotImplementedError("write how prompts become latents")
"""
_WRITTEN = """\
class Condition:
    def get_condition(self, inputs):
        return {"latents": [self.encode(one) for one in inputs]}
"""


class NothingIsUnfinished(Rule):
    """Finish what the scaffold left open: lines with a comment `TODO(omni-kit)`.

    Why: training fails there, or continues with a guess.

    Fine when: the training setups in use never reach that code, for example with stored conditions.
    """

    id = "VEO639"
    name = "nothing-is-unfinished"
    target = "veomni"
    kinds = frozenset({Kind.dit})
    severity = Severity.warning
    example_of = "wan_t2v"
    BAD = ({_FILE: _OPEN},)
    GOOD = ({_FILE: _WRITTEN},)

    def check(self, files: dict[Path, File]) -> Findings:
        for path, file in files.items():
            texts = [node for node in file.nodes(ast.Constant) if isinstance(node.value, str)]
            quoted = {n for node in texts for n in range(node.lineno, (node.end_lineno or node.lineno) + 1)}
            for number, line in enumerate(file.text.splitlines(), 1):
                before, mark, said = line.partition(TODO_MARK)
                if mark and "#" in before and number not in quoted:
                    yield Finding(f"unfinished: {said.strip(' :')}", path, number)
