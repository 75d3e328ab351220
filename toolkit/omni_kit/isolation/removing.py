"""Removal of files that a process left."""

import os
import shutil
import subprocess
from contextlib import suppress


def remove(directory: str) -> None:
    """Remove a directory with all that is in it, or the link that has taken its place; a link is not followed."""
    with suppress(RecursionError):
        shutil.rmtree(directory, ignore_errors=True)
    if os.path.islink(directory) or os.path.isfile(directory):
        with suppress(OSError):
            os.unlink(directory)
    elif os.path.isdir(directory):  # deeper than paths can be
        with suppress(OSError):
            subprocess.run(["rm", "-rf", "--", directory], capture_output=True, check=False)
