"""`python -m omni_kit.parity.renaming PATH [FILE]`: shows the table of renamed weights, and writes the function."""

import sys
from pathlib import Path

from omni_kit.errors import OmniKitError
from omni_kit.files import write_atomic
from omni_kit.formatting import format_python
from omni_kit.parity.renaming.derive import derive

_USAGE = "usage: python -m omni_kit.parity.renaming PATH [FILE]"


def main(arguments: list[str]) -> int:
    """Answers the exit code: 0 where every weight was found, 2 for bad input."""
    if len(arguments) not in (1, 2) or arguments[0].startswith("-"):
        print(_USAGE, file=sys.stderr)
        return 0 if arguments[:1] in (["--help"], ["-h"]) else 2
    try:
        found = derive(Path(arguments[0]))
        print("\n".join(found.rows))
        for note in found.notes:
            print(f"note: {note}", file=sys.stderr)
        if len(arguments) == 2:
            write_atomic(Path(arguments[1]), format_python(found.text, Path(arguments[1]).name))
    except OmniKitError as error:
        print(f"error: {error.message}", file=sys.stderr)
        if error.hint:
            print(f"hint:  {error.hint}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
