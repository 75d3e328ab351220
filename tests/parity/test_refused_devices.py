"""An integration that refuses the device of a comparison in words is not tested there, and has not failed."""

import pytest

from omni_kit.isolation.failures import refuses_device
from omni_kit.isolation.worker import StepError
from omni_kit.parity.levels import _failed
from omni_kit.parity.processes.shared import Shared, Watched


class Raising:
    """A process whose code raises at every request."""

    def send(self, step: object) -> None:
        """Take the request."""

    def receive(self, step: str) -> object:
        raise StepError(step, blames_candidate=True)


@pytest.mark.parametrize(
    ("said", "status"),
    [
        ("NotImplementedError: Heron does not run on cpu (model.py:3)", "error"),
        ("NotImplementedError: Heron needs cuda (/srv/cpu/model.py:3)", "fail"),
        ("NotImplementedError: Could not run 'aten::sum' with arguments from the 'CPU' backend", "fail"),
        ("RuntimeError: no kernel for cpu", "fail"),
    ],
)
def test_only_a_refusal_of_the_device_itself_counts(said: str, status: str) -> None:
    assert refuses_device(said, "cpu") == (status == "error")
    error = StepError(said)
    error.blames_candidate = True
    assert _failed("forward", error, "cpu", "forward").status == status


@pytest.mark.parametrize(("device", "blamed"), [("cpu", False), ("cuda", True)])
def test_no_step_blames_an_integration_that_refuses_the_device(device: str, blamed: bool) -> None:
    watched = Watched(Raising(), Shared(), device)  # type: ignore[arg-type]
    with pytest.raises(StepError) as raised:
        watched.ask("NotImplementedError: the fused norm has not been tried on cpu (model.py:3)")  # type: ignore[arg-type]
    assert raised.value.blames_candidate is blamed
