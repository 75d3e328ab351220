"""Rules come to an end on files that are broken, empty or strange."""

import ast
import re
from collections.abc import Callable

import pytest

from omni_checkers import all_rules
from omni_checkers.diffusers.examples import LUMEN
from omni_checkers.engine.judge import judge
from omni_kit.targets.registry import get_target
from tests.conftest import sampled

from .conftest import Package

RULES = [rule for rule in all_rules() if rule.id.startswith("DFU") and rule.level == "static"]

STRANGE: dict[str, Callable[[str], str]] = {
    "empty": lambda text: "",
    "no Python": lambda text: text + "\nx = (\n",
    "a name that means itself": lambda text: text + "\nLumenRope = LumenRope\nfrom . import LumenBlock\n",
    "no bodies": lambda text: re.sub(r"return .*", "return", text),
    "no arguments": lambda text: re.sub(r"def (\w+)\(self.*\)", r"def \1()", text),
    "everything spread": lambda text: re.sub(r"(\w+)\(\n", r"\1(*args, **kwargs,\n", text),
    "another base": lambda text: re.sub(r"class (\w+)\([\w, .]+\)", r"class \1(\1, somewhere.Else)", text),
    "numbers": lambda text: re.sub(r'"[a-z_]+"', "7", text),
    "stars": lambda text: re.sub(r"= (\w+)\n", r"= [*\1, *\1][0]\n", text),
    "assigned to parts": lambda text: re.sub(r"    (_\w+) = (.+)\n", r"    (\1, *rest), x.y = \2, 1\n", text),
    "decorators": lambda text: re.sub(r"@[\w.]+(\(\))?", "@(lambda it: it)", text),
    "deep": lambda text: text + "\nx = " + "-" * 300 + "1\n",
}  # fmt: skip


EVERY = [(file, how) for how in STRANGE for file in LUMEN]
QUICK = [([*LUMEN][number % len(LUMEN)], how) for number, how in enumerate(STRANGE)]
"""Each change, of one file."""


@pytest.mark.parametrize(("file", "how"), sampled(EVERY, *QUICK))
def test_no_rule_fails(file: str, how: str, package: Package) -> None:
    path = package({file: STRANGE[how](LUMEN[file])})
    verdicts = judge(path, get_target("diffusers"), RULES)
    assert [one.reason for one in verdicts.values() if "failed:" in one.reason] == []


@pytest.mark.parametrize("text", ["", "_import_structure = 1\n", "_import_structure = {**x}\n", "x = {}\n"])
def test_strange_exports(text: str, package: Package) -> None:
    root = package({"src/diffusers/__init__.py": text, "src/diffusers/configuration_utils.py": ""})
    ast.parse(text)
    verdicts = judge(root / "src" / "diffusers", get_target("diffusers"), RULES)
    assert [one.reason for one in verdicts.values() if "failed:" in one.reason] == []
