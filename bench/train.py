"""Train, resume and export scaffolds of several models with a framework's own trainer.

python bench/train.py SOURCE ...: writes each integration as new-model does, with nothing edited, and runs `train`.
"""

import sys
import tempfile
import time
from pathlib import Path

from omni_kit.errors import OmniKitError
from omni_kit.parity import run_parity
from omni_kit.parity.processes.workers import Sides
from omni_kit.patchgen import run_config
from omni_kit.scaffold import new_model

TARGET = "veomni"


def trained(source: str, place: Path, sides: Sides) -> tuple[str, str]:
    """Return how the level ended for what new-model makes of a source, and what it says."""
    name = f"trained_{source.lower().replace('-', '_')}"
    try:
        new_model(name, source, target=TARGET, into=place)
        for config in (place / name).glob("*_patch_gen_config.py"):
            run_config(config)
        (found,) = run_parity(place / name, ["train"], sides=sides).levels
    except OmniKitError as error:
        return "error", error.message
    return found.status, found.reason


def main() -> None:
    """Print a line for each source; end with 1 where one does not pass."""
    passed = True
    with (
        tempfile.TemporaryDirectory(prefix="omni-kit-train-") as place,
        tempfile.TemporaryDirectory() as logs,
        Sides(Path(logs)) as sides,
    ):
        for source in sys.argv[1:]:
            started = time.monotonic()
            status, said = trained(source, Path(place), sides)
            passed &= status == "pass"
            print(f"{source:<36}{status:<6}{time.monotonic() - started:6.0f} s  {said}", flush=True)
    sys.exit(0 if passed else 1)


if __name__ == "__main__":
    main()
