"""Measures how many injected faults parity detects and locates, and the cost of one.

    python bench/prove.py [--models NAME ...]

NAME is a model directory of the installed VeOmni, or PATH of an integration.
"""

import argparse
import tempfile
import time
from pathlib import Path

from parity import models  # bench/parity.py

from omni_kit.parity import run_parity
from omni_kit.parity.processes.workers import Sides

REFERENCE = Path(__file__).resolve().parents[1] / "reference_models" / "veomni"
MODELS = (REFERENCE / "qwen3_moe", REFERENCE / "olmoe", "qwen3", "llama", "deepseek_v3", "gpt_oss", "qwen3_vl")


def main() -> None:
    """Prints one line a model, and each fault that was missed or blamed on another module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=[str(model) for model in MODELS])
    given = parser.parse_args()
    print(
        f"{'model':24} {'faults':>6} {'kinds':>6} {'detected':>9} {'located':>8} {'idle':>5} {'seconds':>8} {'each':>6}"
    )
    with tempfile.TemporaryDirectory() as logs, Sides(Path(logs)) as sides:
        for model in given.models:
            show(model, sides)


def show(model: str, sides: Sides) -> None:
    """Plants every fault that fits one model."""
    path = Path(model) if Path(model).is_dir() else models() / model
    run_parity(path, ["forward"], sides=sides)  # imports, and what is compared first
    started = time.perf_counter()
    proof = run_parity(path, ["forward"], sides=sides, prove=True).prove
    seconds = time.perf_counter() - started
    if proof is None:
        print(f"{path.name:24} not at parity")
        return
    kinds = len({fault.kind for fault in proof.planted})
    figures = f"{proof.faults:6} {kinds:6} {proof.detected:9} {proof.located:8} {len(proof.idle):5}"
    print(f"{path.name:24} {figures} {seconds:8.1f} {seconds / max(1, proof.faults):6.2f}")
    for name in (*proof.missed, *proof.mislocated):
        print(f"  {name}")


if __name__ == "__main__":
    main()
