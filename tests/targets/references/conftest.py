"""Authors' code is found, runs on the CPU and stays uncompiled for the rest of its process; other tests compile."""

import sys
from collections.abc import Iterator

import pytest

from omni_kit.targets.references.authors import Authors
from omni_kit.targets.references.on_cpu import leave_cpu
from omni_kit.targets.references.one_process import leave_group


@pytest.fixture(autouse=True)
def process_as_before() -> Iterator[None]:
    """Undo what finds authors' files and what keeps torch on the CPU."""
    yield
    leave_cpu()
    leave_group()
    for finder in [one for one in sys.meta_path if isinstance(one, Authors)]:
        finder.forget()
