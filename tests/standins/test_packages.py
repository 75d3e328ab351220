"""Stand-ins beside the packages that they stand in for: the same names, parameters and values.

`make test-standins` installs the packages where nothing else sees them, and runs this file; elsewhere it is skipped.
"""

import importlib
import importlib.metadata
import importlib.util
import inspect
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

from omni_kit.standins import ROOT

# flash_attn, apex, xformers, mmcv, colossalai and transformer_engine need a compiler for CUDA; liger_kernel needs
# triton.
PACKAGES = (
    "timm", "x_transformers", "torchdiffeq", "rotary_embedding_torch", "einx", "easydict", "loguru", "mmengine",
    "fairscale", "einops_exts",
)  # fmt: skip
MODULES = sorted(
    ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for package in PACKAGES
    for file in [*ROOT.glob(f"{package}.py"), *ROOT.glob(f"{package}/**/*.py")]
)


def real(name: str) -> ModuleType:
    """Import a module of the package itself; of timm without what prepares pictures, which needs torchvision."""
    package = name.partition(".")[0]
    spec = None if package in sys.modules else importlib.util.find_spec(package)
    if spec is None and package not in sys.modules:
        assert not os.environ.get("OMNI_KIT_REQUIRE_PACKAGES"), f"{package} is not installed"
        pytest.skip(f"{package} is not installed")
    if package == "timm" and spec is not None:
        for part in (package, f"{package}.models"):
            sys.modules[part] = ModuleType(part)
            sys.modules[part].__path__ = [str(Path(spec.origin or "").parent.joinpath(*part.split(".")[1:]))]
        vars(sys.modules[package])["__version__"] = importlib.metadata.version(package)
        for part in ("timm.data", "torchvision", "torchvision.ops", "torchvision.ops.misc"):
            sys.modules[part] = _Hollow(part)
    return importlib.import_module(name)


class _Hollow(ModuleType):
    """Has every name that a package without pictures imports and does not use."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return nn.Module


def own(name: str) -> ModuleType:
    """Import the stand-in."""
    return importlib.import_module(f"omni_kit.standins.{name}")


def _called(value: Any) -> Iterator[tuple[str, Any]]:
    """The function, or the methods of a class that it writes itself and that authors call."""
    if not inspect.isclass(value):
        yield "", value
        return
    for name, method in vars(value).items():
        if inspect.isfunction(method) and (name in ("__init__", "forward") or not name.startswith("_")):
            yield name, method


@pytest.mark.parametrize(
    "name", [module for module in MODULES if module != "timm" and not module.startswith("timm.models")]
)
def test_every_name_and_parameter_is_the_packages_own(name: str) -> None:
    stand_in, package = own(name), real(name)
    for public, value in vars(stand_in).items():
        if public.startswith("_") or inspect.ismodule(value) or not callable(value):
            continue
        if not getattr(value, "__module__", "").startswith("omni_kit.standins"):
            continue
        theirs = getattr(package, public)
        for method, function in _called(value):
            asked = inspect.signature(getattr(theirs, method) if method else theirs).parameters.values()
            if any(one.kind is inspect.Parameter.VAR_KEYWORD for one in asked):
                continue
            named = [one.name for one in inspect.signature(function).parameters.values() if one.kind not in (2, 4)]
            lacking = {*named} - {one.name for one in asked}
            assert not lacking, f"{name}.{public}.{method} has {lacking}, which the package does not"


LAYERS: list[tuple[str, dict[str, Any], tuple[int, ...]]] = [
    ("Mlp", {"in_features": 12, "hidden_features": 20}, (2, 5, 12)),
    ("GluMlp", {"in_features": 12, "hidden_features": 20}, (2, 5, 12)),
    ("SwiGLU", {"in_features": 12, "hidden_features": 20}, (2, 5, 12)),
    (
        "Attention",
        {"dim": 12, "num_heads": 3, "qkv_bias": True, "qk_norm": True, "norm_layer": nn.LayerNorm},
        (2, 5, 12),
    ),
    ("PatchEmbed", {"img_size": 8, "patch_size": 2, "in_chans": 3, "embed_dim": 12}, (2, 3, 8, 8)),
    ("RmsNorm", {"channels": 12}, (2, 5, 12)),
    ("LayerScale", {"dim": 12}, (2, 5, 12)),
    ("LayerNorm2d", {"num_channels": 12}, (2, 12, 4, 3)),
]


@pytest.mark.parametrize(("name", "given", "shape"), LAYERS, ids=[name for name, _, _ in LAYERS])
def test_layers_are_those_of_timm(name: str, given: dict[str, Any], shape: tuple[int, ...]) -> None:
    theirs = getattr(real("timm.layers"), name)
    ours = getattr(own("timm.layers"), name)
    torch.manual_seed(0)
    one: nn.Module = theirs(**given).eval()
    other: nn.Module = ours(**given).eval()
    other.load_state_dict(one.state_dict())
    x = torch.randn(*shape)
    torch.testing.assert_close(other(x), one(x))


def test_a_block_is_that_of_timm() -> None:
    theirs, ours = (
        package.Block(12, 3, mlp_ratio=2.0, qkv_bias=True, qk_norm=True, init_values=0.1, drop_path=0.1).eval()
        for package in (real("timm.models.vision_transformer"), own("timm.models.vision_transformer"))
    )
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(2, 5, 12)
    torch.testing.assert_close(ours(x), theirs(x))


@pytest.mark.parametrize("xpos", [False, True])
def test_rotary_positions_are_those_of_x_transformers(xpos: bool) -> None:
    theirs = real("x_transformers.x_transformers")
    ours = own("x_transformers.x_transformers")
    x = torch.randn(2, 3, 7, 20)
    turned = []
    for package in (theirs, ours):
        rope = package.RotaryEmbedding(12, use_xpos=xpos)
        turned.append(package.apply_rotary_pos_emb(x, *rope.forward_from_seq_len(7)))
    torch.testing.assert_close(turned[1], turned[0])


@pytest.mark.parametrize("method", ["euler", "midpoint", "heun2"])
def test_steps_along_a_grid_are_those_of_torchdiffeq(method: str) -> None:
    points, start = torch.linspace(0, 1, 5), torch.tensor([[1.0, -2.0]])
    theirs, ours = (
        package.odeint(lambda t, y: t - 0.5 * y, start, points, method=method)
        for package in (real("torchdiffeq"), own("torchdiffeq"))
    )
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("size", [0.25, 0.3])
def test_steps_of_a_size_are_those_of_torchdiffeq(size: float) -> None:
    points, start = torch.tensor([1.0, 0.0]), torch.tensor([[1.0, -2.0]])
    theirs, ours = (
        package.odeint_adjoint(
            lambda t, y: t - 0.5 * y, start, points, method="euler", options={"step_size": size}, adjoint_params=()
        )
        for package in (real("torchdiffeq"), own("torchdiffeq"))
    )
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize(("settings", "dim"), [({}, -2), ({"theta": 500, "freqs_for": "pixel"}, -2), ({}, -3)])
def test_rotary_positions_are_those_of_rotary_embedding_torch(settings: dict[str, Any], dim: int) -> None:
    theirs = real("rotary_embedding_torch").RotaryEmbedding(8, **settings)
    ours = own("rotary_embedding_torch").RotaryEmbedding(8, **settings)
    x = torch.randn(2, 5, 5, 12)
    expected = theirs.rotate_queries_or_keys(x, seq_dim=dim, offset=2)
    torch.testing.assert_close(ours.rotate_queries_or_keys(x, seq_dim=dim, offset=2), expected)
    assert {*dict(ours.named_parameters())} == {*dict(theirs.named_parameters())}
    angles = [one.get_axial_freqs(3, 5, offsets=(1.0, 2.0)) for one in (theirs, ours)]
    torch.testing.assert_close(angles[1], angles[0])


def test_tensors_are_turned_as_rotary_embedding_torch_turns_them() -> None:
    angles = torch.randn(9, 4)
    for given in ({"start_index": 2, "scale": 0.5}, {}):
        for t in (torch.randn(2, 3, 7, 10), torch.randn(3, 7, 10)):
            theirs, ours = (
                package.apply_rotary_emb(angles, t, **given)
                for package in (real("rotary_embedding_torch"), own("rotary_embedding_torch"))
            )
            torch.testing.assert_close(ours, theirs)
    grid, t = torch.randn(3, 5, 4), torch.randn(2, 3, 5, 10)
    theirs, ours = (
        package.apply_rotary_emb(grid, t) for package in (real("rotary_embedding_torch"), own("rotary_embedding_torch"))
    )
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize(
    ("operation", "pattern"),
    [("multiply", "b n, n d -> d b n"), ("add", "b n, n d -> b n d"), ("subtract", "b n, n d -> n d b")],
)
def test_axes_are_aligned_as_einx_aligns_them(operation: str, pattern: str) -> None:
    x, y = torch.randn(2, 3), torch.randn(3, 4)
    theirs, ours = (getattr(package, operation)(pattern, x, y) for package in (real("einx"), own("einx")))
    torch.testing.assert_close(ours, theirs)


def test_a_registry_makes_what_that_of_mmengine_makes() -> None:
    made = []
    for package in (real("mmengine"), own("mmengine")):
        models = package.Registry("lamps_of_a_test")
        models.register_module(name="lamp")(dict)
        made.append((models.build({"type": "lamp", "watts": 40}), models.get("candle")))
    assert made[0] == made[1] == ({"watts": 40}, None)


def test_values_are_attributes_as_in_easydict() -> None:
    theirs, ours = (
        package.EasyDict({"a": {"b": [{"c": 1}]}, "d": 2}, e=3) for package in (real("easydict"), own("easydict"))
    )
    assert (theirs.a.b[0].c, theirs.d, theirs.e, dict(theirs)) == (ours.a.b[0].c, ours.d, ours.e, dict(ours))
