"""VeOmni's builder gives transformers its loss functions: other tests of this process have transformers' own."""

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="module")
def losses_of_transformers(pytestconfig: pytest.Config) -> Iterator[None]:
    """Put transformers' loss functions back after each file."""
    if pytestconfig.getoption("--no-torch"):
        yield
        return
    from transformers.loss.loss_utils import LOSS_MAPPING

    before = dict(LOSS_MAPPING)
    yield
    LOSS_MAPPING.clear()
    LOSS_MAPPING.update(before)
