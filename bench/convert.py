"""Time and memory of convert, compared with `cp -r` of the same bytes and with transformers' load and save, as ratios.

    python bench/convert.py [--gb G] [--runs N] [--dir DIR]

A Qwen3-MoE checkpoint of about G gigabytes of random bytes is written once. Every round then does each of the things
once, in turn, so that all of them meet the same disk and the same neighbours; the medians are compared. The disk is
synced before each; neither cp nor convert waits for it, unless it verifies.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

HIDDEN, WIDTH, EXPERTS, HEADS, HEAD, VOCABULARY, SHARD = 2048, 768, 64, 16, 128, 32_000, 10**9
RESAVE = """
import sys, torch
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.bfloat16)
model.save_pretrained(sys.argv[2])
"""


def shapes(layers: int) -> dict[str, tuple[int, ...]]:
    """The tensors of a Qwen3-MoE model, by their names on the hub."""
    found: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (VOCABULARY, HIDDEN)}
    for layer in range(layers):
        base = f"model.layers.{layer}"
        for name, rows in (("q", HEADS), ("k", 4), ("v", 4)):
            found[f"{base}.self_attn.{name}_proj.weight"] = (rows * HEAD, HIDDEN)
        found[f"{base}.self_attn.o_proj.weight"] = (HIDDEN, HEADS * HEAD)
        found |= {f"{base}.self_attn.{name}_norm.weight": (HEAD,) for name in "qk"}
        found |= {f"{base}.{name}_layernorm.weight": (HIDDEN,) for name in ("input", "post_attention")}
        found[f"{base}.mlp.gate.weight"] = (EXPERTS, HIDDEN)
        for expert in range(EXPERTS):
            for name in ("gate", "up"):
                found[f"{base}.mlp.experts.{expert}.{name}_proj.weight"] = (WIDTH, HIDDEN)
            found[f"{base}.mlp.experts.{expert}.down_proj.weight"] = (HIDDEN, WIDTH)
    return found | {"model.norm.weight": (HIDDEN,), "lm_head.weight": (VOCABULARY, HIDDEN)}


def build(place: Path, size: int) -> int:
    """Writes the checkpoint; returns the bytes of its largest tensor once it is stacked."""
    layer = 2 * sum(int(np.prod(shape)) for name, shape in shapes(1).items() if "layers" in name)
    layers = max(1, round((size - 4 * VOCABULARY * HIDDEN) / layer))
    random = np.random.default_rng(0)
    weight_map: dict[str, str] = {}
    shard: dict[str, np.ndarray] = {}
    place.mkdir()

    def flush() -> None:
        name = f"model-{len(set(weight_map.values())) + 1:05}.safetensors"
        save_file(shard, place / name, metadata={"format": "pt"})
        weight_map.update(dict.fromkeys(shard, name))
        shard.clear()

    for name, shape in shapes(layers).items():
        # exponents of ordinary numbers: transformers would handle NaN just as well, float16 has bfloat16's size
        shard[name] = random.integers(0, 1 << 14, shape, np.uint16).view(np.float16)
        if sum(tensor.nbytes for tensor in shard.values()) > SHARD:
            flush()
    flush()
    (place / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    config = {
        "model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"], "num_hidden_layers": layers,
        "hidden_size": HIDDEN, "moe_intermediate_size": WIDTH, "num_experts": EXPERTS, "vocab_size": VOCABULARY,
        "num_attention_heads": HEADS, "num_key_value_heads": 4, "head_dim": HEAD, "dtype": "float16",
    }  # fmt: skip
    (place / "config.json").write_text(json.dumps(config))
    return EXPERTS * 2 * WIDTH * HIDDEN * 2


def measure(command: list[str], result: Path) -> tuple[float, float, int]:
    """Seconds from start to end, seconds of moving bytes alone, and the peak memory of one command.

    What the command writes is removed.
    """
    os.sync()
    started = time.perf_counter()
    with tempfile.TemporaryFile() as told:
        process = subprocess.Popen(command, stdout=told, stderr=told)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - started
        told.seek(0)
        text = told.read().decode()
    if status:
        sys.exit(f"{' '.join(command[:5])} failed: {text[-2000:]}")
    shutil.rmtree(result)
    moving = json.loads(text)["seconds"] if "--format" in command else seconds
    return seconds, moving, usage.ru_maxrss * 1024


def main() -> None:
    """Prints one line a measurement, with what is compared."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gb", type=float, default=2.0)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--dir", type=Path, help="where to write; the system's temporary directory unless given")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.dir) as folder:
        source, result, fused = Path(folder, "source"), Path(folder, "result"), Path(folder, "fused")
        # in a process of its own: a child's peak memory begins with that of the process that starts it
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            largest = pool.submit(build, source, int(given.gb * 1e9)).result()
        size = sum(file.stat().st_size for file in source.iterdir())
        kit = [sys.executable, "-m", "omni_kit", "convert", "--format", "json"]
        subprocess.run([*kit, str(source), str(fused), "--to", "canonical"], check=True, stdout=subprocess.DEVNULL)
        commands = {
            "cp -r": ["cp", "-r", str(source), str(result)],
            "cp -r, then sync": ["sh", "-c", f"cp -r '{source}' '{result}' && sync"],
            "to canonical": [*kit, str(source), str(result), "--to", "canonical"],
            "to canonical, verified": [*kit, str(source), str(result), "--to", "canonical", "--verify"],
            "back to hub": [*kit, str(fused), str(result), "--to", "hub"],
            "to canonical, bfloat16": [*kit, str(source), str(result), "--to", "canonical", "--dtype", "bfloat16"],
            "transformers load + save": [sys.executable, "-c", RESAVE, str(source), str(result)],
        }
        taken: dict[str, list[tuple[float, float, int]]] = {name: [] for name in commands}
        for _ in range(given.runs):
            for name, command in commands.items():
                taken[name].append(measure(command, result))
    print(
        f"{size / 1e9:.2f} GB, largest output {largest / 2**20:.0f} MiB, medians of {given.runs}; cp's throughput is 1"
    )
    copied = statistics.median(seconds for seconds, _, _ in taken["cp -r"])
    for name, runs in taken.items():
        seconds, moving = (statistics.median(run[i] for run in runs) for i in (0, 1))
        line = f"{name:<26}{seconds:7.2f} s, {copied / seconds:5.2f}   moving {moving:6.2f} s, {copied / moving:5.2f}"
        print(f"{line}   peak {max(run[2] for run in runs) / 2**20:6.0f} MiB")


if __name__ == "__main__":
    main()
