"""Times patchgen, process start included; with --against, next to the published generator in the same run.

    python bench/patchgen.py [--against DIR] [--runs N]

DIR is the directory that holds the published `patchgen` package. Every time is the best of N runs.
"""

import argparse
import importlib.util
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ONE = "veomni.models.transformers.qwen3_moe.qwen3_moe_gpu_patch_gen_config"
PUBLISHED = """
import sys
from pathlib import Path
from patchgen.run_codegen import run_codegen
failed = [name for name in sys.argv[2:] if run_codegen(name, Path(sys.argv[1]), save_diff=True) is None]
sys.exit(f"failed: {failed}" if failed else 0)
"""


def veomni_root() -> Path:
    """The directory of the installed VeOmni, which is not imported."""
    found = importlib.util.find_spec("veomni")
    if found is None or not found.submodule_search_locations:
        sys.exit("VeOmni is not installed: pip install --no-deps veomni")
    return Path(next(iter(found.submodule_search_locations)))


def config_names(root: Path) -> list[str]:
    files = sorted((root / "models" / "transformers").glob("*/*_patch_gen_config.py"))
    return [".".join(file.relative_to(root.parent).with_suffix("").parts) for file in files]


def seconds(command: list[str], runs: int, environment: dict[str, str]) -> float:
    """The best wall time of a command that must succeed."""
    best = float("inf")
    for _ in range(runs):
        started = time.perf_counter()
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        best = min(best, time.perf_counter() - started)
        if done.returncode:
            sys.exit(f"{' '.join(command[:6])} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return best


def main() -> None:
    """Prints one line a measurement, with the ratio where there is something to compare with."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", type=Path, metavar="DIR", help="the directory that holds the published patchgen")
    parser.add_argument("--runs", type=int, default=3)
    given = parser.parse_args()
    root = veomni_root()
    names = config_names(root)
    with tempfile.TemporaryDirectory() as folder:
        kit = [sys.executable, "-m", "omni_kit", "patchgen"]
        rows = {
            "one config": [*kit, "run", ONE, "-o", folder, "--diff"],
            f"all {len(names)} with diffs": [*kit, "run", "--all", "--root", str(root), "-o", folder, "--diff"],
            "list": [*kit, "list", "--root", str(root)],
        }
        theirs = {"one config": [ONE], f"all {len(names)} with diffs": names}
        environment = {**os.environ, "PYTHONPATH": str(given.against or "")}
        for what, command in rows.items():
            line = f"{what:<24} {(ours := seconds(command, given.runs, dict(os.environ))):6.2f} s"
            if given.against and what in theirs:
                published = [sys.executable, "-c", PUBLISHED, folder, *theirs[what]]
                other = seconds(published, given.runs, environment)
                line += f"   published {other:6.2f} s   {other / ours:4.1f} times as long"
            print(line, flush=True)


if __name__ == "__main__":
    main()
