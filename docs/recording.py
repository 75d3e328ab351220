"""Pictures for the README: a run of commands in a terminal, and the modules of a parity run: `make recording`.

Both are drawn from what the commands print; nothing is written by hand.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

_WIDTH = 110
_COMMANDS = (
    ("check-layout", "qwen3_moe"),
    ("new-model", "olmoe", "--from", "olmoe", "--target", "veomni", "--into", "plugins"),
    ("patchgen", "run", "plugins/olmoe/olmoe_gpu_patch_gen_config.py"),
    ("check", "plugins/olmoe"),
    ("parity", "plugins/olmoe"),
)


def run(place: Path, *arguments: str) -> str:
    """Return the output of a command, which must exit 0."""
    done = subprocess.run(
        [sys.executable, "-m", "omni_kit", *arguments], cwd=place, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"omni-kit {' '.join(arguments)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def terminal(place: Path) -> str:
    """The commands and what they print, as SVG."""
    console = Console(record=True, width=_WIDTH, file=open("/dev/null", "w"))  # noqa: SIM115 - as long as the run
    for arguments in _COMMANDS:
        console.print(Text(f"$ omni-kit {' '.join(arguments)}", style="bold green"))
        console.print(Text.from_ansi(run(place, *arguments).replace(str(place), ".")))
    return console.export_svg(title="omni-kit")


def modules(place: Path) -> str:
    """The levels of a parity run with a fault in the candidate, and the module that adds error, as SVG."""
    modeling = place / "plugins" / "olmoe" / "generated" / "patched_modeling_olmoe_gpu.py"
    text = modeling.read_text(encoding="utf-8")
    modeling.write_text(text.replace("self.act_fn(gate) * up", "self.act_fn(gate) * up * 1.01"), encoding="utf-8")
    command = [sys.executable, "-m", "omni_kit", "parity", "plugins/olmoe", "--format", "json"]
    answer = json.loads(subprocess.run(command, cwd=place, capture_output=True, text=True, check=False).stdout)
    console = Console(record=True, width=_WIDTH, file=open("/dev/null", "w"))  # noqa: SIM115
    for level in answer["levels"]:
        size = level["max_rel"] or 0.0
        bar = "█" * (0 if not size else max(1, round(40 + 5 * min(0, _exponent(size)))))
        colour = {"pass": "green", "fail": "red"}.get(level["status"], "yellow")
        console.print(Text(f"{level['level']:10} {level['status']:5} {size:9.1e} {bar}", style=colour))
    first = answer["first_divergence"]
    console.print(Text(f"\nfirst to add error: {first['module']} (added {first['added']:.1e})", style="bold red"))
    return console.export_svg(title="omni-kit parity, with one factor of 1.01 in the experts")


def _exponent(size: float) -> int:
    return int(f"{size:e}".partition("e")[2])


def main(folder: Path) -> None:
    """Writes both pictures."""
    with tempfile.TemporaryDirectory(prefix="omni-kit-recording-") as name:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "terminal.svg").write_text(terminal(Path(name)), encoding="utf-8")
        (folder / "parity.svg").write_text(modules(Path(name)), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
