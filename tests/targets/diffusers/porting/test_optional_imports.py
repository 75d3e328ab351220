"""Imports of packages that are not installed are guarded, and so is what cannot be defined without them."""

from pathlib import Path
from typing import Any

import pytest

from omni_kit.targets.diffusers.porting.optional_imports import guarded, needed_at
from tests.targets.diffusers.porting.small_models import ASKED, GUARDED_PACKAGE, HEAD, NET, SPLIT, attention, ported

FILE = """from __future__ import annotations
import torch
import no_such_kernels
import no_such_kernels.language as nl


@no_such_kernels.jit
def kernel(x: nl.Tensor):
    return nl.load(x)


def fast(x):
    return kernel(x)


LARGEST = [no_such_kernels.limit(), 1]


class Lantern(torch.nn.Module):
    def forward(self, x, sparse=False):
        return fast(x) if sparse else 2 * x
"""


def test_a_file_runs_without_the_package_until_it_is_needed() -> None:
    text = guarded(FILE, ["no_such_kernels"], "Lantern")
    names: dict[str, object] = {}
    exec(compile(text, "lantern.py", "exec", dont_inherit=True), names)

    lantern = names["Lantern"]()  # type: ignore[operator]
    assert lantern(1) == 2
    with pytest.raises(NameError):
        lantern(1, sparse=True)
    assert not {"kernel", "LARGEST", "no_such_kernels"} & names.keys()


@pytest.mark.parametrize(
    "text", [FILE.replace("no_such_kernels", "torch"), FILE.replace("(torch.nn.Module)", "(no_such_kernels.Module)")]
)
def test_what_is_there_and_what_the_model_cannot_do_without_is_imported(text: str) -> None:
    assert guarded(text, ["torch", "no_such_kernels"], "Lantern") == text


BUILT = (
    FILE
    + """
    def __init__(self, deep=False):
        super().__init__()
        {line}


class Inner(torch.nn.Module):
    def __init__(self):
        self.layer = Kernel()


class Kernel(no_such_kernels.Module):
    pass
"""
)


@pytest.mark.parametrize(("line", "kept"), [
    ("self.layers = [Kernel() for _ in range(2)]", True), ("self.layer = Inner()", True),
    ("self.layer = Inner() if deep else None", False), ("self.make = lambda: Kernel()", False),
    ("if deep:\n            self.layer = Kernel()", False),
])  # fmt: skip
def test_a_package_that_the_model_cannot_be_made_without_is_imported(line: str, kept: bool) -> None:
    text = BUILT.format(line=line)
    assert (guarded(text, ["no_such_kernels"], "Lantern") == text) is kept


CALLED = FILE.replace(
    "        return fast(x) if sparse else 2 * x",
    """        {line}

    def sped(self, x):
        return fast(x)""",
)


@pytest.mark.parametrize(("line", "kept"), [
    ("return self.sped(x)", True), ("return fast(x)", True), ("return fast(x) if sparse else x", False),
    ("if not sparse:\n            return x\n        return fast(x)", False),
])  # fmt: skip
def test_a_package_that_the_model_cannot_be_called_without_is_imported(line: str, kept: bool) -> None:
    text = CALLED.replace("{line}", line)
    assert (guarded(text, ["no_such_kernels"], "Lantern") == text) is kept


TRIED = """try:
    from no_such_kernels import fast
except ImportError:
    {other}


class Lantern:
    def forward(self, x, sparse=False):
        {line}
"""


@pytest.mark.parametrize(("other", "line", "needed"), [
    ("fast = None", "return fast(x)", True), ("pass", "y = fast(x) + 1\n        return y", True),
    ("fast = None", "if fast is None:\n            return x\n        return fast(x)", False),
    ("fast = abs", "return fast(x)", False), ("from math import sin as fast", "return fast(x)", False),
])  # fmt: skip
def test_what_a_try_imports_and_the_model_always_calls_is_left_to_a_person(other: str, line: str, needed: bool) -> None:
    text = TRIED.replace("{other}", other).replace("{line}", line)
    assert [*needed_at(text, "Lantern")] == ([(1, "fast")] if needed else [])


CHOICES = """
import torch
from torch import nn
from no_such_trainer import rank_zero_only

try:
    from no_such_kernels import run

    FAST = True

    def grow(x):
        return run(x)
except ImportError:
    FAST = False
    if not hasattr(torch, "no_such_function"):

        def twice(x):
            return 2 * x

    def grow(x):
        return twice(x)

if torch.__version__ >= "1":

    def lessened(x):
        return x - 1

else:

    def lessened(x):
        return -1 + x


def noted(function):
    return rank_zero_only(function)


note = noted(len)


class Net(nn.Module):
    def __init__(self, dim: int = 8):
        super().__init__()
        self.layer = nn.Linear(dim, dim)

    def forward(self, x, t):
        note([FAST])
        return self.layer(lessened(grow(x))) + t
"""


def test_functions_are_those_that_run_without_the_package(tmp_path: Path) -> None:
    text = ported(tmp_path, CHOICES, head="").text
    names: dict[str, Any] = {"__name__": "lantern"}
    exec(compile(text, "lantern.py", "exec", dont_inherit=True), names)

    assert "no_such" not in text.replace("no_such_function", "")
    assert (names["grow"](3), names["lessened"](3), names["FAST"]) == (6, 2, False)


@pytest.mark.parametrize(("line", "call"), [
    ("import flash_attn", "flash_attn.go"), ("from flash_attn_interface import go as went", "went"),
])  # fmt: skip
def test_flags_of_packages_that_may_not_be_there_come_along(line: str, call: str, tmp_path: Path) -> None:
    guard = f"try:\n    {line}\n    FLASH = True\nexcept ImportError:\n    FLASH = False\n\n\n"
    helper = (
        f"def attend(q, k, v):\n    if FLASH:\n        return {call}(q, k, v)\n"
        "    return F.scaled_dot_product_attention(q, k, v)\n\n\n"
    )
    text = helper + attention(SPLIT, ASKED.replace("F.scaled_dot_product_attention", "attend"))
    found = ported(tmp_path, text, HEAD + guard)
    kept = f"try:\n    {line}\n\n    FLASH = True\nexcept ImportError:\n    FLASH = False\n"
    assert kept in found.text  # a blank line is ruff's


PROBED = """
def is_fast_available():
    try:
        {line}
        return True
    except {error}:
        return False


class Net(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.proj = nn.Linear(dim, dim)

    def forward(self, x, t):
        return self.proj(x) * 2 if is_fast_available() else self.proj(x)
"""


@pytest.mark.parametrize(("line", "error", "written"), [
    ("import fast_kernels", "Exception", "import fast_kernels  # noqa: F401"),
    ("from fast_kernels import go as went", "Exception", "from fast_kernels import go as went  # noqa: F401"),
    ("from fast_kernels import go  # noqa", "(OSError, Exception)", "from fast_kernels import go  # noqa"),
    ("import fast_kernels", "ImportError", "import fast_kernels"),
    ("from fast_kernels import go", "ImportError", "from fast_kernels import go"),
    ("import fast_kernels; fast_kernels.go()", "Exception", "import fast_kernels"),
])  # fmt: skip
def test_what_finds_out_whether_a_package_is_there_still_does(
    line: str, error: str, written: str, tmp_path: Path
) -> None:
    found = ported(tmp_path, PROBED.format(line=line, error=error)).text
    body = found.partition("def is_fast_available():\n    try:\n        ")[2].partition("\n")[0]
    assert body == written
    own: dict[str, Any] = {}
    exec("def is_fast" + found.partition("def is_fast")[2].partition("class Tiny")[0], own)
    assert not own["is_fast_available"]()


def test_what_a_flag_of_a_file_imports_stays(tmp_path: Path) -> None:
    guard = "try:\n    import fast_kernels\n    FAST = True\nexcept Exception:\n    FAST = False\n"
    text = PROBED.partition("class Net")[2].replace("is_fast_available()", "FAST")
    found = ported(tmp_path, f"{guard}\n\nclass Net{text}").text
    assert "try:\n    import fast_kernels  # noqa: F401\n\n    FAST = True\nexcept Exception:" in found


def test_a_package_of_another_device_stays_behind_its_condition(tmp_path: Path) -> None:
    found = ported(tmp_path, GUARDED_PACKAGE, HEAD + attention(SPLIT, ASKED).partition(NET)[0])
    assert "if is_torch_npu_available():\n    import torch_npu" in found.text
    assert "\nimport torch_npu" not in found.text
