"""One pair of processes for all comparisons with authors' code: each package has a name of its own."""

from collections.abc import Iterator

import pytest

from omni_kit.parity.processes.workers import Sides


@pytest.fixture(scope="session")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sides]:
    with Sides(tmp_path_factory.mktemp("sides")) as both:
        yield both
