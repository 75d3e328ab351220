"""Rules come to an end on files that are broken, empty or strange."""

import ast
import re
from collections.abc import Callable

import pytest

from omni_checkers import all_rules
from omni_checkers.engine.judge import judge
from omni_checkers.sglang_diffusion.examples import PIPELINE, QWEN
from omni_kit.targets.registry import get_target
from tests.conftest import sampled

from .conftest import Plugin

RULES = [rule for rule in all_rules() if rule.id.startswith("SGD") and rule.level == "static"]

STRANGE: dict[str, Callable[[str], str]] = {
    "empty": lambda text: "",
    "no Python": lambda text: text + "\nx = (\n",
    "a name that means itself": lambda text: text + "\nQwenDiT = QwenDiT\nregister = register\n",
    "no bodies": lambda text: re.sub(r"return .*", "return", text),
    "no arguments": lambda text: re.sub(r"def (\w+)\(self.*\)", r"def \1()", text),
    "everything spread": lambda text: re.sub(r"(\w+)\(\n", r"\1(*args, **kwargs,\n", text),
    "another base": lambda text: re.sub(r"class (\w+)\([\w, ]+\)", r"class \1(\1, somewhere.Else)", text),
    "lambdas": lambda text: re.sub(r"(factory)=(\w+)\)", r"\1=lambda: (\2,)[0]())", text),
    "numbers": lambda text: re.sub(r'"[a-z_]+"', "7", text),
    "stars": lambda text: re.sub(r"= (\w+)\n", r"= [*\1, *\1][0]\n", text),
}  # fmt: skip


EVERY = [(file, how) for how in STRANGE for file in QWEN]
QUICK = [([*QWEN][number % len(QWEN)], how) for number, how in enumerate(STRANGE)]
"""Each change, of one file."""


@pytest.mark.parametrize(("file", "how"), sampled(EVERY, *QUICK))
def test_no_rule_fails(file: str, how: str, plugin: Plugin) -> None:
    text = STRANGE[how](QWEN[file])
    if file == PIPELINE and (how == "empty" or not _is_python(text)):
        pytest.skip("then there is no pipeline")
    path = plugin({file: text})
    verdicts = judge(path, get_target("sglang-diffusion"), RULES)
    assert set(verdicts) == {rule.id for rule in RULES}
    assert not [verdict.reason for verdict in verdicts.values() if "failed:" in verdict.reason]


def _is_python(text: str) -> bool:
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True
