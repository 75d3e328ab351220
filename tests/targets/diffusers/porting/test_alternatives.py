"""Of kernels in packages that may not be there, the one that runs is kept."""

from pathlib import Path

import pytest

from tests.targets.diffusers.porting.small_models import ASKED, HEAD, HEADS, SPLIT, attention, ported

FLASH = "try:\n    import flash_attn\n    MODE = 'flash'\nexcept ImportError:\n    MODE = 'own'\n\n\n"
KERNELS = """if {test}:
    y = flash_attn.flash_attn_func(q, k, v)
elif self.mode == 'own':
    y = (q @ k.mT).softmax(-1) @ v
else:
    y = F.scaled_dot_product_attention(q, k, v, scale=0.25)
return self.o(y.transpose(1, 2).flatten(2))"""


@pytest.mark.parametrize(("test", "mode", "kept"), [
    ("MODE == 'flash'", "'own'", "scale=1.0"),
    ("MODE == 'flash'", "'other'", "scale=0.25"),
    ("unknown()", "'own'", "scale=0.25"),
])  # fmt: skip
def test_of_kernels_that_may_not_be_there_the_one_that_runs_is_kept(
    test: str, mode: str, kept: str, tmp_path: Path
) -> None:
    own = f"{HEADS}{KERNELS.format(test=test)}"
    head = f"{HEAD}{FLASH}def unknown():\n    return torch.cuda.is_available()\n\n\n"
    found = ported(tmp_path, attention(f"{SPLIT}\nself.mode = {mode}", own), head)
    assert "flash_attn" not in found.text
    assert kept in found.text


@pytest.mark.parametrize("test", ["x.shape[1] > 3", "self.mode is None"])
def test_branches_that_depend_on_the_input_or_call_one_kernel_are_kept(test: str, tmp_path: Path) -> None:
    again = "F.scaled_dot_product_attention(q, k, v)"
    other = "flash_attn.flash_attn_func(q, k, v)" if "x" in test else f"{again} * 2"
    own = f"{HEADS}if {test}:\n    y = {other}\nelse:\n    y = {again}\nreturn self.o(y)"
    found = ported(tmp_path, attention(f"{SPLIT}\nself.mode = None", own), f"{HEAD}import flash_attn\n")
    assert "if " in found.text.partition("__call__")[2].partition("class ")[0]


PACKAGES = """if self.sparse and x.shape[1] > 3:
    y = sparse_attention(q, k, v)
elif self.third:
    from flash_attn_interface import flash_attn_func
    y = flash_attn_func(q.mT, k, v)
elif self.second:
    from {package} import flash_attn_func
    y = flash_attn_func(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)).transpose(1, 2)
else:
    raise RuntimeError
return self.o(y.transpose(1, 2).flatten(2))"""


@pytest.mark.parametrize(("package", "chosen"), [("flash_attn", True), ("flash_attn_interface", False)])
def test_kernels_of_one_name_are_told_apart_by_their_packages(package: str, chosen: bool, tmp_path: Path) -> None:
    flags = "".join(f"self.{name} = False\n" for name in ("sparse", "third", "second"))
    own = attention(f"{SPLIT}\n{flags}", f"{HEADS}{PACKAGES.format(package=package)}")
    text = ported(tmp_path, f"def sparse_attention(q, k, v):\n    return q\n\n\n{own}").text
    assert ("raise RuntimeError" not in text and "import flash_attn_func" not in text) is chosen
    assert ("dispatch_attention_fn(" in text) is chosen


TWO_VERSIONS = """MODE = None
try:
    try:
        from flash_attn_interface import flash_attn_func
        MODE = 'third'
    except ImportError:
        from flash_attn import flash_attn_func
        MODE = 'second'
except ImportError:
    import torch.nn.functional as F
    MODE = 'plain'


def attend(q, k, v):
    if MODE == 'third':
        return flash_attn_func(q, k, v)[0]
    elif MODE == 'second':
        return flash_attn_func(q, k, v)
    return F.scaled_dot_product_attention(q, k, v)


class OwnProcessor:
    def __call__(self, attn, q, k, v):
        return attend(q, k, v)


"""


def test_a_function_of_several_packages_and_a_processor_of_the_authors_use_the_dispatch(tmp_path: Path) -> None:
    """Two of the branches call functions of one name, and torch's functions are imported by a handler."""
    rest = "    else:\n        return F.scaled"
    head = "import torch\nimport torch.nn as nn\n" + TWO_VERSIONS.replace("    return F.scaled", rest)
    made = f"{SPLIT}\nself.processor = OwnProcessor()"
    found = ported(
        tmp_path, attention(made, "return self.o(self.processor(self, self.q(x), self.k(x), self.v(x)))"), head
    )
    assert "flash_attn" not in found.text
    assert "MODE" not in found.text
    assert "attend(q, k, v, backend=self._attention_backend" in found.text
    assert not [one for one in found.todo if "processor" in str(one)]


def test_what_a_device_alone_would_attend_with_is_left_out(tmp_path: Path) -> None:
    made = f"{SPLIT}\nif is_torch_npu_available():\n    self.way = NpuAttn()\nelse:\n    self.way = PlainAttn()"
    plain = "class PlainAttn:\n    pass\n\n\n"
    head = f"{HEAD}from diffusers.utils import is_torch_npu_available\n\n\n{plain}"
    text = ported(tmp_path, attention(made, ASKED), head).text
    assert "NpuAttn" not in text
    assert "PlainAttn()" in text
