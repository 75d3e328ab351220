"""Old public names: they give the new object and warn; other names are missing as ever."""

import pytest

from omni_kit.targets import sides
from omni_kit.toys.batches import protocol


def test_an_old_name_is_the_new_object_and_warns() -> None:
    with pytest.warns(DeprecationWarning, match="Way is now CallScenario"):
        assert protocol.Way is protocol.CallScenario
    with pytest.warns(DeprecationWarning, match="Asked is now ScenarioRunner"):
        assert sides.Asked is sides.ScenarioRunner
    with pytest.warns(DeprecationWarning, match="Feed is now BatchBuilder"):
        assert protocol.Feed is protocol.BatchBuilder


def test_a_name_that_never_was_is_missing() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Ways'"):
        _ = protocol.Ways
