"""Run an external program with limits on its time and its output."""

import io
import os
import select
import shutil
import sysconfig
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from omni_kit.isolation.servers import Process, Start, start
from omni_kit.termination import go_on

_MOST = 1 << 26  # bytes that a program may print


@dataclass(frozen=True)
class Finished:
    """A program that has ended by itself.

    Attributes:
        code: its exit code, negative for a signal.
    """

    code: int
    stdout: str
    stderr: str

    @property
    def last_words(self) -> str:
        """The last line that it wrote to stderr."""
        return next((line.strip() for line in reversed(self.stderr.splitlines()) if line.strip()), "no message")


def run_program(
    program: Sequence[str],
    *,
    timeout: float,
    stdin: str = "",
    directory: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Finished:
    """Run a program; it and all its descendants are gone when this returns or raises.

    Args:
        program: its name or path, and its arguments.
        timeout: in seconds.
        stdin: all that it can read there.
        directory: where it runs; an empty one without.
        environment: all of its variables; those of this process without.

    Raises:
        FileNotFoundError: there is no such program.
        TimeoutError: the time is up.
        OSError: it printed more than can be kept.
    """
    go_on()
    found = shutil.which(program[0])
    if found is None:
        raise FileNotFoundError(f"{program[0]} is not installed")
    with ExitStack() as stack:
        given = stack.enter_context(tempfile.TemporaryFile())
        given.write(stdin.encode())
        given.seek(0)
        if directory is None:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="omni-kit-program-")))
        how = Start(
            [found, *program[1:]], os.environ if environment is None else environment, str(directory.absolute())
        )
        (stdout, theirs), (stderr, theirs_too) = os.pipe(), os.pipe()
        try:
            process = start(how, given.fileno(), theirs, theirs_too)
        finally:
            os.close(theirs)
            os.close(theirs_too)
        try:
            said = _read(process, (stdout, stderr), timeout, program[0])
            return Finished(process.wait(), *said)
        finally:
            process.end()
            os.close(stdout)
            os.close(stderr)


def program_beside(name: str) -> str | None:
    """Return the program that an installed package brings: that of this environment, or else one on the PATH."""
    beside = Path(sysconfig.get_path("scripts"), name)
    return str(beside) if beside.is_file() else shutil.which(name)


def _read(process: Process, files: Sequence[int], timeout: float, name: str) -> list[str]:
    """Return all that a process writes to pipes until it and its descendants are gone."""
    deadline = time.monotonic() + timeout
    said = {file: bytearray() for file in files}
    left = set(files)
    while left:
        ready, _, _ = select.select([*left], [], [], max(0.0, deadline - time.monotonic()))
        for file in ready:
            chunk = os.read(file, 1 << 16)
            said[file] += chunk
            left -= set() if chunk else {file}
        if not ready or sum(map(len, said.values())) > _MOST:
            process.end()
            if ready:
                raise OSError(f"{name} printed more than {_MOST} bytes")
            raise TimeoutError(f"{name} did not finish in {timeout:.0f} s")
    return [io.TextIOWrapper(io.BytesIO(text), "utf-8", "replace").read() for text in said.values()]
