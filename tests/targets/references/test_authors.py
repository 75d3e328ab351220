"""Authors' files are imported one by one, and what is missing matters only where it is used."""

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from omni_kit.errors import MissingRequirement
from omni_kit.targets.references.authors import Authors, Missing
from omni_kit.targets.references.repositories import BrokenReference, RepositoryBuilder
from omni_kit.targets.references.repositories import made as build
from omni_kit.toys.batches.denoiser.failed_checks import condition_of
from omni_kit.upstream.repositories.reference import Reference, find_reference

MODEL = """
import torch
from torch import nn

import no_such_kernels
from no_such_trainer import Trainer, step
from timm.layers import Mlp
from lantern_authors import helper

try:
    import no_such_speedup
    FAST = True
except ImportError:
    FAST = False


@step(3)
class Glow(Trainer):
    pass


class Lantern(nn.Module):
    def __init__(self, dim=8, fast=False):
        super().__init__()
        self.mlp = Mlp(dim)
        self.fast = fast

    def forward(self, x, t):
        if self.fast:
            return no_such_kernels.run(x)
        return helper.twice(self.mlp(x))
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    package = tmp_path / "src" / "lantern_authors"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise SystemExit('the world was imported')\n")
    (package / "helper.py").write_text("def twice(x):\n    return 2 * x\n")
    (package / "model.py").write_text(MODEL)
    return tmp_path


def test_neither_the_package_nor_missing_packages_keep_a_class_from_being_made(repository: Path) -> None:

    reference = find_reference(f"{repository}::Lantern")
    authors = Authors(reference)
    made = authors.get(reference.cls.source.module, "Lantern")()

    assert made(torch.ones(1, 8), 0).shape == (1, 8)
    assert sys.modules["lantern_authors.model"].FAST is False
    assert [*authors.used] == (["timm"] if "timm" not in sys.modules else [])


def test_what_is_used_and_missing_is_one_list_with_one_command(repository: Path) -> None:
    reference = find_reference(f"{repository}::Lantern")
    made = Authors(reference).get(reference.cls.source.module, "Lantern")(fast=True)

    with pytest.raises(MissingRequirement, match="pip install no_such_kernels"):
        made(None, 0)


def test_what_the_authors_wrote_or_do_without_is_not_to_be_installed(repository: Path) -> None:
    file = repository / "src" / "lantern_authors" / "model.py"
    file.write_text(MODEL.replace("self.fast = fast", "self.fast = fast or FAST"))
    (repository / "csrc" / "no_such_kernels").mkdir(parents=True)
    reference = find_reference(f"{repository}::Lantern")
    assert "pip install no_such_kernels\n" in _said(reference) + "\n"
    assert "(no_such_speedup: the authors' own extension, or optional)" in _said(reference)

    (repository / "csrc" / "no_such_kernels" / "setup.py").touch()
    assert "pip install" not in _said(find_reference(f"{repository}::Lantern"))


def _said(reference: Reference) -> str:
    return str(Authors(reference).lacking("no_such_kernels.run"))


def test_another_repository_with_the_same_modules_is_not_mixed_up(repository: Path, tmp_path: Path) -> None:
    reference = find_reference(f"{repository}::Lantern")
    first = Authors(reference).get(reference.cls.source.module, "Lantern")
    second = Authors(reference).get(reference.cls.source.module, "Lantern")

    assert first is not second


ENDING = """
import importlib.util
import sys

from torch import nn


class Beam(nn.Module):
    def __init__(self, size=8):
        super().__init__()
        self.proj = nn.Linear(size, size)

    def forward(self, x, t, cond=None):
        if cond is not None:
            x = x + cond
        else:
            ENDS
        return self.proj(x)
"""


@pytest.mark.parametrize("ends", ["exit()", "sys.exit(1)", "quit()"])
def test_where_authors_end_the_process_a_check_fails(ends: str, tmp_path: Path) -> None:
    (tmp_path / "beam_ending.py").write_text(ENDING.replace("ENDS", ends))
    reference = find_reference(f"{tmp_path / 'beam_ending.py'}::Beam")
    model = build(reference, {}, Authors(reference))
    with pytest.raises(ValueError) as raised:
        model(torch.ones(1, 8), 0)
    assert condition_of(raised.value) == "requires cond is not None"
    assert model(torch.ones(1, 8), 0, torch.ones(1, 8)).shape == (1, 8)


KERNEL = """
import triton
import triton.language as tl
from torch import nn


@triton.autotune(configs=[triton.Config({"SIZE": 8})], key=["size"])
@triton.jit
def kernel(x, size: tl.constexpr):
    tl.store(x, tl.load(x) * 2)


class Beam(nn.Module):
    def __init__(self, size=8):
        super().__init__()
        self.proj = nn.Linear(size, size)

    def forward(self, x, t):
        kernel[(1,)](x, 8)
        return self.proj(x)
"""


@pytest.mark.skipif(importlib.util.find_spec("triton") is not None, reason="triton is installed")
def test_a_kernel_needs_its_package(tmp_path: Path) -> None:
    (tmp_path / "beam_kernel.py").write_text(KERNEL)
    reference = find_reference(f"{tmp_path / 'beam_kernel.py'}::Beam")
    with pytest.raises(MissingRequirement, match="packages that are not installed: triton"):
        build(reference, {}, Authors(reference))(torch.ones(1, 8), 0)


LOADING = """
from torch import nn
from beam_parts import Part, width_of


class Beam(nn.Module):
    def __init__(self, size, *, text=width_of("t5"), depth=abs(-2)):
        super().__init__()
        self.proj = nn.ModuleList([nn.Linear(size, text) for _ in range(depth)])

    def forward(self, x, t):
        return self.proj[0](x)
"""
PART = """
from transformers import T5Config


def width_of(name):
    raise AssertionError(T5Config.from_pretrained(name))


class Part:
    width: int = width_of("t5")
"""


def test_no_model_is_loaded_for_a_default(tmp_path: Path) -> None:
    (tmp_path / "beam_loading.py").write_text(LOADING)
    (tmp_path / "beam_parts.py").write_text(PART)
    reference = find_reference(f"{tmp_path / 'beam_loading.py'}::Beam")
    model = build(reference, {"size": 8, "text": 4}, Authors(reference))
    assert [tuple(one.shape) for one in model.parameters()][::2] == [(4, 8), (4, 8)]


PACKED = """
import torch
from torch import nn

import flash_attn
import flash_attn.layers.rotary
import no_such_configs


class Beam(nn.Module):
    def __init__(self, config):
        super().__init__()
        if isinstance(config, dict):
            config = no_such_configs.create(config)
        self.proj = nn.Linear(config.model.width, 3 * config.model.width)

    def forward(self, x, t):
        qkv = self.proj(x).unflatten(-1, (3, 2, -1))
        angles = torch.arange(x.shape[1])[:, None] * torch.ones(qkv.shape[-1] // 2)
        qkv = flash_attn.layers.rotary.apply_rotary_emb_qkv_(qkv, angles.cos(), angles.sin())
        return flash_attn.flash_attn_qkvpacked_func(qkv).flatten(-2)
"""


def test_parts_of_a_package_that_is_missing_are_there_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "beam.py").write_text(PACKED)
    reference = find_reference(f"{tmp_path}::Beam")
    authors = Authors(reference)
    model = build(reference, {"width": 8}, authors)

    assert model(torch.ones(1, 5, 8), 0).shape == (1, 5, 8)
    assert [*authors.used] == ["flash_attn"]


LAZY = """
import importlib

_PARTS = {"Warm": "warm"}


def __getattr__(name):
    if name in _PARTS:
        return getattr(importlib.import_module(f".{_PARTS[name]}", __name__), name)
    raise AttributeError(name)
"""
ASKS = """
import torch
from torch import nn

from . import parts


class Lamp(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.warm = parts.Warm(dim, dim)

    def forward(self, x, t):
        assert x.device.type == "cuda" and x.dim() == 2
        assert x.is_cuda
        assert x.dtype in [torch.float16, torch.bfloat16]
        return self.warm(x)
"""


def test_parts_that_a_package_imports_when_asked_and_no_gpu(tmp_path: Path) -> None:

    parts = tmp_path / "lamp" / "parts"
    parts.mkdir(parents=True)
    (parts.parent / "__init__.py").write_text("")
    (parts / "__init__.py").write_text(LAZY)
    (parts / "warm.py").write_text("from torch import nn\n\n\nclass Warm(nn.Linear):\n    pass\n")
    (parts.parent / "model.py").write_text(ASKS)
    reference = find_reference(f"{parts.parent / 'model.py'}::Lamp")
    authors = Authors(reference)
    try:
        model = authors.get(reference.cls.source.module, "Lamp")()
        assert model(torch.zeros(2, 8), 0).shape == (2, 8)
        with pytest.raises(AssertionError):
            model(torch.zeros(1, 2, 8), 0)
    finally:
        authors.forget()


@pytest.mark.parametrize("binds", ["from .glow import glow\n", ""])
def test_a_package_may_bind_a_function_by_the_name_of_its_module(tmp_path: Path, binds: str) -> None:
    parts = tmp_path / "shine" / "parts"
    parts.mkdir(parents=True)
    (parts / "__init__.py").write_text(binds)
    (parts / "glow.py").write_text("def glow(x):\n    return 2 * x\n")
    text = "from torch import nn\n\nfrom shine.parts import glow\n\n\nclass Shine(nn.Module):\n"
    text += "    def forward(self, x, t):\n"
    (tmp_path / "README.md").write_text("")
    (parts.parent / "model.py").write_text(f"{text}        return {'glow' if binds else 'glow.glow'}(x)\n")
    reference = find_reference(f"{tmp_path}/shine/model.py::Shine")
    authors = Authors(reference)
    try:
        assert authors.get(reference.cls.source.module, "Shine")()(3, 0) == 6
    finally:
        authors.forget()


OF_BEFORE = """
from dataclasses import dataclass

from torch import nn


@dataclass
class Sizes:
    dim: int


SMALL = Sizes(dim=4)
FORMER = Sizes(dim=8, depth=2)


class Net(nn.Module):
    def __init__(self, dim=8, former=False):
        super().__init__()
        self.layer = nn.Linear(dim, (FORMER.depth() if former else SMALL).dim)

    def forward(self, x, t):
        return self.layer(x)
"""


def test_a_value_that_a_module_cannot_make_matters_where_it_is_used(tmp_path: Path) -> None:
    (tmp_path / "net_of_before.py").write_text(OF_BEFORE)
    reference = find_reference(f"{tmp_path}/net_of_before.py::Net")
    authors = Authors(reference)

    assert build(reference, {"dim": 6}, authors).get_parameter("layer.weight").shape == (4, 6)
    with pytest.raises(ImportError, match=r"net_of_before.FORMER.depth cannot be imported: TypeError: .*'depth'"):
        build(reference, {"dim": 6, "former": True}, authors)


def test_a_model_with_empty_weights_is_not_made(tmp_path: Path) -> None:
    text = "from torch import nn\n\n\nclass Net(nn.Module):\n    def __init__(self, dim=8, size=4):\n"
    text += "        super().__init__()\n        self.layer = nn.Linear(dim, dim // size)\n"
    (tmp_path / "net_of_lanterns.py").write_text(
        text + "\n    def forward(self, x, t):\n        return self.layer(x)\n"
    )
    reference = find_reference(f"{tmp_path}/net_of_lanterns.py::Net")

    assert build(reference, {"dim": 8, "size": 4}, Authors(reference)).get_parameter("layer.weight").shape == (2, 8)
    with pytest.raises(BrokenReference, match="has no elements"):
        build(reference, {"dim": 8, "size": 9}, Authors(reference))


@pytest.mark.parametrize(("error", "loads"), [
    ("OSError(\"We couldn't connect to 'https://huggingface.co'\")", True), ("ValueError('odd')", False),
])  # fmt: skip
def test_a_constructor_that_loads_a_model_by_name_is_told_apart(tmp_path: Path, error: str, loads: bool) -> None:
    text = "from torch import nn\n\n\nclass Net(nn.Module):\n    def __init__(self, dim=8):\n        raise "
    (tmp_path / "net_of_hubs.py").write_text(f"{text}{error}\n\n    def forward(self, x, t):\n        return x\n")
    reference = find_reference(f"{tmp_path}/net_of_hubs.py::Net")
    with pytest.raises(BrokenReference) as raised:
        build(reference, {}, Authors(reference))
    assert ("loads a model by name" in raised.value.hint) is loads
    assert raised.value.message.endswith("(net_of_hubs.py:6)")


def test_an_extension_is_not_compiled_and_cannot_be_called() -> None:
    from torch.utils import cpp_extension

    from omni_kit.targets.references.on_cpu import stay_on_cpu

    stay_on_cpu()
    made = cpp_extension.load("upsampled", sources=["no_such_file.cu"])
    with pytest.raises(NotImplementedError, match=r"upsampled.run is compiled for a GPU"):
        made.run(1)


def test_a_kernel_that_authors_choose_gives_way_to_one_of_the_cpu() -> None:
    import torch
    from torch.nn.functional import scaled_dot_product_attention

    from omni_kit.targets.references.on_cpu import stay_on_cpu

    stay_on_cpu()
    assert all(hasattr(one, "__wrapped__") for one in (torch.nn.attention.sdpa_kernel, torch.backends.cuda.sdp_kernel))
    heads = torch.ones(1, 2, 4, 8)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.CUDNN_ATTENTION):
        assert scaled_dot_product_attention(heads, heads, heads).shape == heads.shape
    with torch.backends.cuda.sdp_kernel(enable_flash=False, enable_math=False, enable_mem_efficient=True):
        assert scaled_dot_product_attention(heads, heads, heads).shape == heads.shape


CHOOSING = """
from dataclasses import dataclass

import torch
from torch import nn

from bodies_of_nobody import Body


@dataclass
class Config:
    width: int = 8
    saves: bool = False


class Lantern(nn.Module):
    def __init__(self, channels, config: Config):
        super().__init__()
        self.config = config
        self.body = Body()
        self.proj = nn.Linear(channels, config.width)
        if self.config.saves:
            self.forward = self.saving
        else:
            self.forward = self.plainly

    def plainly(self, x, t):
        return self.proj(x)

    def saving(self, x, t):
        return -self.proj(x)
"""


def test_a_dataclass_among_arguments_an_assigned_forward_and_a_helper(tmp_path: Path) -> None:
    (tmp_path / "choosing.py").write_text(CHOOSING)
    reference = find_reference(f"{tmp_path}/choosing.py::Lantern")
    authors = Authors(reference)
    x = torch.ones(1, 3)
    plain, saving = (build(reference, {"channels": 3, "width": 4, "saves": saves}, authors) for saves in (False, True))
    saving.load_state_dict(plain.state_dict())
    torch.testing.assert_close(saving(x, 0), -plain(x, 0))
    assert "x" in vars(type(plain))["forward"].__code__.co_varnames
    assert [*authors.left_out] == ["self.body, which needs bodies_of_nobody"]


CASTS = """
import torch
from torch import nn


class Warm(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.layer = nn.Linear(dim, dim)
        self.also = nn.Linear(dim, dim)

    def forward(self, x, t, dtype=torch.bfloat16):
        x = self.layer(x).{cast}
        return self.also(x.to(self.also.weight.dtype) if x.dim() > 2 else x)
"""


@pytest.mark.parametrize(
    "cast", ["to(torch.bfloat16)", "bfloat16()", "to(dtype=torch.bfloat16)", "type(torch.bfloat16)"]
)
def test_a_cast_to_half_precision_follows_the_model(cast: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"dim": 8}')
    (tmp_path / "warm_casts.py").write_text(CASTS.format(cast=cast))
    builder = RepositoryBuilder()
    builder.open({"reference": f"{tmp_path}/warm_casts.py::Warm"})
    model = builder._built(tmp_path / "config.json")
    with torch.no_grad():
        assert model(torch.ones(2, 8), 0).dtype == torch.float32
        assert model.bfloat16()(torch.ones(2, 8, dtype=torch.bfloat16), 0).dtype == torch.bfloat16
        assert model.float()(torch.ones(2, 8), 0).dtype == torch.float32
        assert torch.zeros(1).bfloat16().dtype == torch.bfloat16  # only in the authors' files


FILLED = """from torch import nn

from settings_of_lamps import hparams


class Lamp(nn.Module):
    def __init__(self, mels=8):
        super().__init__()
        self.proj = nn.Linear(mels, hparams["width"], bias=hparams["bias"])

    def forward(self, x, t):
        return self.proj(x)
"""


def test_a_class_is_made_with_settings_that_a_program_would_fill_in(tmp_path: Path) -> None:
    (tmp_path / "settings_of_lamps.py").write_text("hparams = {}\n")
    (tmp_path / "lamp_of_settings.py").write_text(FILLED)
    found = find_reference(f"{tmp_path}/lamp_of_settings.py::Lamp")
    authors = Authors(found)
    try:
        for width in (4, 6):
            model = build(found, {"width": width, "bias": False, "mels": 3}, authors)
            assert {name: [*one.shape] for name, one in model.named_parameters()} == {"proj.weight": [width, 3]}
    finally:
        authors.forget()


IN_SECTIONS = """from torch import nn


class Lamp(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.proj = nn.Linear(config.bulb.width, config.shade.width)
        self.gate = config.bulb.gate if hasattr(config.bulb, "gate") else "shut"

    def forward(self, x, t):
        return self.proj(x)
"""


@pytest.mark.parametrize(("given", "gate"), [({"gate": "open"}, "open"), ({"gate": None}, "shut"), ({}, "shut")])
def test_each_section_has_its_own_field_of_a_name_and_null_is_absent(
    given: dict[str, Any], gate: str, tmp_path: Path
) -> None:
    (tmp_path / "lamp_in_sections.py").write_text(IN_SECTIONS)
    found = find_reference(f"{tmp_path}/lamp_in_sections.py::Lamp")
    authors = Authors(found)
    try:
        model = build(found, {"width": 3, "shade_width": 5, **given}, authors)
        assert [*model.get_parameter("proj.weight").shape] == [5, 3]
        assert model.gate == gate
    finally:
        authors.forget()


def test_settings_that_parts_read_too_are_named(tmp_path: Path) -> None:
    (tmp_path / "settings_of_lamps.py").write_text("hparams = {}\n")
    part = "class Part(nn.Linear):\n    def __init__(self):\n        super().__init__(hparams['width'], 2)\n\n\n"
    text = FILLED.replace("class Lamp", f"{part}class Lamp").replace("nn.Linear(mels", "Part() or nn.Linear(mels")
    (tmp_path / "lamp_of_parts.py").write_text(text)
    found = find_reference(f"{tmp_path}/lamp_of_parts.py::Lamp")
    authors = Authors(found)
    try:
        with pytest.raises(BrokenReference, match=r"\(\S*lamp_of_parts\.py:8\)") as caught:
            build(found, {"mels": 3}, authors)
        assert "reads hparams, which a program fills in" in caught.value.hint
        assert str(tmp_path) not in caught.value.message
    finally:
        authors.forget()


def test_a_placeholder_has_no_items() -> None:
    """Code that unpacks one ends."""
    missing = Missing("absent", None)  # type: ignore[arg-type]
    missing["codec"] = str  # a file registers something with the package
    assert [*missing] == []


def test_a_placeholder_logs_nothing_and_raises_nothing(repository: Path) -> None:
    authors = Authors(find_reference(f"{repository}::Lantern"))
    assert Missing("no_such_package.log", authors).debug("made") is None
    with pytest.raises(MissingRequirement):
        Missing("no_such_package.log", authors).made("made")


def test_code_that_asks_for_a_group_finds_this_process_alone() -> None:
    from torch import distributed

    from omni_kit.targets.references.one_process import leave_group, run_in_one_process

    run_in_one_process()
    assert not distributed.is_initialized()  # until somebody asks
    assert distributed.get_world_size() == 1
    parts = [torch.zeros(2)]
    distributed.all_gather(parts, torch.ones(2))
    assert parts[0].tolist() == [1, 1]
    leave_group()
    assert not distributed.is_initialized()
