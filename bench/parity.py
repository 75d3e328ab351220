"""Time of parity: a sweep over VeOmni's text, vision and omni types, and what locating modules costs compared with
running.

    python bench/parity.py [--runs N] [--models NAME ...]

The sweep compares every type that runs on a CPU at keys, roundtrip, forward and backward, one pair of processes for
all of them. Every round then times, for some of them, forward and backward alone and the modules level after them,
in the same processes; the medians of the rounds are compared.
"""

import argparse
import importlib.util
import statistics
import tempfile
import time
from pathlib import Path

from omni_kit.parity import ParityReport, run_parity
from omni_kit.parity.candidate import Layout
from omni_kit.parity.processes.workers import Sides

AS_PUBLISHED = (
    "qwen3_moe", "qwen3", "llama", "qwen2", "deepseek_v3", "deepseek_v4", "gpt_oss", "gemma3",
    "qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen2_5_omni", "qwen3_omni_moe",
)  # fmt: skip
MERGED_ONLY = ("glm_moe_dsa", "qwen3_5_moe", "qwen2_vl", "qwen2_5vl")
SWEPT = ("keys", "roundtrip", "forward", "backward")
LOCATED = ("llama", "qwen3_moe", "qwen3_vl")


def main() -> None:
    """Prints the sweep, then one line a model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--models", nargs="+", default=[*AS_PUBLISHED, *MERGED_ONLY])
    given = parser.parse_args()
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as logs, Sides(Path(logs)) as sides:
        reports = {name: compare(name, SWEPT, sides) for name in given.models}
        seconds = time.perf_counter() - started
        wrong = [name for name, report in reports.items() if not report.ok]
        slowest = max(reports, key=lambda name: reports[name].seconds)
        print(f"{len(reports)} types at {', '.join(SWEPT)}: {seconds:.1f} s, imports included")
        print(f"slowest {slowest} {reports[slowest].seconds:.1f} s; not at parity: {', '.join(wrong) or 'none'}")
        print(f"\nmodules beside forward and backward, medians of {given.runs}")
        for name in (name for name in LOCATED if name in given.models):
            print(locating(name, given.runs, sides))


def locating(name: str, runs: int, sides: Sides) -> str:
    """Seconds of both, and their ratio."""
    taken: list[tuple[float, float]] = []
    for _ in range(runs):
        report = compare(name, ("roundtrip", "forward", "backward", "modules"), sides)
        running = sum(report.level(level).seconds for level in ("forward", "backward"))
        taken.append((running, report.level("modules").seconds))
    running, modules = (statistics.median(pair[i] for pair in taken) for i in (0, 1))
    return f"{name:<12} {running:6.3f} s, modules {modules:6.3f} s: {modules / running:4.2f} times"


def compare(name: str, levels: tuple[str, ...], sides: Sides) -> ParityReport:
    """One type of the installed VeOmni, on the layout that it reads."""
    layout: Layout = "memory" if name in MERGED_ONLY else "hub"
    return run_parity(models() / name, levels, layout=layout, sides=sides)


def models() -> Path:
    """The directory of VeOmni's model directories."""
    spec = importlib.util.find_spec("veomni")
    if spec is None or spec.origin is None:
        raise SystemExit("veomni is not installed")
    return Path(spec.origin).parent / "models" / "transformers"


if __name__ == "__main__":
    main()
