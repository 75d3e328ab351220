"""What authors print and log is left out; what does more stays."""

import textwrap
from pathlib import Path

import libcst as cst
import pytest

from omni_kit.targets.diffusers.porting.silent import Silent
from tests.targets.diffusers.porting.small_models import COLLECTED, ported


def silent(text: str) -> str:
    return cst.parse_module(textwrap.dedent(text)).visit(Silent()).code


@pytest.mark.parametrize("line", [
    "print(x.shape)", "logger.info('at %s', x)", "self.logger.warning('wide')", "logging.debug(x); print(x)",
    "logger = get_logger(name='net')\n        logger.warning('wide')", "LOGGER.warning_once('wide')",
])  # fmt: skip
def test_a_line_that_only_says_something_is_left_out(line: str) -> None:
    text = f"""
    class Net:
        def forward(self, x):
            {line}
            return x
    """.replace("\n        logger", "\n            logger")
    assert silent(text).split() == ["class", "Net:", "def", "forward(self,", "x):", "return", "x"]


@pytest.mark.parametrize("line", [
    "x = catalog.info(x)", "catalog.info(x)", "self.info(x)", "logger = get_logger()\n    self.logger = logger",
    "shown = print\n    shown(x)", "x = math.log(x)", "warnings.warn('wide')",
])  # fmt: skip
def test_a_line_that_does_more_stays(line: str) -> None:
    text = f"def forward(self, x):\n    {line}\n    return x\n"
    assert silent(text) == text


@pytest.mark.parametrize(("test", "rest", "left"), [
    ("self.wide", "", "return x"),
    ("self.wide", "    else:\n        print('narrow')\n", "return x"),
    ("self.wide", "    else:\n        x = x + 1\n", "if self.wide: pass else: x = x + 1 return x"),
    ("self.measure(x)", "", "if self.measure(x): pass return x"),
])  # fmt: skip
def test_a_condition_for_it_is_left_out_if_it_calls_nothing(test: str, rest: str, left: str) -> None:
    text = f"def forward(self, x):\n    if {test}:\n        logger.info('wide')\n{rest}    return x\n"
    assert silent(text).split() == f"def forward(self, x): {left}".split()


def test_of_a_line_the_part_that_says_nothing_stays() -> None:
    assert (
        silent("def forward(x):\n    logger.info(x); x = x + 1\n    return x\n").split("\n")[1].strip() == "x = x + 1"
    )
    assert silent("def forward(x):\n    if x.wide: log.info(x)\n    return x\n").split() == [
        "def",
        "forward(x):",
        "return",
        "x",
    ]


def test_lines_that_only_print_are_left_out(tmp_path: Path) -> None:
    text = COLLECTED.replace("        print(x.shape)", "        shown = print\n        shown(x.shape)")
    assert "print(" not in (found := ported(tmp_path, text).text).replace("shown = print", "")
    assert "shown(" in found
    assert "self.training" not in found
