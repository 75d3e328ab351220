"""Whatever comes through a door, a command ends: with a code of the contract, one line, and nothing left behind."""

import contextlib
import io
import json
import random
import shutil
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from omni_kit.cli import main

LONGEST = 20.0  # seconds for one command; a hang takes for ever
CODES = {0, 1, 2, 3}
SHARD = "model-00001-of-00001.safetensors"
JUNK: list[Any] = [
    None, [], {}, "", "x", -1, 0, 1, 2.5, True, 10**9, 10**30, -(10**30), 1e308, float("nan"), [1], ["x"], {"a": 1},
    "٣", "\ud800", "a" * 5000, [[[]]], "../x", "1" * 5000, "\x00", {"model_type": "llama"}, [None] * 3, 4097,
]  # fmt: skip
CONFIGS: list[dict[str, Any]] = [
    {
        "model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"], "hidden_size": 8, "num_hidden_layers": 1,
        "num_experts": 2, "moe_intermediate_size": 4, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 4,
        "vocab_size": 11, "intermediate_size": 6, "num_experts_per_tok": 1, "mlp_only_layers": [], "rope_scaling": None,
        "quantization_config": {"quant_method": "fp8", "weight_block_size": [2, 2]}, "tie_word_embeddings": False,
        "decoder_sparse_step": 1, "layer_types": ["full_attention"], "num_nextn_predict_layers": 0,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}, "per_layer_config": {},
    },
    {
        "model_type": "llava", "architectures": ["LlavaForConditionalGeneration"], "image_token_id": 3,
        "text_config": {"model_type": "llama", "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2},
        "vision_config": {"model_type": "clip_vision_model", "hidden_size": 8, "num_hidden_layers": 1},
    },
    {"model_type": "gpt_oss", "num_hidden_layers": 2, "num_local_experts": 2, "hidden_size": 8, "layer_types": None},
    {"model_type": "nemotron_h", "num_hidden_layers": 2, "hybrid_override_pattern": "M*", "hidden_size": 8},
]  # fmt: skip


def tensors() -> dict[str, np.ndarray]:
    """The experts of one layer, and little more: most of the model is missing, which is no matter here."""
    box = "model.layers.0.mlp.experts"
    parts = {"gate_proj": (4, 8), "up_proj": (4, 8), "down_proj": (8, 4)}
    found = {f"{box}.{e}.{part}.weight": np.zeros(shape, np.float32) for e in range(2) for part, shape in parts.items()}
    return found | {"model.norm.weight": np.zeros(8, np.float32), "lm_head.weight": np.zeros((11, 8), np.float32)}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small checkpoint with an index."""
    monkeypatch.setenv("OMNI_KIT_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "fuzzed"
    folder.mkdir()
    save_file(tensors(), folder / SHARD, metadata={"format": "pt"})
    index = {"metadata": {}, "weight_map": dict.fromkeys(tensors(), SHARD)}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "config.json").write_text(json.dumps(CONFIGS[0]))
    return folder


def ends_well(*given: str) -> int:
    """Runs a command as a person and as a script would; returns its exit code."""
    out, err = io.StringIO(), io.StringIO()
    begun = time.monotonic()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([*given, "--format", "json"])
    assert time.monotonic() - begun < LONGEST, given
    assert code in CODES, (given, code)
    answer = json.loads(out.getvalue())
    if "error" in answer:
        assert not answer["error"].startswith("omni-kit failed"), (given, answer)
        assert "\n" not in answer["error"]
        assert len(answer["error"]) < 2100
    assert "Traceback" not in err.getvalue()
    out.getvalue().encode()
    return code


def mutated(value: Any, rng: random.Random) -> Any:
    """A JSON value with one thing in it changed: a value, a key, or one more key."""
    copy = json.loads(json.dumps(value))
    node: Any = copy
    parent: Any = None
    key: Any = None
    while isinstance(node, (dict, list)) and node and (parent is None or rng.random() < 0.7):
        parent, key = node, rng.choice(list(node)) if isinstance(node, dict) else rng.randrange(len(node))
        node = node[key]
    if parent is None:
        return rng.choice(JUNK)
    if isinstance(parent, dict) and rng.random() < 0.15:
        parent[rng.choice(["٣", "layer_types", "a" * 300, "attribute_map", "__class__", "torch_dtype"])] = rng.choice(
            JUNK
        )
    elif isinstance(parent, dict) and rng.random() < 0.1:
        del parent[key]
    else:
        parent[key] = rng.choice(JUNK)
    return copy


def scrambled(content: bytes, rng: random.Random) -> bytes:
    """Bytes with some of them changed, taken away or put in."""
    data = bytearray(content)
    for _ in range(rng.randint(1, 3)):
        place = rng.randrange(len(data))
        if (kind := rng.randrange(3)) == 0:
            data[place] = rng.randrange(256)
        elif kind == 1:
            del data[place : place + rng.randint(1, 8)]
        else:
            data[place:place] = bytes(rng.randrange(256) for _ in range(rng.randint(1, 4)))
    return bytes(data)


def config_door(place: Path, rng: random.Random) -> list[str]:
    text = json.dumps(mutated(rng.choice(CONFIGS), rng))
    content = text.encode() if rng.random() < 0.8 else scrambled(text.encode(), rng)
    (place / "config.json").write_bytes(content)
    command = rng.choice(["check-layout", "check-layout", "inspect", "new-model", "alone"])
    if command == "new-model":
        return ["new-model", "m", "--from", str(place / "config.json"), "--into", str(place), "--dry-run"]
    if command == "alone":
        return ["check-layout", str(place / "config.json")]
    return [command, str(place)]


def index_door(place: Path, rng: random.Random) -> list[str]:
    file, shard, aside = place / "model.safetensors.index.json", place / SHARD, place / "aside"
    changed = mutated({"metadata": {}, "weight_map": dict.fromkeys(tensors(), SHARD)}, rng)
    if rng.random() < 0.3 and isinstance(changed, dict) and isinstance(changed.get("weight_map"), dict):
        key = f"model.layers.{'9' * rng.choice([1, 20, 5000])}.x"
        changed["weight_map"][key] = rng.choice(["a" * 5000, "..", "x"])
    text = json.dumps(changed).encode()
    file.write_bytes(text if rng.random() < 0.7 else scrambled(text, rng))
    there, gone = (shard, aside) if shard.exists() else (aside, shard)
    if rng.random() < 0.3:
        there.rename(gone)
    return ["check-layout", str(file if rng.random() < 0.5 else place)]


NAMES = (
    "model.layers.٣.mlp.experts.0.up_proj.weight", "model.layers.0.mlp.experts.٣.up_proj.weight",
    f"model.layers.{'9' * 5000}.mlp.experts.0.up_proj.weight", f"model.layers.0.mlp.experts.{'9' * 5000}.down_proj",
    "model.layers.0.mlp.experts.expert_x.up_proj.weight", "model.layers.0.mlp.experts.999999999.up_proj.weight", "",
    "experts.", "experts.0.", ".", "model.layers.²", "model.layers.0.mlp.experts.gate_up_proj", "\x00", "mtp.", "a\nb",
)  # fmt: skip


def header_door(place: Path, rng: random.Random) -> list[str]:
    file = place / "model.safetensors"
    for other in (*place.glob("*.index.json"), place / SHARD):
        other.unlink(missing_ok=True)
    save_file(tensors(), file)
    content = file.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header, body = json.loads(content[8 : 8 + length]), content[8 + length :]
    chosen = rng.random()
    if chosen < 0.35:
        header = mutated(header, rng)
    elif chosen < 0.8:
        key = rng.choice(list(header))
        header = {(rng.choice(NAMES) if name == key else name): entry for name, entry in header.items()}
    text = json.dumps(header, ensure_ascii=rng.random() < 0.8).encode(errors="surrogatepass")
    whole = struct.pack("<Q", len(text)) + text + body
    file.write_bytes(whole if rng.random() < 0.8 else scrambled(whole, rng))
    if rng.random() < 0.4:
        return ["convert", str(place), str(place.parent / "out"), "--to", rng.choice(["canonical", "memory", "hub"])]
    return ["check-layout", str(place if rng.random() < 0.5 else file)]


DOORS: dict[str, Callable[[Path, random.Random], list[str]]] = {
    "config": config_door, "index": index_door, "header": header_door,
}  # fmt: skip


@pytest.mark.parametrize("times", [40, pytest.param(4000, marks=pytest.mark.sweep)])
@pytest.mark.parametrize("door", DOORS)
def test_whatever_comes_through_a_door(door: str, times: int, place: Path) -> None:
    rng = random.Random(f"{door} {times}")
    codes = set()
    for _ in range(times):
        given = DOORS[door](place, rng)
        kept = {file: file.read_bytes() for file in place.iterdir() if file.is_file()}
        codes.add(code := ends_well(*given))
        assert {file: file.read_bytes() for file in place.iterdir()} == kept, given
        if given[0] == "convert" and code:
            assert not [item for item in place.parent.iterdir() if item.name not in {"cache", place.name}], given
        shutil.rmtree(place.parent / "out", ignore_errors=True)
    assert {1, 2} <= codes
