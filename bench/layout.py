"""check-layout on a checkpoint of real size, side by side with merely parsing its JSON.

A DeepSeek-V3 checkpoint has about 90,000 keys in 163 shards; one with its names, shapes and dtypes is built here from
sparse files, which have headers and no data. Every figure is the median of several runs, taken in turns.
"""

import json
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from omni_kit.layout import check_layout, read_checkpoint

LAYERS, DENSE, EXPERTS, SHARDS, RUNS = 61, 3, 256, 163, 7
HIDDEN, WIDTH, EXPERT_WIDTH, VOCABULARY, BLOCK = 7168, 18432, 2048, 129280, 128
ATTENTION = {
    "q_a_proj": (1536, HIDDEN), "q_a_layernorm": (1536,), "q_b_proj": (24576, 1536),
    "kv_a_proj_with_mqa": (576, HIDDEN), "kv_a_layernorm": (512,), "kv_b_proj": (32768, 512), "o_proj": (HIDDEN, 16384),
}  # fmt: skip


def mlp(width: int) -> dict[str, tuple[int, ...]]:
    return {"gate_proj": (width, HIDDEN), "up_proj": (width, HIDDEN), "down_proj": (HIDDEN, width)}


def tensors() -> dict[str, tuple[str, tuple[int, ...]]]:
    """Key -> (dtype, shape), in the order of the published checkpoint."""
    found: dict[str, tuple[str, tuple[int, ...]]] = {"model.embed_tokens.weight": ("BF16", (VOCABULARY, HIDDEN))}

    def add(key: str, shape: tuple[int, ...]) -> None:
        quantized = len(shape) == 2
        found[f"{key}.weight"] = ("F8_E4M3" if quantized else "BF16", shape)
        if quantized:
            found[f"{key}.weight_scale_inv"] = ("F32", tuple(-(-size // BLOCK) for size in shape))

    for layer in range(LAYERS):
        base = f"model.layers.{layer}"
        for name, shape in ATTENTION.items():
            add(f"{base}.self_attn.{name}", shape)
        for norm in ("input_layernorm", "post_attention_layernorm"):
            add(f"{base}.{norm}", (HIDDEN,))
        boxes = {"mlp": WIDTH} if layer < DENSE else {"mlp.shared_experts": EXPERT_WIDTH}
        boxes |= {} if layer < DENSE else {f"mlp.experts.{expert}": EXPERT_WIDTH for expert in range(EXPERTS)}
        for box, width in boxes.items():
            for name, shape in mlp(width).items():
                add(f"{base}.{box}.{name}", shape)
        if layer >= DENSE:
            found[f"{base}.mlp.gate.weight"] = ("BF16", (EXPERTS, HIDDEN))
            found[f"{base}.mlp.gate.e_score_correction_bias"] = ("F32", (EXPERTS,))
    head = {"model.norm.weight": ("BF16", (HIDDEN,)), "lm_head.weight": ("BF16", (VOCABULARY, HIDDEN))}
    return found | head


def build(place: Path) -> int:
    """Writes the checkpoint; returns the number of its keys."""
    everything = tensors()
    sizes = {"F8_E4M3": 1, "BF16": 2, "F32": 4}
    weight_map = {}
    shards: list[dict[str, object]] = [{} for _ in range(SHARDS)]
    ends = [0] * SHARDS
    for number, (key, (dtype, shape)) in enumerate(everything.items()):
        shard = number * SHARDS // len(everything)
        length = sizes[dtype]
        for dimension in shape:
            length *= dimension
        offsets = [ends[shard], ends[shard] + length]
        shards[shard][key] = {"dtype": dtype, "shape": shape, "data_offsets": offsets}
        ends[shard] = offsets[1]
        weight_map[key] = f"model-{shard + 1:05}-of-{SHARDS:05}.safetensors"
    for shard, header in enumerate(shards):
        text = json.dumps(header).encode()
        with (place / f"model-{shard + 1:05}-of-{SHARDS:05}.safetensors").open("wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            file.truncate(8 + len(text) + ends[shard])
    (place / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    config = {"model_type": "deepseek_v3", "architectures": ["DeepseekV3ForCausalLM"]}
    (place / "config.json").write_text(json.dumps(config))
    return len(everything)


def parse(place: Path) -> None:
    """The yardstick: json.load of the index, and of every header."""
    with (place / "model.safetensors.index.json").open() as file:
        json.load(file)
    for shard in sorted(place.glob("*.safetensors")):
        with shard.open("rb") as stream:
            json.loads(stream.read(int.from_bytes(stream.read(8), "little")))


def seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        keys = build(place)
        python = [sys.executable, "-m", "omni_kit"]
        runs: dict[str, Callable[[], object]] = {
            "json of index and headers": lambda: parse(place),
            "reading the checkpoint": lambda: read_checkpoint(place),
            "check_layout in all": lambda: check_layout(str(place)),
            "omni-kit --help": lambda: subprocess.run([*python, "--help"], check=True, capture_output=True),
            "omni-kit check-layout": lambda: subprocess.run(
                [*python, "check-layout", str(place)], check=True, capture_output=True
            ),
        }
        taken: dict[str, list[float]] = {name: [] for name in runs}
        for _ in range(RUNS):
            for name, run in runs.items():
                taken[name].append(seconds(run))
        print(f"{keys} keys in {SHARDS} shards, median of {RUNS} runs")
        yardstick = taken["json of index and headers"]
        for name, times in taken.items():
            ratio = statistics.median(a / b for a, b in zip(times, yardstick, strict=True))
            print(f"{name:<28}{statistics.median(times):7.3f} s {ratio:6.1f}x")


if __name__ == "__main__":
    main()
