"""Several processes share one conversion."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from omni_kit.convert import convert
from omni_kit.convert.ranks import Ranks
from omni_kit.errors import BadInput
from tests.convert.conftest import Toys, contents

pytest.importorskip("torch")


def torchrun(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "omni_kit",
    ]  # fmt: skip
    return subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)


@pytest.mark.sweep
def test_two_ranks_write_what_one_process_writes(toy: Toys, tmp_path: Path) -> None:
    source, options = str(toy("qwen3_moe")), ("--to", "canonical", "--shard-size", "50KB")
    done = torchrun("convert", source, str(tmp_path / "two"), *options, "--verify", "--format", "json")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert (said["verified"], said["tensors"]["converted"]) == (True, 6)
    alone = convert(source, tmp_path / "one", to="canonical", shard_size="50KB")
    assert said["shards"] == alone.shards > 2
    assert contents(tmp_path / "two") == contents(tmp_path / "one")


@pytest.mark.sweep
def test_an_error_ends_every_rank(toy: Toys, tmp_path: Path) -> None:
    (tmp_path / "note").write_text("mine")
    done = torchrun("convert", str(toy("qwen3_moe")), str(tmp_path), "--to", "canonical")
    assert done.returncode
    assert "is not empty" in done.stderr
    assert contents(tmp_path) == {"note": b"mine"}


def test_alone_everything_is_this_process_s(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    ranks = Ranks()
    assert ranks.first
    assert list(ranks.share([1, 2, 3])) == [1, 2, 3]
    assert ranks.agree("mine") == ["mine"]
    with pytest.raises(BadInput, match="broken"):
        ranks.agree(None, BadInput("broken"))
    ranks.close()


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_shares_are_disjoint_and_complete(count: int) -> None:
    shares = []
    for rank in range(count):
        ranks = Ranks.__new__(Ranks)
        ranks.rank, ranks.count = rank, count
        shares.append(list(ranks.share(list(range(5)))))
    assert sorted(item for share in shares for item in share) == list(range(5))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


@pytest.mark.parametrize(
    "variables",
    [{"RANK": "1"}, {"RANK": "3", "LOCAL_RANK": "3"}, {"WORLD_SIZE": "4"}, {"RANK": "1", "WORLD_SIZE": "2"}],
)
def test_half_a_launch_is_none(
    toy: Toys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]
) -> None:
    """A batch system leaves such variables behind; the destination is looked at all the same."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    out = tmp_path / "out"
    out.mkdir()
    (out / "mine.txt").write_text("mine")
    with pytest.raises(BadInput):
        convert(str(toy("qwen3_moe")), out, to="canonical")
    assert [entry.name for entry in out.iterdir()] == ["mine.txt"]
    assert convert(str(toy("qwen3_moe")), tmp_path / "new", to="canonical").tensors.written > 0


@pytest.mark.parametrize(("rank", "count"), [("2", "2"), ("-1", "2"), ("x", "2"), ("0", "0")])
def test_a_launch_that_contradicts_itself_is_refused(
    rank: str, count: str, toy: Toys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = {"RANK": rank, "WORLD_SIZE": count, "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}
    for name, value in named.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(BadInput, match="not a rank of a launch"):
        convert(str(toy("qwen3_moe")), tmp_path / "out", to="canonical")
    assert not (tmp_path / "out").exists()
