"""Whole runs: what comes along, what is refused, what is said, and memory."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from omni_kit.convert import convert
from omni_kit.convert.destination import Destination
from omni_kit.errors import BadInput
from tests.conftest import run_cli
from tests.convert.conftest import Stored, Toys, assert_equal, contents, load

# a small process in between: the memory that a process is charged with begins with its parent's
MEASURED = """
import os, subprocess, sys
process = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL)
_, status, usage = os.wait4(process.pid, 0)
print(usage.ru_maxrss)
sys.exit(status)
"""


def test_the_contract(toy: Toys, tmp_path: Path) -> None:
    code, said = run_cli("convert", str(toy("qwen3_moe")), str(tmp_path / "out"), "--to", "canonical", "--verify")
    assert (code, said["schema"], said["ok"], said["verified"], said["resumed"]) == (
        0,
        "omni-kit/convert/1",
        True,
        True,
        False,
    )
    before, after = load(toy("qwen3_moe")), load(tmp_path / "out")
    assert said["tensors"] == {
        "read": len(before),
        "written": len(after),
        "passed_through": len(after) - 6,
        "converted": 6,
    }
    assert said["bytes"] == sum(tensor.nbytes for tensor in after.values())
    assert said["shards"] == 1
    assert said["peak_rss_bytes"] > 10**7
    assert said["seconds"] > 0


def test_human_output(toy: Toys, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from omni_kit.cli import main

    assert main(["convert", str(toy("qwen3_moe")), str(tmp_path / "out"), "--to", "canonical"]) == 0
    out = capsys.readouterr().out
    assert "36 tensors in 1 file" in out
    assert "84 read, 30 passed through, 6 converted" in out


def test_threads_and_sizes_do_not_change_the_content(toy: Toys, tmp_path: Path) -> None:
    for jobs, size in ((1, "1"), (4, "40KB"), (2, "5GB")):
        convert(str(toy("qwen3_moe")), tmp_path / f"{jobs}", to="canonical", jobs=jobs, shard_size=size)
    assert_equal(load(tmp_path / "1"), load(tmp_path / "2"))
    assert_equal(load(tmp_path / "4"), load(tmp_path / "2"))
    convert(str(toy("qwen3_moe")), tmp_path / "again", to="canonical", jobs=1, shard_size="40KB")
    assert contents(tmp_path / "again") == contents(tmp_path / "4")


def test_transformers_loads_the_result(toy: Toys, tmp_path: Path) -> None:
    """Sharded, with its index, in the form in memory: nothing is missing, unexpected or newly initialised."""
    from transformers import AutoModelForCausalLM

    convert(str(toy("mixtral")), tmp_path / "out", to="memory", shard_size="60KB")
    _, info = AutoModelForCausalLM.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not any(info[what] for what in ("missing_keys", "unexpected_keys", "mismatched_keys"))


def test_other_files_come_along_and_scripts_do_not(toy: Toys, tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(toy("qwen3_moe"), source)
    texts = ["tokenizer.json", "vocab.txt", "merges.txt", "chat_template.jinja", "README.md", "a.model", "b.tiktoken"]
    for name in texts:
        (source / name).write_bytes(b"\\x00\\xff" + name.encode())
    (source / "modeling_x.py").write_text("raise SystemExit")
    (source / "extra").mkdir()
    (source / "pytorch_model.bin").write_bytes(b"pickle")
    done = convert(str(source), tmp_path / "out", to="canonical")
    for name in (*texts, "config.json", "generation_config.json"):
        assert (tmp_path / "out" / name).read_bytes() == (source / name).read_bytes()
    assert {file.name for file in (tmp_path / "out").iterdir()} == {
        *texts, "config.json", "generation_config.json", "model.safetensors",
    }  # fmt: skip
    assert "left behind: extra, modeling_x.py, pytorch_model.bin" in done.notes


def test_links_as_in_a_download_cache(toy: Toys, tmp_path: Path) -> None:
    source = tmp_path / "snapshot"
    source.mkdir()
    for file in toy("qwen3_moe").iterdir():
        (source / file.name).symlink_to(file)
    convert(str(source), tmp_path / "out", to="hub")
    assert not any(file.is_symlink() for file in (tmp_path / "out").iterdir())
    assert_equal(load(tmp_path / "out"), load(toy("qwen3_moe")))


def test_a_single_file_as_source(toy: Toys, stored: Stored, tmp_path: Path) -> None:
    place = stored("qwen3_moe", load(toy("qwen3_moe")))
    convert(str(place / "model.safetensors"), tmp_path / "out", to="canonical")
    assert (tmp_path / "out" / "config.json").is_file()


def test_a_cast_is_what_transformers_does(toy: Toys, tmp_path: Path) -> None:
    import torch
    from safetensors.torch import load_file
    from transformers import AutoModelForCausalLM

    convert(str(toy("qwen3_moe")), tmp_path / "out", to="canonical", dtype="bfloat16", verify=True)
    model = AutoModelForCausalLM.from_pretrained(toy("qwen3_moe"), dtype=torch.bfloat16)
    found = load_file(tmp_path / "out" / "model.safetensors")
    for name, tensor in model.state_dict().items():
        assert torch.equal(found[name].view(torch.int16), tensor.view(torch.int16)), name


def test_a_cast_of_transposed_columns(toy: Toys, tmp_path: Path) -> None:
    convert(str(toy("gpt_oss")), tmp_path / "exact", to="canonical")
    convert(str(toy("gpt_oss")), tmp_path / "half", to="canonical", dtype="float16", verify=True)
    assert_equal(load(tmp_path / "half"), {n: t.astype(np.float16) for n, t in load(tmp_path / "exact").items()})


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--to", "nowhere"], "unknown form 'nowhere'"),
        (["--to", "hub", "--dtype", "int8"], "unknown dtype 'int8'"),
        (["--to", "hub", "--shard-size", "big"], "is not a valid shard size"),
        (["--to", "hub", "--jobs", "0"], "jobs"),
        ([], "--to"),
    ],
)
def test_bad_arguments(toy: Toys, tmp_path: Path, arguments: list[str], said: str) -> None:
    code, error = run_cli("convert", str(toy("qwen3_moe")), str(tmp_path / "out"), *arguments)
    assert (code, error["schema"], error["ok"]) == (2, "omni-kit/error/1", False)
    assert said in error["error"]
    assert not (tmp_path / "out").exists()


def test_a_model_type_alone_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no safetensors files to convert"):
        convert("qwen3_moe", tmp_path / "out", to="hub")


def test_the_source_as_destination_is_refused(toy: Toys, tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(toy("qwen3_moe"), source)
    before = contents(source)
    for path in (source, tmp_path / "x" / ".." / "source"):
        with pytest.raises(BadInput, match="is the source"):
            convert(str(source), path, to="canonical", resume=True)
    assert contents(source) == before


def test_a_destination_that_is_not_empty_is_refused(toy: Toys, tmp_path: Path) -> None:
    (tmp_path / "note").write_text("mine")
    for resume in (False, True):
        with pytest.raises(BadInput, match="is not empty"):
            convert(str(toy("qwen3_moe")), tmp_path, to="canonical", resume=resume)
    assert contents(tmp_path) == {"note": b"mine"}
    with pytest.raises(BadInput, match="is a file"):
        convert(str(toy("qwen3_moe")), tmp_path / "note", to="canonical")


def test_an_empty_destination_is_used(toy: Toys, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    assert convert(str(toy("llama")), tmp_path / "out", to="hub").tensors.converted == 0


def test_a_truncated_shard_is_refused(toy: Toys, tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(toy("qwen3_moe"), source)
    shard = sorted(source.glob("*.safetensors"))[1]
    shard.write_bytes(shard.read_bytes()[:-1])
    with pytest.raises(BadInput, match="truncated"):
        convert(str(source), tmp_path / "out", to="canonical")
    assert not (tmp_path / "out").exists()


def test_a_full_disk_is_seen_before(toy: Toys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1000))
    with pytest.raises(BadInput, match="has 1000 free"):
        convert(str(toy("qwen3_moe")), tmp_path / "out", to="canonical")
    assert not (tmp_path / "out").exists()


def test_a_failing_disk_is_one_line(toy: Toys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Destination, "finish", fail)
    with pytest.raises(BadInput, match="the conversion stopped: No space left on device"):
        convert(str(toy("qwen3_moe")), tmp_path / "out", to="canonical", shard_size="50KB")
    assert not list((tmp_path / "out").glob("*.safetensors"))
    monkeypatch.undo()
    assert convert(str(toy("qwen3_moe")), tmp_path / "out", to="canonical", shard_size="50KB", resume=True).resumed


@pytest.mark.sweep
def test_memory_stays_far_below_the_checkpoint(tmp_path: Path) -> None:
    """600 MB of which one layer's gate_up_proj is 134 MB; the experts are holes in the file and cost no disk."""
    source = tmp_path / "source"
    source.mkdir()
    names = [
        f"model.layers.{n}.mlp.experts.{e}.{p}_proj.weight"
        for n in range(3)
        for e in range(64)
        for p in ("gate", "up", "down")
    ]
    size = 512 * 1024 * 2
    entries = {
        name: {
            "dtype": "BF16",
            "shape": [1024, 512] if "down" in name else [512, 1024],
            "data_offsets": [i * size, (i + 1) * size],
        }
        for i, name in enumerate(names)
    }
    header = json.dumps(entries).encode()
    with (source / "model.safetensors").open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(8 + len(header) + len(names) * size)
    (source / "config.json").write_text(
        json.dumps({"model_type": "qwen3_moe", "num_experts": 64, "num_hidden_layers": 3})
    )
    for number, options in enumerate((["--to", "canonical", "--dtype", "float16"],)):
        command = [sys.executable, "-m", "omni_kit", "convert", str(source), str(tmp_path / f"out{number}"), *options]
        done = subprocess.run([sys.executable, "-c", MEASURED, *command], capture_output=True, text=True, check=True)
        assert int(done.stdout) * 1024 < 150 * 2**20
        shutil.rmtree(tmp_path / f"out{number}")


def test_the_first_import_brings_no_torch() -> None:
    code = (
        "import sys, omni_kit.convert, omni_kit.cli; sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_after_a_cast_the_config_names_the_new_dtype(toy: Toys, tmp_path: Path) -> None:
    """Or loading would cast back, silently."""
    given = json.loads((toy("qwen3_moe") / "config.json").read_text(encoding="utf-8"))
    convert(str(toy("qwen3_moe")), tmp_path / "half", to="hub", dtype="bfloat16")
    assert json.loads((tmp_path / "half" / "config.json").read_text(encoding="utf-8")) == {**given, "dtype": "bfloat16"}
    convert(str(toy("qwen3_moe")), tmp_path / "same", to="hub")
    assert json.loads((tmp_path / "same" / "config.json").read_text(encoding="utf-8")) == given


def test_two_processes_do_not_write_into_one_directory(toy: Toys, tmp_path: Path) -> None:
    import filelock

    with filelock.FileLock(tmp_path / ".out.omni-kit-convert.lock"):
        with pytest.raises(BadInput, match="another process is converting into"):
            convert(str(toy("qwen3_moe")), tmp_path / "out", to="canonical")
        assert not (tmp_path / "out").exists()
    convert(str(toy("qwen3_moe")), tmp_path / "out", to="canonical")
    assert [item.name for item in tmp_path.iterdir()] == ["out"]
