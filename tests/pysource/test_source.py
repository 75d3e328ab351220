"""Reading source files leaves no garbage behind."""

import subprocess
import sys

READS = """
import sys
from omni_kit.pysource import source

OBJECTS = 50_000
source._FEW = 10 * OBJECTS
bound = 2 * max(sys.getallocatedblocks(), source._FEW) + 2 * OBJECTS
for _ in range(15):
    with source.without_collection():
        for _ in range(OBJECTS):
            cycle = []
            cycle.append(cycle)
    assert sys.getallocatedblocks() < bound
"""
"""In a process of its own, which is small: in one that holds millions of objects, it takes millions to see any."""


def test_cycles_are_freed_in_a_process_that_reads_again_and_again() -> None:
    done = subprocess.run([sys.executable, "-c", READS], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
