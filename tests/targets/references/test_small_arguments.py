"""Other arguments for a class that takes no toy as it is written down."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from omni_kit.targets.references.authors import Authors
from omni_kit.targets.references.repositories import BrokenReference, RepositoryBuilder, made
from omni_kit.targets.references.small_arguments import as_checked, small_arguments, with_fixed_widths
from omni_kit.toys.batches.denoiser import DenoiserBatchBuilder
from omni_kit.toys.batches.denoiser.sizes import ARGUMENTS
from omni_kit.upstream.repositories.reference import find_reference
from tests.conftest import first

MODEL = """
from typing import Literal, Optional

import torch
from torch import nn


class Net(nn.Module):
    def __init__(
        self,
        in_channels: int = 4,
        out_channels: Optional[int] = None,
        hidden_size: int = 1152,
        decoder_size: int = 1152,
        mode: Literal["fused", "plain"] = "fused",
        norm: str = "batch",
        mlp_ratio: float = 4.0,
        speakers=None,
        text_features=None,
        act=None,
        layers: int = 1,
        steps=(2, 4),
    ):
        super().__init__()
        {needs}
        self.come = nn.Linear(in_channels, hidden_size)
        self.go = nn.Linear(decoder_size, in_channels)

    def forward(self, x, timestep):
        assert getattr(self, "third", 3) % 3 == 0
        come = self.come(x.movedim(1, -1))
        return self.go(self.inner(come) if hasattr(self, "inner") else come).movedim(-1, 1) * timestep.view(-1, 1, 1, 1)
"""
TOY_ = {"in_channels": 6, "out_channels": None, "hidden_size": 80, "decoder_size": 56, "mode": "fused", "norm": "batch"}
TOY: dict[str, Any] = {
    **TOY_,
    "mlp_ratio": 4.0,
    "speakers": None,
    "text_features": None,
    "act": None,
    "layers": 2,
    "steps": [2, 4],
}


def written(place: Path, needs: str = "pass") -> str:
    (place / "model.py").write_text(MODEL.format(needs=needs))
    return f"{place}/model.py::Net"


def test_a_toy_comes_first_as_it_is_and_nothing_comes_twice(tmp_path: Path) -> None:
    found = [*small_arguments(find_reference(written(tmp_path)), TOY)]
    assert found[0] == TOY
    assert all(one not in found[:index] for index, one in enumerate(found))


@pytest.mark.parametrize(("needs", "holds"), first(4, [
    ("out_channels * 2", lambda toy: toy["out_channels"] == 6),
    ("assert hidden_size // 4 % 8 == 0", lambda toy: toy["hidden_size"] == 64),
    ("assert layers % 2 == 1", lambda toy: toy["layers"] == 3),
    ("assert mode == 'plain'", lambda toy: toy["mode"] == "plain"),
    ("self.normed = {'layer': 1}[norm] if norm != 'layer' else 1", lambda toy: toy["norm"] == "layer"),
    ("assert hidden_size == 1152", lambda toy: toy["hidden_size"] == 1152),
    ("assert hidden_size // 4 in (15, 30)", lambda toy: toy["hidden_size"] == 60),
    ("if in_channels != 9: raise ValueError(in_channels)", lambda toy: toy["in_channels"] == 9),
    ("self.inner = nn.Linear(hidden_size, 1152)", lambda toy: toy["decoder_size"] == 1152),
    ("assert int(hidden_size * mlp_ratio) == 3000", lambda toy: toy["mlp_ratio"] == 37.5),
    ("if speakers > 1: raise ValueError(speakers)", lambda toy: toy["speakers"] == 1),
    ("assert act in ['GELU', 'GELU2']", lambda toy: toy["act"] == "GELU"),
    ("speakers * 2\n        assert act == 'GELU'", lambda toy: (toy["speakers"], toy["act"]) == (1, "GELU")),
    ("hidden_size + text_features", lambda toy: toy["text_features"] == 64),
    ("pass", lambda toy: (toy["speakers"], toy["act"]) == (None, None)),
    ("pass", lambda toy: toy["hidden_size"] == toy["decoder_size"]),
    ("if hidden_size % 48 != 0:\n            raise ValueError('no')", lambda toy: toy["hidden_size"] == 96),
    ("if layers > 1: raise IndexError(layers)", lambda toy: toy["layers"] == 1),
    ("pass", lambda toy: toy["layers"] == 2),
    ("if layers % 2 == 0: raise ValueError('no middle')", lambda toy: toy["layers"] == 3),
    ("assert steps[0] == 1 and steps[-1] == 1\n        assert steps[1] == 2", lambda toy: toy["steps"] == [1, 2, 1]),
    ("self.third = hidden_size // 4", lambda toy: toy["hidden_size"] == 96),
]))  # fmt: skip
def test_what_a_class_needs_is_found(tmp_path: Path, needs: str, holds: Callable[[Mapping[str, Any]], bool]) -> None:
    builder = RepositoryBuilder()
    builder.open({"reference": written(tmp_path, needs)})
    (config := tmp_path / "out" / "toy_config.json").parent.mkdir()
    config.write_text(json.dumps({"_reference": written(tmp_path, needs), **TOY}))
    model = builder.make_toy(str(config), DenoiserBatchBuilder())
    assert holds(vars(model)[ARGUMENTS])


def toy_of(place: Path, **toy: Any) -> tuple[nn.Module, RepositoryBuilder]:
    """Return a model that takes pictures as wide as its decoder only, made of a toy, and what made it."""
    given = {"_reference": written(place, "assert speakers != 2"), **TOY, "decoder_size": 80, **toy}
    (config := place / "toy_config.json").write_text(json.dumps(given))
    builder = RepositoryBuilder()
    builder.open({"reference": given["_reference"]})
    model = builder.make_toy(str(config), DenoiserBatchBuilder())
    builder.save_toy(model, place / "made", "hub")
    inputs = {"0.x": torch.ones(1, 6, 4, 4), "0.timestep": torch.ones(1), "0.training_target": torch.ones(1, 6, 4, 4)}
    builder.forward(builder.load(place / "made"), inputs)
    return model, builder


@pytest.mark.parametrize("stated", [{}, {"_inputs": {"x": {"shape": [1, 6, 4, 4]}}}])
def test_a_toy_that_runs_is_taken_as_it_is_stated(tmp_path: Path, stated: dict[str, Any]) -> None:
    model, builder = toy_of(tmp_path, **stated)
    assert {name: vars(model)[ARGUMENTS][name] for name in TOY} == {**TOY, "decoder_size": 80}
    assert not [one for one in builder.notes() if "instead of" in one]


def test_values_that_are_taken_instead_of_the_stated_ones_are_noted(tmp_path: Path) -> None:
    _, builder = toy_of(tmp_path, decoder_size=56)
    assert [one for one in builder.notes() if "instead of" in one] == [
        "the toy that is compared has out_channels=6 instead of null, decoder_size=80 instead of 56: "
        "the authors' class does not run with the values that toy_config.json states"
    ]


def test_next_to_stated_inputs_no_other_values_are_taken(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        toy_of(tmp_path, decoder_size=56, _inputs={"x": {"shape": [1, 6, 4, 4]}})
    with pytest.raises(BrokenReference, match="requires speakers != 2"):
        toy_of(tmp_path, speakers=2, _inputs={"x": {"shape": [1, 6, 4, 4]}})


@pytest.mark.parametrize(("needs", "said"), [("speakers > 1", True), ("assert speakers", False)])
def test_arguments_are_named_that_are_null_where_an_error_is_about_null(tmp_path: Path, needs: str, said: bool) -> None:
    reference = find_reference(written(tmp_path, needs))
    with pytest.raises(BrokenReference) as raised:
        made(reference, {"act": "GELU"}, Authors(reference))
    assert ("where these are null: out_channels, speakers" in raised.value.hint) is said


@pytest.mark.parametrize(("error", "lists"), [
    ("AssertionError: requires x[0] == 1 asserted 2 == 1", [[1, 2, 1], [1, 2, 4, 1]]),
    ("AssertionError: asserted 4 == 1", [[1, 2, 1], [1, 2, 4, 1]]),
    ("AssertionError: asserted 3 == 1", []), ("AssertionError: asserted 2 in [1]", []),
])  # fmt: skip
def test_a_list_gets_the_ends_that_a_check_requires(error: str, lists: list[list[int]]) -> None:
    found = [one["steps"] for one in as_checked({"steps": [2, 4], "layers": 2}, f"{error} (m.py:3)")]
    assert [one for one in found if len(one) > 2] == lists


@pytest.mark.parametrize(("error", "lists"), [("asserted 3 == 2", [[4, 1]]), ("asserted 2 in [3]", [])])
def test_a_list_gets_the_length_that_a_check_requires(error: str, lists: list[list[int]]) -> None:
    found = [one["blocks"] for one in as_checked({"blocks": [4, 1, 1], "widths": [8, 8]}, f"{error} (m.py:3)")]
    assert [one for one in found if len(one) == 2] == lists


@pytest.mark.parametrize(("needs", "said"), [
    ("assert norm in ('layer', )", "AssertionError: requires norm in ('layer',)"),
    ("if norm == 'batch': pass\n        raise NotImplementedError", "NotImplementedError: raise NotImplementedError"),
    ("raise ValueError('why')", "ValueError: why"),
])  # fmt: skip
def test_an_error_of_the_constructor_has_its_condition_and_where_to_state_values(
    tmp_path: Path, needs: str, said: str
) -> None:
    reference = find_reference(written(tmp_path, needs))
    with pytest.raises(BrokenReference) as raised:
        made(reference, {"norm": "batch"}, Authors(reference))
    assert f"{said} (" in raised.value.message
    assert "state values of its constructor in toy_config.json" in raised.value.hint


@pytest.mark.parametrize(("needs", "blamed"), [
    ("speakers > 1", False), ("assert act == 'GELU'", False), ("numpy.not_there", True)
])  # fmt: skip
def test_another_version_is_blamed_for_no_check_of_the_authors(tmp_path: Path, needs: str, blamed: bool) -> None:
    (tmp_path / "requirements.txt").write_text("numpy==0.1\n")
    place = written(tmp_path, needs)
    model = tmp_path / "model.py"
    used = model.read_text().replace("super().__init__()", "super().__init__()\n        numpy.ones(1)")
    model.write_text(f"import numpy\n{used}")
    reference = find_reference(place)
    with pytest.raises(BrokenReference) as raised:
        made(reference, {}, Authors(reference))
    assert ("numpy==0.1" in raised.value.hint) == blamed


@pytest.mark.parametrize("fixed", [
    "cannot be multiplied (9x28 and 512x64)", "size of tensor a (28) must match the size of tensor b (512)",
])  # fmt: skip
def test_a_width_that_forward_finds_fixed_is_tried_after_each_of_the_others(fixed: str, tmp_path: Path) -> None:
    text = "from torch import nn\n\n\nclass Net(nn.Module):\n    def __init__(self, dim=80, text_dim=512):\n"
    text += "        super().__init__()\n\n    def forward(self, x, t):\n        return x\n"
    (tmp_path / "fixed_text_width.py").write_text(text)
    reference = find_reference(f"{tmp_path}/fixed_text_width.py::Net")
    refused: list[tuple[Any, str]] = []
    tried = []
    for values in small_arguments(reference, {"dim": 80, "text_dim": 28}, refused):
        tried.append(values)
        cannot = "dim is not a multiple of 32" if values["dim"] == 80 else fixed
        refused.append((values, cannot))
    first = next(at for at, one in enumerate(tried) if one["dim"] == 64)
    assert tried[first + 1] == {"dim": 64, "text_dim": 512}
    assert tried.index({"dim": 80, "text_dim": 512}) > first  # the published sizes come last


def test_a_size_is_the_multiple_of_another_that_it_is_where_it_is_published(tmp_path: Path) -> None:
    text = "from torch import nn\n\n\nclass Net(nn.Module):\n    def __init__(self, time_dim=256, ids_dim=768):\n"
    (tmp_path / "ids.py").write_text(
        f"{text}        super().__init__()\n\n    def forward(self, x, t):\n        return x\n"
    )
    refused = [({"time_dim": 72, "ids_dim": 88}, "cannot be multiplied (1x72 and 88x256)")]
    reference = find_reference(f"{tmp_path}/ids.py::Net")
    assert [*with_fixed_widths(reference, refused)] == [{"time_dim": 72, "ids_dim": 216}]
    other = [({"time_dim": 64, "ids_dim": 88}, "cannot be multiplied (1x72 and 88x256)")]
    assert not [*with_fixed_widths(reference, other)]


CONFIGURED = """
from torch import nn
from transformers import PretrainedConfig, PreTrainedModel


class NetConfig(PretrainedConfig):
    def __init__(self, width=16, **kwargs):
        self.width = width
        super().__init__(**kwargs)


class Net(PreTrainedModel):
    config_class = NetConfig

    def __init__(self, config):
        super().__init__(config)
        self.proj = nn.Linear(config.width, config.width)

    def forward(self, x, timestep):
        return self.proj(x)
"""


def test_a_pretrained_model_is_made_with_an_object_of_its_config(tmp_path: Path) -> None:
    (tmp_path / "configured.py").write_text(CONFIGURED, encoding="utf-8")
    reference = find_reference(f"{tmp_path}/configured.py::Net")
    model: Any = made(reference, {"width": 4}, Authors(reference))
    assert (type(model.config).__name__, model.proj.in_features) == ("NetConfig", 4)


TABLE = """
from torch import nn


def wide(width):
    return nn.Linear(width, width)


class Net(nn.Module):
    KINDS = {{"large": wide, "small": {small}}}

    def __init__(self, kind="large", width=8):
        super().__init__()
        self.layer = self.KINDS[kind](width)

    def forward(self, x, t):
        return self.layer(x)
"""


def test_other_entries_of_a_table_are_tried(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(TABLE.format(small="nn.Identity"))
    kinds = [one["kind"] for one in small_arguments(find_reference(f"{tmp_path}/model.py::Net"), {"kind": "large"})]
    assert kinds[:2] == ["large", "small"]
    kinds = [one["kind"] for one in small_arguments(find_reference(f"{tmp_path}/model.py::Net"), {"kind": "other"})]
    assert {*kinds} == {"other"}


def test_no_more_arguments_are_looked_for_where_the_surroundings_lack_something(tmp_path: Path) -> None:
    place = written(tmp_path, f"open({str(tmp_path / 'sets')!r}, 'a').write('.')")
    model = tmp_path / "model.py"
    text = model.read_text().replace("import torch\n", "import os\n\nimport torch\n", 1)
    model.write_text(text.replace("        come = self", "        os.environ['NO_SUCH_RANK']\n        come = self"))
    (config := tmp_path / "out" / "toy_config.json").parent.mkdir()
    config.write_text(json.dumps({"_reference": place, **TOY, "decoder_size": 80}))
    builder = RepositoryBuilder()
    builder.open({"reference": place})
    feed = DenoiserBatchBuilder()
    one = builder.make_toy(str(config), feed)
    assert (tmp_path / "sets").read_text() == "." * 8
    refusal = feed.refusal(one, 1)
    assert refusal is not None
    assert "NO_SUCH_RANK" in refusal.message


@pytest.mark.parametrize(("values", "other"), [
    ({"gin_channels": 0, "scale": 0}, [{"gin_channels": 8, "scale": 0}]),
    ({"embed_dim": 64, "mlp_dim": 64}, [{"embed_dim": 64, "mlp_dim": 256}]),
    ({"layers": 0}, []),
    ({"gin_channels": 4}, []),
])  # fmt: skip
def test_a_width_of_zero_becomes_one_where_a_layer_is_empty(
    values: dict[str, Any], other: list[dict[str, Any]], tmp_path: Path
) -> None:
    found = find_reference(written(tmp_path))
    refused: list[tuple[Mapping[str, Any], str]] = []
    variants = small_arguments(found, values, refused)
    assert next(variants) == values
    refused.append((values, "Net cannot be made: ValueError: come.weight has no elements"))
    assert [one for one in variants if one.keys() == values.keys() and one != values][: len(other)] == other
