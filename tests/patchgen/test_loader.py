"""Configs run without importing what they mention, and with real imports when they must."""

import os
import sys
from pathlib import Path

import pytest

from omni_kit.errors import BadInput
from omni_kit.patchgen import spec
from omni_kit.patchgen.loader import find_config, load_config
from omni_kit.patchgen.locate import Libraries, package_of, unpacked_library
from omni_kit.patchgen.spec import PatchConfig
from tests.patchgen.conftest import VEOMNI_CONFIGS, package_dir

CONFIG = "config = PatchConfig('json', 'x.py')\n"


def write(folder: Path, text: str, name: str = "a_patch_gen_config.py") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "line",
    [
        "from veomni.patchgen.patch_spec import PatchConfig",
        "from veomni.patchgen import PatchConfig",
        "from patchgen import PatchConfig",
        "from patchgen.patch_spec import PatchConfig",
        "from omni_kit.patchgen.spec import PatchConfig",
        "from omni_kit.patchgen import PatchConfig",
        "import patchgen\nPatchConfig = patchgen.PatchConfig",
        "import patchgen.patch_spec as ps\nPatchConfig = ps.PatchConfig",
        "import veomni.patchgen.patch_spec\nPatchConfig = veomni.patchgen.patch_spec.PatchConfig",
        "import veomni.patchgen.patch_spec as ps\nPatchConfig = ps.PatchConfig",
    ],
)
def test_the_dsl_is_there_under_every_name(line: str, tmp_path: Path) -> None:
    loaded = load_config(write(tmp_path, f"{line}\n{CONFIG}"), Libraries())
    assert type(loaded.config) is PatchConfig
    assert loaded.notes == []


HEAVY = """
from dataclasses import dataclass
from typing import Callable, Optional

import nowhere_to_be_found
import torch
import torch.nn as nn
import torch.nn.functional as F
from transformers.utils import logging
from patchgen import PatchConfig

logger = logging.get_logger(__name__)
BIG = torch.finfo(torch.float32).max


@torch.no_grad()
def f(x: Optional[torch.Tensor] = None, y: torch.Tensor | None = None, z: int | F.T = 0) -> Callable[..., nn.Module]:
    return F.linear(x, y)


@dataclass
class Output(nn.Module, nowhere_to_be_found.Mixin):
    loss: Optional[torch.Tensor] = None
"""


def test_annotations_bases_and_decorators_need_nothing(tmp_path: Path) -> None:
    before = set(sys.modules)
    loaded = load_config(write(tmp_path, HEAVY + CONFIG), Libraries())
    assert loaded.notes == []
    assert "nowhere_to_be_found" not in sys.modules
    assert not {m for m in set(sys.modules) - before if m.partition(".")[0] in ("torch", "transformers")}


@pytest.mark.parametrize(
    "use",
    [
        "if pathspec_like.CURRENT: pass",
        "names = list(pathspec_like.NAMES)",
        "for name in pathspec_like.NAMES: pass",
        "assert pathspec_like.CURRENT + 1 == 4",
    ],
)
def test_a_needed_value_brings_real_imports_and_a_note(
    use: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "lib", "CURRENT = 3\nNAMES = ('a',)\n", "pathspec_like.py")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "lib"), prepend=os.pathsep)
    path = write(tmp_path / "configs", f"import pathspec_like\nfrom patchgen import PatchConfig\n{use}\n{CONFIG}")
    loaded = load_config(path, Libraries())
    ran, real = loaded.notes
    assert "ran, in a confined process" in ran
    assert "real imports" in real
    assert "pathspec_like" in real
    assert "pathspec_like" not in sys.modules


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def broken(:\n", "SyntaxError"),
        ("import json.nowhere\nexec('')\n", "ModuleNotFoundError"),
        ("from . import json\nfrom .nowhere import x\n", "ModuleNotFoundError"),
        ("undefined_thing\n", "NameError"),
        ("from patchgen import PatchConfig\n", "no PatchConfig named 'config'"),
        ("config = 3\n", "no PatchConfig named 'config'"),
        ("from patchgen import PatchConfig\nconfig = PatchConfig()\n", "TypeError"),
        ("raise SystemExit(3)\n", "SystemExit"),
    ],
)
def test_a_config_that_fails_says_why_in_one_line(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput) as caught:
        load_config(write(tmp_path, text), Libraries())
    assert said in caught.value.message
    assert "a_patch_gen_config.py" in caught.value.message
    assert "\n" not in caught.value.message


def test_siblings_are_run_the_same_way(tmp_path: Path) -> None:
    package = tmp_path / "pkg" / "model"
    for folder in (tmp_path / "pkg", package):
        write(folder, "raise RuntimeError('a package is not to be imported')\n", "__init__.py")
    write(package, f"import torch\nfrom patchgen import PatchConfig\nX = 5\n{CONFIG}", "gpu_patch_gen_config.py")
    for number, line in enumerate(
        [
            "from .gpu_patch_gen_config import X, config",
            "from pkg.model.gpu_patch_gen_config import X, config",
            "from . import gpu_patch_gen_config as gpu\nX, config = gpu.X, gpu.config",
            "import pkg.model.gpu_patch_gen_config\ng = pkg.model.gpu_patch_gen_config\nX, config = g.X, g.config",
        ]
    ):
        path = write(package, f"{line}\nassert X == 5\n", f"npu{number}_patch_gen_config.py")
        loaded = load_config(path, Libraries())
        assert loaded.name == f"pkg.model.npu{number}_patch_gen_config"
        assert (package / "gpu_patch_gen_config.py") in loaded.siblings


def test_configs_do_not_share_state(tmp_path: Path) -> None:
    write(tmp_path, f"from patchgen import PatchConfig\n{CONFIG}", "gpu_patch_gen_config.py")
    layer = write(
        tmp_path, "from gpu_patch_gen_config import config\nconfig.target_file = 'npu.py'\n", "npu_patch_gen_config.py"
    )
    assert load_config(layer, Libraries()).config.target_file == "npu.py"
    assert load_config(tmp_path / "gpu_patch_gen_config.py", Libraries()).config.target_file == "x.py"


def test_a_config_is_found_by_dotted_name_and_path() -> None:
    dotted = "veomni.models.transformers.llama.llama_gpu_patch_gen_config"
    wanted = next(p for p in VEOMNI_CONFIGS if p.stem == "llama_gpu_patch_gen_config")
    assert find_config(dotted, Libraries()) == find_config(wanted, Libraries()) == wanted.resolve()
    for missing in ("veomni.models.nowhere", "no/such/file.py", "nowhere.py"):
        with pytest.raises(BadInput):
            find_config(missing, Libraries())


def test_names_come_from_the_files_alone(tmp_path: Path) -> None:
    write(tmp_path / "plain", "", "c.py")
    write(tmp_path / "pkg", "", "__init__.py")
    assert package_of(tmp_path / "plain" / "c.py") == (tmp_path / "plain", "c.py")
    assert package_of(tmp_path / "pkg" / "c.py") == (tmp_path, "pkg.c")


def test_versions_are_read_without_importing(tmp_path: Path) -> None:
    other = write(tmp_path / "transformers", "__version__ = '9.8.7'\n", "__init__.py").parent
    assert Libraries({"transformers": other}).version_of("transformers") == "9.8.7"
    assert Libraries().version_of("transformers").startswith("5.")
    assert Libraries().version_of("no_such_package") == "unknown"
    assert unpacked_library("transformers", tmp_path) == other
    with pytest.raises(BadInput):
        unpacked_library("diffusers", tmp_path)
    assert Libraries().file_of("transformers") == package_dir("transformers") / "__init__.py"


def test_recording_is_put_back() -> None:
    with spec.recording() as outer:
        with spec.recording() as inner:
            pass
        assert inner is not outer
    assert spec._registrations is None


@pytest.mark.parametrize(
    "line",
    [
        "config.patches.append('junk')",
        "config.override_method(3, replacement=len)",
        "config.override_method('', replacement=len)",
        "config.override_method('C.m', replacement=len, name_map={'a b': 'c'})",
        "config.override_method('C.m', replacement=len, name_map={1: 2})",
        "config.override_method('C.m', replacement=len, name_map='Qwen')",
        "config.target_file = '../elsewhere.py'",
        "config.target_file = '/etc/passwd'",
        "config.target_file = 'x.txt'",
        "config.target_file = 'x\\n.py'",
        "config.target_file = 'x\\x1b[2J.py'",
        "config.target_file = 'x y.py'",
        "config.target_file = '.py'",
        "config.target_file = '.x.py'",
        "config.target_file = '-x.py'",
        "config.target_file = '__init__.py'",
        "config.target_file = 'class.py'",
        "config.target_file = 'ﬁne.py'",
        "config.target_file = 'x\\u202e.py'",
        "config.target_file = 'x' * 300 + '.py'",
    ],
)
def test_a_config_of_nonsense_is_refused(line: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput):
        load_config(write(tmp_path, f"from patchgen import PatchConfig\n{CONFIG}{line}\n"), Libraries())


def test_real_imports_leave_no_config_behind(tmp_path: Path) -> None:
    package = tmp_path / "real_pkg"
    write(package, "", "__init__.py")
    write(package, f"from patchgen import PatchConfig\n{CONFIG}", "gpu_patch_gen_config.py")
    write(package, "NUMBERS = [1]\n", "numbers_of_mine.py")
    text = (
        "import importlib\nfrom real_pkg.gpu_patch_gen_config import config\nfrom real_pkg.deep.er import X\nlist(X)\n"
    )
    write(package / "deep", "", "__init__.py")
    write(package / "deep", "X = [1]\n", "er.py")
    loaded = load_config(write(package, text, "npu_patch_gen_config.py"), Libraries())
    assert loaded.notes
    assert "real_pkg.gpu_patch_gen_config" not in sys.modules
    for name in [name for name in sys.modules if name.startswith("real_pkg")]:
        del sys.modules[name]
