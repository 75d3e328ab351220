"""Verification: it rebuilds every source tensor from what was written, and sees a single flipped bit."""

from pathlib import Path

import numpy as np
import pytest

from omni_kit.convert import convert, run
from omni_kit.convert import transfer as room
from omni_kit.convert.destination import STATE, Destination
from omni_kit.convert.forms import Form
from omni_kit.convert.plan import Shard, make_plan
from omni_kit.convert.verify import inverse
from omni_kit.layout import read_checkpoint
from omni_kit.pysource.library import find_library
from omni_kit.upstream.subject import open_source
from omni_kit.upstream.transformers.models import upstream_model
from omni_kit.upstream.transformers.recipes.expression import Expression
from tests.conftest import run_cli
from tests.convert.conftest import Toys, load
from tests.upstream.transformers.recipes.evaluate import evaluate

FAMILIES = ["qwen3_moe", "gpt_oss", "llama4_text", "granitemoe", "nemotron_h", "llama"]


@pytest.mark.parametrize("model_type", FAMILIES)
@pytest.mark.parametrize("form", list(Form))
def test_the_inverse_is_the_source(toy: Toys, model_type: str, form: Form) -> None:
    """On element numbers: each source element is found where the output has it."""
    checkpoint = read_checkpoint(toy(model_type))
    library = find_library("transformers")
    config = open_source(str(toy(model_type))).config
    plan = make_plan(checkpoint, upstream_model(library, config), form)
    numbers: dict[str, np.ndarray] = {}
    position = 0
    for key, info in plan.sources.items():
        size = int(np.prod(info.shape))
        numbers[key] = np.arange(position, position + size).reshape(info.shape)
        position += size
    written = {output.name: evaluate(output.expression, numbers) for output in plan.outputs}
    for key, (x, output) in inverse(plan).items():
        assert isinstance(x, Expression)
        assert (evaluate(x, written) == numbers[key]).all()
        assert output.name in {piece.key for piece in x.pieces}


@pytest.mark.parametrize("model_type", FAMILIES)
@pytest.mark.parametrize("form", list(Form))
def test_it_is_quiet_where_all_is_well(toy: Toys, tmp_path: Path, model_type: str, form: Form) -> None:
    done = convert(str(toy(model_type)), tmp_path / "out", to=form, verify=True, shard_size="50KB")
    assert done.verified
    assert done.damaged == ()


def flip(place: Path, at: int) -> None:
    content = bytearray(place.read_bytes())
    content[at] ^= 1
    place.write_bytes(bytes(content))


@pytest.mark.parametrize("model_type", FAMILIES)
@pytest.mark.parametrize("where", [0.01, 0.3, 0.55, 0.99])
def test_one_flipped_bit_is_seen(
    toy: Toys, tmp_path: Path, model_type: str, where: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bit flips between writing and verifying; the source tensor that it belongs to is named."""
    finish = Destination.finish

    def damage(self: Destination, shard: Shard, descriptor: int) -> None:
        finish(self, shard, descriptor)
        body = len(shard.header)
        flip(self.path / shard.name, body + int((shard.size - body) * where))

    monkeypatch.setattr(Destination, "finish", damage)
    code, said = run_cli("convert", str(toy(model_type)), str(tmp_path / "out"), "--to", "canonical", "--verify")
    assert (code, said["ok"], said["verified"]) == (1, False, False)
    (note,) = [note for note in said["notes"] if note.startswith("damaged: ")]
    assert note.removeprefix("damaged: ").partition(" ")[0] in load(toy(model_type))
    assert (tmp_path / "out" / STATE).is_file(), "a damaged result is not complete"


def test_without_verify_nothing_is_claimed(toy: Toys, tmp_path: Path) -> None:
    assert not convert(str(toy("qwen3_moe")), tmp_path / "out", to="canonical").verified


def test_a_wrong_plan_is_seen(toy: Toys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes that were written elsewhere than planned: what is read comes from the files' own headers."""

    def shifted(output, sources, target, begin, budget):  # type: ignore[no-untyped-def]
        room.transfer(output, sources, target, begin + (4 if output.name.endswith("norm.weight") else 0), budget)

    monkeypatch.setattr(run, "transfer", shifted)
    done = convert(str(toy("llama")), tmp_path / "out", to="hub", verify=True)
    assert not done.verified
    assert done.damaged
