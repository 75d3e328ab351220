"""Constructors that read several configs, and those that call their base's one in two branches."""

from pathlib import Path

import pytest

from omni_kit.errors import Refusal
from omni_kit.pysource.eval import UNKNOWN
from omni_kit.pysource.library import find_library
from omni_kit.targets.diffusers.porting.port import Port, port
from omni_kit.upstream.repositories.reference import Reference, find_reference
from omni_kit.upstream.repositories.timestep import step_of

SECTIONS = """from torch import nn

class Net(nn.Module):
    def __init__(self, sound, model):
        super().__init__()
        self.model = model
        bands = sound["mel"]["bands"]
        width = model["denoiser"]["width"]
        {more}
        self.proj = nn.Linear(bands, width)

    def forward(self, x, t):
        return self.proj(x) * self.model["denoiser"]["scale"] + t
"""


def found_in(folder: Path, text: str) -> Reference:
    (folder / "m.py").write_text(text, encoding="utf-8")
    return find_reference(f"{folder}::Net")


def ported(folder: Path, text: str) -> Port:
    return port(found_in(folder, text), "Tiny", find_library("diffusers"), "diffusers")


def test_items_in_sections_of_several_configs_are_arguments(tmp_path: Path) -> None:
    text = SECTIONS.replace("{more}", "pass")
    namespace = found_in(tmp_path, text).namespace
    assert namespace is not None
    assert namespace.arguments == ("sound", "model")
    assert namespace.sections == {"mel", "denoiser"}
    written = ported(tmp_path, text).text
    assert "def __init__(self, bands, width, scale):" in written
    assert "nn.Linear(bands, width)" in written
    assert '* self.config["scale"]' in written


@pytest.mark.parametrize("more", ["self.bands = model['bands']", "self.mel = model['mel']['size']; print(sound)"])
def test_a_config_that_no_flat_object_can_stand_for_with_the_others_is_none(more: str, tmp_path: Path) -> None:
    namespace = found_in(tmp_path, SECTIONS.replace("{more}", more)).namespace
    assert namespace is not None
    assert len(namespace.arguments) == 1


BRANCHES = """from torch import nn

class Base(nn.Module):
    def __init__(self, channels, width=8, encoder=None):
        super().__init__()
        self.proj = nn.Linear(channels, width)
        self.encoder = nn.Linear(encoder, width) if encoder is not None else None

    def forward(self, x, t):
        return self.proj(x) + t

class Net(Base):
    def __init__(self, text, *args, **kwargs):
        if not text:
            super().__init__({first})
        else:
            super().__init__(*args, **kwargs, encoder=text)
        self.text = text
"""
JOINED = "super().__init__(*args, **kwargs, encoder=None if not text else text)"


def test_a_base_that_is_called_in_two_branches_is_called_once(tmp_path: Path) -> None:
    text = BRANCHES.format(first="*args, **kwargs, encoder=None")
    found = found_in(tmp_path, text)
    assert JOINED in found.cls.source.text
    assert len(found.cls.source.lines) == len(text.split("\n"))
    assert [*found.arguments] == ["text", "channels", "width"]
    written = ported(tmp_path, text)
    assert "super().__init__()" in written.text
    assert not [what for _, what in written.todo if "super()" in what]


@pytest.mark.parametrize("first", ["*args, **kwargs", "text, **kwargs, encoder=None", "4, 8, encoder=None"])
def test_calls_that_differ_in_more_stay(first: str, tmp_path: Path) -> None:
    assert JOINED not in found_in(tmp_path, BRANCHES.format(first=first)).cls.source.text


CONFIG = 'settings = dict(channels=4, width=16, text=32, noise="linear", steps=1000)\n'


def test_a_base_without_more_arguments_gets_no_others(tmp_path: Path) -> None:
    (tmp_path / "settings.py").write_text(CONFIG, encoding="utf-8")
    found = found_in(tmp_path, BRANCHES.format(first="*args, **kwargs, encoder=None"))
    assert [*found.handed_on] == ["channels", "width"]


MAPPED = """from torch import nn

class Net(nn.Module):
    def forward(self, batch):
        return batch["x"] + batch["{step}"]
"""


@pytest.mark.parametrize(("step", "known"), [("timesteps", True), ("other", False)])
def test_a_time_is_found_in_a_mapping(step: str, known: bool, tmp_path: Path) -> None:
    assert bool(step_of(found_in(tmp_path, MAPPED.format(step=step)))[0]) == known


POSITIONAL = """from torch import nn

class Inner(nn.Module):
    def __init__(self, args, width, **kwargs):
        super().__init__()
        self.layer = nn.Linear(width, args.out)

    def forward(self, x, t):
        return self.layer(x)


class Net(Inner):
    def __init__(self, *args, **kwargs):
        self.rate = args[0].rate
        super().__init__(*args, **kwargs)
"""


def test_arguments_that_a_constructor_reads_by_place_alone_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="reads arguments without names"):
        ported(tmp_path, POSITIONAL)


HANDED_ON = """from torch import nn

class Inner(nn.Module):
    def __init__(self, dim, wide=2, **more):
        super().__init__()
        self.layer = nn.Linear(dim, wide)

    def forward(self, x):
        return self.layer(x)


class Net(nn.Module):
    def __init__(self, dim=8, **inner):
        super().__init__()
        {change}
        self.inner = Inner(dim, **inner)

    def forward(self, x, t):
        return self.inner(x) + t
"""


@pytest.mark.parametrize(("change", "kept"), [
    ("inner = {**inner, 'wide': dim}", True), ("inner['wide'] = dim", True), ("inner.update(wide=dim)", True),
    ("assert inner == inner", False), ("dim = inner.get('width', dim)", False),
])  # fmt: skip
def test_arguments_that_a_constructor_adds_to_those_that_it_hands_on_are_handed_on(
    change: str, kept: bool, tmp_path: Path
) -> None:
    text = ported(tmp_path, HANDED_ON.replace("{change}", change)).text
    assert ("Inner(dim, **inner)" in text) is kept


USUAL = """from torch import nn

class Net(nn.Module):
    def __init__(self, width=8, usual={usual}):
        super().__init__()
        self.usual = usual
        self.proj = nn.Linear(width, width)

    def forward(self, x, t):
        return self.proj(x) + t
"""


@pytest.mark.parametrize(("usual", "value"), [
    ("[1 / 1, -(2**-2)]", [1.0, -0.25]), ("4 * (1, 2)", (1, 2) * 4), ("2.5e-1", 0.25),
    ("nn.SiLU", UNKNOWN), ("1 / 0", UNKNOWN), ("[len('a')]", UNKNOWN),
])  # fmt: skip
def test_a_default_in_arithmetic_is_plain_and_any_other_stays_in_the_constructor(
    usual: str, value: object, tmp_path: Path
) -> None:
    text = USUAL.replace("{usual}", usual)
    assert found_in(tmp_path, text).arguments["usual"].default == value
    assert (f"usual={usual}):" in ported(tmp_path, text).text) is (value is not UNKNOWN)
