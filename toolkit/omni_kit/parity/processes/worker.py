"""`python -m omni_kit.parity.processes.worker NAME [CLOSED]`: one side of a comparison in its own process.

It cannot open what lies below the directory CLOSED, where the system can keep it from that.

Requests come as JSON lines on stdin, replies leave as JSON lines on what stdout was; everything that libraries print
goes to stderr, which the parent points at a log file.
"""

import faulthandler
import gc
import json
import os
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from omni_kit.parity.processes.confining import confine
from omni_kit.parity.processes.failures import lacks_package, one_line

if TYPE_CHECKING:
    from omni_kit.parity.processes.side import Side

_LOGGED = 400  # characters of a request


def main() -> None:
    """Answers requests until stdin closes."""
    for closed in sys.argv[2:]:
        confine(Path(closed))
    faulthandler.enable()  # an abort from the parent leaves every thread's stack in the log
    replies = _claim_stdout()
    gc.disable()  # until the first answer: importing libraries leaves no garbage, and looking for it takes a sixth
    from omni_kit.parity.processes.side import Side

    side = Side(sys.argv[1])
    for line in sys.stdin:
        replies.write(json.dumps(_answer(side, line.strip())) + "\n")
        replies.flush()
        gc.enable()


def _claim_stdout() -> TextIO:
    """The stdout that the parent reads; whatever prints from now on prints to stderr."""
    own = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return own


def _answer(side: "Side", line: str) -> dict[str, Any]:
    from omni_kit.parity.processes.steps import step_of

    print(f"--- {line[:_LOGGED]}", file=sys.stderr, flush=True)
    try:
        result = step_of(line).take(side)
        side.check_imports()
    except Exception as error:
        traceback.print_exc()
        sys.stderr.flush()
        blames = getattr(error, "blames_candidate", not lacks_package(error))
        broken = getattr(error, "blames_reference", False)
        return {"error": one_line(error), "blames_candidate": blames, "blames_reference": broken}
    return {"result": result}


if __name__ == "__main__":
    main()
