"""A checkpoint that training saved with torch.distributed.checkpoint goes on under the newer names."""

import os
import pickle
import resource
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from omni_kit.convert import apply_renames
from omni_kit.errors import BadInput, Refusal

MAPS = {"small": {"layers.*.gate.weight": "layers.*.router.weight"}}
Save = Callable[..., Path]


def model(gate: str) -> Any:
    """Two layers, of which one parameter is called `gate`."""
    import torch

    layers = [torch.nn.ModuleDict({gate: torch.nn.Linear(3, 3, bias=False), "up": torch.nn.Linear(3, 3)}) for _ in "ab"]
    return torch.nn.ModuleDict({"layers": torch.nn.ModuleList(layers)})


def trained(gate: str, seed: int) -> tuple[Any, Any]:
    """The model and its optimizer after a step."""
    import torch

    torch.manual_seed(seed)
    made = model(gate)
    optimizer = torch.optim.AdamW(made.parameters())
    x = torch.ones(2, 3)
    for layer in made["layers"]:
        x = layer["up"](layer[gate](x))
    x.square().sum().backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    return made, optimizer


def state(made: Any, optimizer: Any, flat: bool) -> dict[str, Any]:
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, get_optimizer_state_dict

    options = StateDictOptions(flatten_optimizer_state_dict=flat)
    return {
        "model": get_model_state_dict(made),
        "optimizer": get_optimizer_state_dict(made, optimizer, options=options),
    }


@pytest.fixture
def save(tmp_path: Path) -> Save:
    """Saves a state as a trainer does, with a file of its own beside it."""

    def make(saved: dict[str, Any], **more: Any) -> Path:
        import torch.distributed.checkpoint as dcp

        place = tmp_path / "step_1"
        dcp.save(saved, checkpoint_id=place, no_dist=True, **more)
        (place / "extra_state").mkdir()
        (place / "extra_state" / "rank_0.pt").write_bytes(b"nobody opens it")
        return place

    return make


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("flat", [False, True])
def test_training_goes_on(flat: bool, save: Save, tmp_path: Path) -> None:
    import torch
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict, set_optimizer_state_dict

    before, optimizer = trained("gate", 0)
    source = save(state(before, optimizer, flat))
    done = apply_renames(str(source), MAPS, tmp_path / "out")
    assert (done.form, done.missing, done.keys.renamed > 4) == ("dcp", (), True)

    after, fresh = trained("router", 1)
    loaded = state(after, fresh, flat)
    dcp.load(loaded, checkpoint_id=tmp_path / "out", no_dist=True)
    options = StateDictOptions(flatten_optimizer_state_dict=flat)
    set_model_state_dict(after, loaded["model"])
    set_optimizer_state_dict(after, fresh, loaded["optimizer"], options=options)
    for one, other in zip(before.parameters(), after.parameters(), strict=True):
        assert torch.equal(one, other)
        for name, value in optimizer.state[one].items():
            assert torch.equal(value, fresh.state[other][name]), name
    if not flat:
        names = [name for group in loaded["optimizer"]["param_groups"] for name in group["params"]]
        assert names == [name for name, _ in after.named_parameters()]


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_files_stay_as_they_are(save: Save, tmp_path: Path) -> None:
    source = save(state(*trained("gate", 0), False))
    (source / "model.safetensors").write_bytes(b"old names")
    done = apply_renames(str(source), MAPS, tmp_path / "out")
    assert done.notes == ("left behind: model.safetensors",)
    for name in ("__0_0.distcp", "extra_state/rank_0.pt"):
        assert (tmp_path / "out" / name).read_bytes() == (source / name).read_bytes()
    again = apply_renames(
        str(tmp_path / "out"), {"back": {new: old for old, new in MAPS["small"].items()}}, tmp_path / "2"
    )
    assert again.keys == done.keys
    assert {file.name for file in (tmp_path / "2").glob("__renamed*")} == {"__renamed_0.distcp", "__renamed_1.distcp"}


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_what_is_in_doubt_is_not_written(save: Save, tmp_path: Path) -> None:
    source = save(state(*trained("gate", 0), False))
    for maps, reason in (
        ({"small": {"layers.*.down.weight": "layers.*.out.weight"}}, "none of the names that changed"),
        (
            {"small": {"layers.*.gate.weight": "layers.*.up.weight"}},
            "would both be renamed to model.layers.0.up.weight",
        ),
    ):
        with pytest.raises(BadInput, match=reason):
            apply_renames(str(source), maps, tmp_path / "out")
    with (source / "__0_0.distcp").open("r+b") as stream:
        stream.truncate(1000)
    with pytest.raises(BadInput, match="missing or too short"):
        apply_renames(str(source), MAPS, tmp_path / "out")
    assert [place.name for place in tmp_path.iterdir()] == ["step_1"]


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_what_was_begun_goes_when_copying_fails(save: Save, tmp_path: Path) -> None:
    """A pipe, which no copy can be made of, comes after the files of tensors."""
    source = save(state(*trained("gate", 0), False))
    os.mkfifo(source / "pipe")
    with pytest.raises(BadInput, match="pipe"):
        apply_renames(str(source), MAPS, tmp_path / "out")
    assert [place.name for place in tmp_path.iterdir()] == ["step_1"]
    (source / "pipe").unlink()
    assert apply_renames(str(source), MAPS, tmp_path / "out").written


class Attack:
    """Runs a command where it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.mark),)


def test_metadata_runs_nothing(tmp_path: Path) -> None:
    source, mark = tmp_path / "source", tmp_path / "ran"
    source.mkdir()
    named = (pickle.dumps(shutil.rmtree), b"ctorch\nload\n.", b"ctorch.serialization\nos\n.", b"cbuiltins\neval\n.")
    for content in (pickle.dumps(Attack(mark)), *named, b"", b"\x80\x04damaged", pickle.dumps({"a": 1})):
        (source / ".metadata").write_bytes(content)
        with pytest.raises(BadInput, match=r"\.metadata"):
            apply_renames(str(source), MAPS, tmp_path / "out")
    assert not mark.exists()
    pickle.loads(pickle.dumps(Attack(mark)))  # whoever trusts it, runs it
    assert mark.exists()


_CLASS = b"\x80\x04ctorch.distributed.checkpoint.metadata\nMetadata\n"
# Each tuple holds the one before it twice: hashing the last one takes 2 ** 60 steps.
_TUPLES = b"\x80\x04}(K\x01\x85\x94" + b"".join(b"h%ch%c\x86\x94" % (number, number) for number in range(60))


@pytest.mark.parametrize("content", [
    pytest.param(_CLASS + b"N}\x8c\x09storage_dK\x01s\x86b.", id="changes a class"),
    pytest.param(b"\x80\x04Kar\xff\xff\xff\x1f.", id="a memo of 4 GB"),
    pytest.param(b"\x80\x04\x96\x00\x00\x00\x00\x01\x00\x00\x00.", id="an array of 4 GB"),
    pytest.param(b"\x80\x04\x8d\x00\x00\x00\x00\x01\x00\x00\x00.", id="a text of 4 GB"),
    pytest.param(b"\x80\x04\x95\x00\x00\x00\x00\x01\x00\x00\x00.", id="a frame of 4 GB"),
    pytest.param(b"\x80\x04X\xff\xff\xff\x7f.", id="a text of 2 GB"),
    pytest.param(_TUPLES + b"K\x01u.", id="a key that takes for ever"),
    pytest.param(b"ctorch\nfloat32\n(tR.", id="calls what is no class"),
])  # fmt: skip
def test_metadata_takes_no_more_than_it_is_long(content: bytes, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / ".metadata").write_bytes(content)
    from torch.distributed.checkpoint.metadata import Metadata

    before = dict(vars(Metadata))
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(BadInput, match=r"\.metadata"):
        apply_renames(str(source), MAPS, tmp_path / "out")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - held < 100_000  # KiB
    assert dict(vars(Metadata)) == before


@pytest.mark.parametrize("bad", [{"offset": -1}, {"length": -1}, {"offset": "0"}, {"length": None}])
def test_places_that_are_none(bad: dict[str, Any], tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "a.distcp").write_bytes(b"1")
    from torch.distributed.checkpoint.filesystem import _StorageInfo
    from torch.distributed.checkpoint.metadata import BytesStorageMetadata, Metadata, MetadataIndex

    place = _StorageInfo(**{"relative_path": "a.distcp", "offset": 0, "length": 1, **bad})
    told = Metadata({"a": BytesStorageMetadata()}, storage_data={MetadataIndex("a"): place})
    (source / ".metadata").write_bytes(pickle.dumps(told))
    with pytest.raises(BadInput, match="metadata"):
        apply_renames(str(source), MAPS, tmp_path / "out")


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_values_run_nothing(save: Save, tmp_path: Path) -> None:
    """A value with an old name in it is opened as weights are; one without is not opened."""
    mark = tmp_path / "layers.0.gate.weight"
    saved = {**state(*trained("gate", 0), False), "extra": Attack(mark)}
    source = save(saved)
    with pytest.raises(Refusal, match="extra contains parameter names"):
        apply_renames(str(source), MAPS, tmp_path / "out")
    assert not mark.exists()
    shutil.rmtree(source)
    source = save({**saved, "extra": Attack(tmp_path / "ran")})
    apply_renames(str(source), MAPS, tmp_path / "out")
    assert not (tmp_path / "ran").exists()
