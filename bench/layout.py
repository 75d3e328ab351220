"""Times of the commands that read only headers, on an index of real size.

A DeepSeek-V3 checkpoint has about 90,000 keys in 160 shards; its index is built here with those names.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LAYERS, DENSE, EXPERTS, SHARDS, RUNS = 61, 3, 256, 163, 5
ATTENTION = (
    "q_a_proj", "q_a_layernorm", "q_b_proj", "kv_a_proj_with_mqa", "kv_a_layernorm", "kv_b_proj", "o_proj",
)  # fmt: skip


def names() -> list[str]:
    found = ["model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"]
    for layer in range(LAYERS):
        base = f"model.layers.{layer}"
        found += [f"{base}.self_attn.{part}.weight" for part in ATTENTION]
        found += [f"{base}.{norm}.weight" for norm in ("input_layernorm", "post_attention_layernorm")]
        projections = ("gate_proj", "up_proj", "down_proj")
        if layer < DENSE:
            found += [f"{base}.mlp.{part}.weight" for part in projections]
            continue
        found += [f"{base}.mlp.gate.weight", f"{base}.mlp.gate.e_score_correction_bias"]
        found += [f"{base}.mlp.shared_experts.{part}.weight" for part in projections]
        for expert in range(EXPERTS):
            for part in projections:
                key = f"{base}.mlp.experts.{expert}.{part}.weight"
                found += [key, f"{key}_scale_inv"]
    return found


def seconds(command: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - start


def median(command: list[str]) -> float:
    return statistics.median(seconds(command) for _ in range(RUNS))


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        keys = names()
        index = {
            "weight_map": {
                k: f"model-{i * SHARDS // len(keys) + 1:05}-of-{SHARDS:05}.safetensors" for i, k in enumerate(keys)
            }
        }
        path = Path(folder) / "model.safetensors.index.json"
        path.write_text(json.dumps(index))
        (Path(folder) / "config.json").write_text(json.dumps({"model_type": "deepseek_v3"}))
        python = [sys.executable, "-m", "omni_kit"]
        empty = median([sys.executable, "-c", "pass"])
        load = median([sys.executable, "-c", f"import json; json.load(open({str(path)!r}))"])
        print(f"python, nothing else        {empty:6.3f} s")
        print(f"json.load of the index      {load:6.3f} s")
        print(f"omni-kit --help             {median([*python, '--help']):6.3f} s")
        print(f"check-layout, {len(keys)} keys   {median([*python, 'check-layout', str(path)]):6.3f} s")


if __name__ == "__main__":
    main()
