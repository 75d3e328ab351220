"""A guarded import that leaves nothing to use is no choice of the authors'."""

import ast
from pathlib import Path

import pytest

from omni_kit.errors import BadInput
from omni_kit.pysource.library import Library
from omni_kit.pysource.source import SourceFile, read_source
from omni_kit.upstream.repositories.names import Defined, lacks_alternative, resolve, searching

TRY = "try:\n    import flash_attn\n    from flash_attn import flash_attn_func\nexcept ImportError{handler}\n"
USE = "\n\ndef attend(q, k, v):\n    {use}return flash_attn_func(q, k, v)\n"
TESTED = "if flash_attn_func is None:\n        return plain(q, k, v)\n    "
VERSION = "if flash_attn.__version__ > '2':\n        pass\n    "


@pytest.mark.parametrize(("handler", "use", "lacks"), [
    (" as error:\n    print(error)", "", True),
    (":\n    flash_attn = flash_attn_func = None", "", True),
    (":\n    flash_attn = flash_attn_func = None", VERSION, True),
    (":\n    flash_attn = flash_attn_func = None", TESTED, False),
    (":\n    from plain import flash_attn_func", "", False),
    (":\n    raise", "", False),
    (":\n    flash.attend = None", "", False),
])  # fmt: skip
def test_whether_an_import_has_an_alternative(handler: str, use: str, lacks: bool) -> None:
    tree = ast.parse(TRY.format(handler=handler) + USE.format(use=use))
    assert lacks_alternative(tree.body[0], tree) is lacks


@pytest.mark.parametrize("guarded", ["import no_such_kernels", "import torch, flash_attn", "x = 1"])
def test_only_packages_with_a_stand_in_count(guarded: str) -> None:
    tree = ast.parse(f"try:\n    {guarded}\nexcept ImportError:\n    pass\n")
    assert not lacks_alternative(tree.body[0], tree)


FLAG = "try:\n    import flash_attn\n    HAS = True\nexcept ImportError:\n    HAS = False\n"


@pytest.mark.parametrize(("used", "lacks"), [
    ("def f(x):\n    assert HAS\n    return flash_attn.flash_attn_func(x, x, x)", True),
    ("def f(x):\n    return flash_attn.flash_attn_func(x, x, x) if HAS else x", False),
])  # fmt: skip
def test_a_flag_that_is_asserted_leaves_no_alternative(used: str, lacks: bool) -> None:
    tree = ast.parse(FLAG + used)
    assert lacks_alternative(tree.body[0], tree) is lacks


def written(place: Path, text: str) -> SourceFile:
    (place / "model.py").write_text(text)
    return read_source(Library("repository", place), place / "model.py")


SWITCHED = """import os
from torch.nn import functional as F
attend = F.scaled_dot_product_attention
if {test}:
    from sageattention import sageattn
    attend = sageattn
"""


@pytest.mark.parametrize("test", ["os.environ.get('SAGE', '0') == '1'", "os.getenv('SAGE')"])
def test_what_an_unset_variable_switches_on_is_not_read(tmp_path: Path, test: str) -> None:
    found = resolve(written(tmp_path, SWITCHED.format(test=test)), "attend")
    assert found == "torch.nn.functional.scaled_dot_product_attention"


@pytest.mark.parametrize("test", ["os.environ.get('SAGE', '1') == '1'", "F.is_fast()", "os.environ['SAGE']"])
def test_another_switch_stays_with_both_ways(tmp_path: Path, test: str) -> None:
    found = resolve(written(tmp_path, SWITCHED.format(test=test)), "attend")
    assert isinstance(found, Defined)
    assert isinstance(found.node, ast.If)


def test_a_second_name_means_the_first(tmp_path: Path) -> None:
    source = written(tmp_path, "class Block: ...\nLayer = Block\nsize = 4\nwide = size\n")
    assert resolve(source, "Layer") == Defined(source, "Block", source.classes["Block"])
    assert getattr(resolve(source, "wide"), "name", "") == "wide"


@pytest.mark.parametrize("line", ["model = model.module", "model = other.module\nother = model.inner"])
def test_a_name_that_is_made_of_itself_means_nothing(line: str, tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(f"{line}\n")
    assert not isinstance(resolve(read_source(Library("own", tmp_path), tmp_path / "m.py"), "model.run"), Defined)


def test_each_of_several_names_means_the_whole_assignment(tmp_path: Path) -> None:
    source = written(tmp_path, "def probe(): ...\nfound, (version, *_rest) = probe()\nsizes[0], other.x = probe()\n")
    for name in ("found", "version", "_rest"):
        assert resolve(source, name) == Defined(source, "found", source.tree.body[1])
    assert resolve(source, "sizes") is None
    assert resolve(source, "probe") == Defined(source, "probe", source.tree.body[0])


EITHER = """if is_{package}_available():
    from .fused import Norm
else:
    from {other} import RMSNorm as Norm
"""


@pytest.mark.parametrize(("package", "other", "meant"), [
    ("triton", "torch.nn", "torch.nn.RMSNorm"),
    ("torch", "torch.nn", "Norm"),
    ("triton", "apex.normalization", "Norm"),
])  # fmt: skip
def test_what_a_file_imports_without_a_package_comes_before_what_needs_it(
    package: str, other: str, meant: str, tmp_path: Path
) -> None:
    (tmp_path / "fused.py").write_text("class Norm:\n    pass\n")
    found = resolve(written(tmp_path, EITHER.format(package=package, other=other)), "Norm")
    assert (found.name if isinstance(found, Defined) else found) == meant


@pytest.mark.parametrize("line", ["from .newer import sample", "from .newer import *", "from . import newer"])
def test_a_file_that_cannot_be_read_matters_only_to_what_needs_it(line: str, tmp_path: Path) -> None:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "__init__.py").write_text("", encoding="utf-8")
    (tmp_path / "pkg" / "newer.py").write_text("def sample[T](x: T): ...\ndef =", encoding="utf-8")
    (tmp_path / "pkg" / "net.py").write_text(f"{line}\n", encoding="utf-8")
    library = Library("pkg", tmp_path / "pkg")
    source = read_source(library, tmp_path / "pkg" / "net.py")
    name = "newer.sample" if line.endswith("newer") else "sample"
    with pytest.raises(BadInput):
        resolve(source, name)
    with searching():
        assert not isinstance(resolve(source, name), Defined)
    with pytest.raises(BadInput):
        resolve(source, name)


@pytest.mark.parametrize("compiled", [
    "attend = torch.compile(attend, dynamic=False)", "attend = torch.compile(mode='default')(attend)",
    "if torch.cuda.is_available():\n    attend = torch.compile(attend)", "attend = torch.jit.script(attend)",
])  # fmt: skip
def test_what_is_compiled_in_place_means_what_it_was(compiled: str, tmp_path: Path) -> None:
    imported = written(tmp_path, f"import torch\nfrom torch.nn.kernels import attend\n{compiled}\n")
    assert resolve(imported, "attend") == "torch.nn.kernels.attend"
    (tmp_path / "own").mkdir()
    own = written(tmp_path / "own", f"import torch\ndef attend(x):\n    return x\n{compiled}\n")
    found = resolve(own, "attend")
    assert isinstance(found, Defined)
    assert isinstance(found.node, ast.FunctionDef)


@pytest.mark.parametrize(
    ("wraps", "name"), [("torch.compile(plain, mode='default')", "plain"), ("cached(plain)", "fast")]
)
def test_what_is_compiled_under_another_name_is_renamed(wraps: str, name: str, tmp_path: Path) -> None:
    text = f"import torch\nfrom functools import cache as cached\ndef plain(x):\n    return x\nfast = {wraps}\n"
    found = resolve(written(tmp_path, text), "fast")
    assert isinstance(found, Defined)
    assert found.name == name
