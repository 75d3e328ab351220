"""patchgen drift --apply: what is found to be called otherwise is renamed in a saved checkpoint."""

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from omni_kit.cli import main
from omni_kit.pysource.library import find_library
from omni_kit.resources import resource_dir
from tests.cli.test_schemas import validate
from tests.conftest import run_cli

CONFIG = resource_dir("reference_models") / "veomni" / "olmoe" / "olmoe_gpu_patch_gen_config.py"
OLD, NEW = "model.layers.3.mlp.gate.weight", "model.layers.3.mlp.router.weight"


@pytest.fixture
def renamed(newer: Path) -> Path:
    """A version in which the gate is a router."""
    file = newer / "models" / "olmoe" / "modeling_olmoe.py"
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace("self.gate = ", "self.router = ").replace("self.gate(", "self.router("))
    return newer


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A checkpoint with one of the gates."""
    place = tmp_path / "saved"
    place.mkdir()
    save_file({OLD: np.arange(6.0), "model.norm.weight": np.ones(2)}, place / "model.safetensors")
    return place


def drift(newer: Path, *more: str) -> list[str]:
    before = str(find_library("transformers").root)
    return ["patchgen", "drift", str(CONFIG), "--from", before, "--to", str(newer), *more]


def test_the_map_is_applied(renamed: Path, saved: Path, tmp_path: Path) -> None:
    """Exit 0: under these names it loads, whatever became of the patches."""
    apply = ("--apply", str(saved), "--into", str(tmp_path / "out"))
    code, dry = run_cli(*drift(renamed, *apply, "--dry-run"))
    assert (code, dry["applied"]["written"], (tmp_path / "out").exists()) == (0, False, False)
    code, data = run_cli(*drift(renamed, *apply))
    assert (code, data["ok"]) == (0, True)
    validate(data)
    assert data["applied"]["keys"] == {"read": 2, "renamed": 1, "copied": 1} == dry["applied"]["keys"]
    assert (data["applied"]["model_type"], data["applied"]["form"]) == ("olmoe", "safetensors")
    assert load_file(tmp_path / "out" / "model.safetensors")[NEW].tolist() == list(range(6))


def test_what_the_map_does_not_settle_is_exit_1(renamed: Path, saved: Path, tmp_path: Path) -> None:
    file = renamed / "models" / "olmoe" / "modeling_olmoe.py"
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace("self.lm_head = nn.Linear(config.", "self.lm_head = nn.Linear(2 * config.", 1))
    code, data = run_cli(*drift(renamed, "--apply", str(saved), "--into", str(tmp_path / "out")))
    assert (code, data["applied"]["written"]) == (1, True)
    assert data["keys"][0]["reshaped"]


def test_the_same_names_leave_nothing_to_apply(newer: Path, saved: Path, tmp_path: Path) -> None:
    code, data = run_cli(*drift(newer, "--apply", str(saved), "--into", str(tmp_path / "out")))
    assert (code, data["error"]) == (2, "no parameter was renamed in the newer version")
    assert not (tmp_path / "out").exists()


def test_a_person_reads_the_counts(
    renamed: Path, saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(drift(renamed, "--apply", str(saved), "--into", str(tmp_path / "out"))) == 0
    assert "1 of 2 keys renamed as olmoe's, 1 copied" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--into", "out"), "require --apply"),
        (("--dry-run",), "require --apply"),
        (("--apply", "saved", "--from", "old"), "writes a new checkpoint"),
        (("--apply", "saved", "--into", "out"), "needs both versions"),
    ],
)
def test_options_that_stand_alone(options: tuple[str, ...], reason: str) -> None:
    code, data = run_cli("patchgen", "drift", str(CONFIG), *options)
    assert (code, reason in data["error"], bool(data["hint"])) == (2, True, True), json.dumps(data)


def _written(file: Path, header: object, data: bytes = b"", length: int | None = None) -> None:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    file.write_bytes(struct.pack("<Q", len(text) if length is None else length) + text + data)


def _tensor(begin: int, end: int, shape: list[int], dtype: str = "F32") -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def _index(place: Path, shard: str) -> Path:
    (place / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {OLD: shard}}), encoding="utf-8")
    (place / "model.safetensors").rename(place.parent / "outside.safetensors")
    return place / "model.safetensors.index.json"


def _link(place: Path, target: str) -> None:
    (place / "model.safetensors").unlink()
    (place / "model.safetensors").symlink_to(target)


def _pipe(place: Path) -> None:
    (place / "model.safetensors").unlink()
    os.mkfifo(place / "model.safetensors")


_FOUR = bytes(24)
HOSTILE: dict[str, Callable[[Path], object]] = {
    "a shard above": lambda p: _index(p, "../outside.safetensors"),
    "an absolute shard": lambda p: _index(p, str(p.parent / "outside.safetensors")),
    "a shard that is a directory": lambda p: _index(p, "."),
    "a shard of no name": lambda p: _index(p, ""),
    "a shard with a zero byte": lambda p: _index(p, "a\0b.safetensors"),
    "a shard with control characters": lambda p: _index(p, "a\x1b]0;x\x07\n.safetensors"),
    "an index that is a list": lambda p: _index(p, "a").write_text("[1]"),
    "an index that is deep": lambda p: _index(p, "a").write_text("[" * 100_000),
    "a link that leads nowhere": lambda p: _link(p, "nowhere"),
    "a link to itself": lambda p: _link(p, "model.safetensors"),
    "a link to a device": lambda p: _link(p, "/dev/zero"),
    "a pipe": _pipe,
    "sizes beyond the file": lambda p: _written(p / "model.safetensors", {OLD: _tensor(0, 1 << 40, [1 << 38])}),
    "sizes that overlap": lambda p: _written(
        p / "model.safetensors", {OLD: _tensor(0, 24, [6]), "b": _tensor(0, 24, [6])}, _FOUR
    ),
    "a shape that is another size": lambda p: _written(p / "model.safetensors", {OLD: _tensor(0, 24, [7])}, _FOUR),
    "a negative shape": lambda p: _written(p / "model.safetensors", {OLD: _tensor(0, 24, [-6])}, _FOUR),
    "an endless shape": lambda p: _written(p / "model.safetensors", {OLD: _tensor(0, 24, [1 << 64, 1 << 64])}, _FOUR),
    "a dtype that is none": lambda p: _written(p / "model.safetensors", {OLD: _tensor(0, 24, [6], "F33")}, _FOUR),
    "a header that lies about its length": lambda p: _written(p / "model.safetensors", {}, length=1 << 62),
    "a deep header": lambda p: _written(p / "model.safetensors", b"[" * 100_000),
    "a header of another form": lambda p: _written(p / "model.safetensors", {OLD: 1}),
    "a file that is cut": lambda p: _written(p / "model.safetensors", {OLD: _tensor(0, 24, [6])}, _FOUR[:12]),
    "two keys of one new name": lambda p: _written(
        p / "model.safetensors", {OLD: _tensor(0, 24, [6]), NEW: _tensor(24, 48, [6])}, _FOUR * 2
    ),
}


@pytest.mark.parametrize("how", HOSTILE)
def test_a_hostile_checkpoint_is_refused_in_one_line(renamed: Path, saved: Path, tmp_path: Path, how: str) -> None:
    HOSTILE[how](saved)
    before = {file for file in tmp_path.rglob("*") if not file.is_relative_to(renamed)}
    code, data = run_cli(*drift(renamed, "--apply", str(saved), "--into", str(tmp_path / "out")))
    assert (code, data["schema"]) == (2, "omni-kit/error/1"), data
    assert "\n" not in data["error"]
    assert "omni-kit failed" not in data["error"]
    assert {file for file in tmp_path.rglob("*") if not file.is_relative_to(renamed)} == before


NAMES = [
    "../../evil", "/etc/evil", "a\x1b]0;evil\x07b", "a\nb", "a\u202eb", "<script>alert(1)</script>", "x" * 5_000,
    "\udfff",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_names_of_tensors_are_no_paths_and_reach_no_terminal(
    renamed: Path, saved: Path, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    header = {OLD: _tensor(0, 24, [6]), name: _tensor(24, 48, [6])}
    _written(saved / "model.safetensors", header, bytes(range(48)))
    before = {*tmp_path.rglob("*")}
    assert main(drift(renamed, "--apply", str(saved), "--into", str(tmp_path / "out"))) in {0, 2}
    said = "".join(capsys.readouterr())
    assert not {"\x1b]", "\u202e", "\x07"} & {*said}
    assert {file.relative_to(tmp_path).parts[0] for file in {*tmp_path.rglob("*")} - before} <= {"out"}
