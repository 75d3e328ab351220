"""check on all of VeOmni, side by side with merely parsing the same files: cold, and with the verdicts of a run before.

Every run is a process of its own. Start-up is that of `omni-kit rules list`, which loads the same rules and judges
nothing. Every figure is the median of several runs, taken in turns.
"""

import importlib.util
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RUNS = 5
COLD_LIMIT, WARM_LIMIT = 2.5, 0.3
PARSE = "import ast, sys, time; from pathlib import Path\n" + (
    "texts = [p.read_text(encoding='utf-8') for p in Path(sys.argv[1]).rglob('*.py')]\n"
    "start = time.perf_counter(); [ast.parse(t) for t in texts]; print(time.perf_counter() - start)"
)


def timed(*arguments: str, cache: str) -> float:
    started = time.perf_counter()
    command = [sys.executable, "-m", "omni_kit", *arguments]
    done = subprocess.run(command, env={**os.environ, "OMNI_KIT_CACHE": cache}, capture_output=True, check=False)
    assert done.returncode in {0, 1}, done.stderr.decode()
    return time.perf_counter() - started


def main() -> int:
    spec = importlib.util.find_spec("veomni")
    assert spec is not None
    assert spec.origin is not None
    package = Path(spec.origin).parent
    figures: dict[str, list[float]] = {"parse": [], "start-up": [], "cold": [], "warm": []}
    for _ in range(RUNS):
        with tempfile.TemporaryDirectory() as cache:
            parsed = subprocess.run(
                [sys.executable, "-c", PARSE, str(package / "models")], capture_output=True, text=True, check=True
            )
            figures["parse"].append(float(parsed.stdout))
            figures["start-up"].append(timed("rules", "list", cache=cache))
            figures["cold"].append(timed("check", str(package), cache=cache))
            figures["warm"].append(timed("check", str(package), cache=cache))
    median = {name: statistics.median(values) for name, values in figures.items()}
    cold = (median["cold"] - median["start-up"]) / median["parse"]
    warm = median["warm"] - median["start-up"]
    for name, value in median.items():
        print(f"{name:<9} {value:6.2f} s")
    print(f"cold is {cold:.2f} times parsing, beyond start-up (at most {COLD_LIMIT})")
    print(f"warm is {warm:.2f} s beyond start-up (at most {WARM_LIMIT})")
    return int(cold > COLD_LIMIT or warm > WARM_LIMIT)


if __name__ == "__main__":
    sys.exit(main())
