"""The core of timing, with stand-in kernels of known cost: no device, no clock of its own."""

import pytest

from omni_kit.kernels.stopwatch import WallStopwatch
from omni_kit.kernels.timing import Broken, Sample, interleaved, timed

from .stand_ins import StandIns

COSTS = {
    "loss": {
        "slow": (40.0, 0.0),
        "quick": (0.0, 3.0),
        "middling": (10.0, 1.0),
        "awful": (400.0, 0.0),
        "near": (30.0, 0.0),
    }
}
SLOW = {"loss": "slow"}


def test_contenders_are_ranked_as_they_cost() -> None:
    found = interleaved(StandIns(COSTS), SLOW, {"q": {"loss": "quick"}, "m": {"loss": "middling"}}, rounds=3)
    assert found.baseline.ms == 140
    assert {name: one.ms for name, one in found.measured.items()} == {"q": 100, "m": 110}
    assert {name: one.against for name, one in found.measured.items()} == {"q": -40, "m": -30}
    assert found.measured["q"].gb == 13


def test_a_machine_that_gets_slower_slows_all_of_them() -> None:
    """Without a baseline in every round, the last contender would look 30 ms slower than the first."""
    contenders = {f"quick again, {n}": {"loss": "quick"} for n in range(12)}
    found = interleaved(StandIns(COSTS, drift=1.0), SLOW, contenders, rounds=2)
    assert all(abs(one.against + 40) < 2 for one in found.measured.values())


def test_noise_is_how_far_the_same_comparison_falls_apart() -> None:
    quiet = interleaved(StandIns(COSTS), SLOW, {"q": {"loss": "quick"}}, rounds=3)
    uneven = (0.0, 0.0, 0.0, 0.0, 9.0, 9.0, 9.0, 9.0, 2.0, 2.0, 2.0, 2.0, 0.0, 0.0, 0.0, 0.0, 5.0, 5.0, 5.0, 5.0)
    loud = interleaved(StandIns(COSTS, jitter=uneven), SLOW, {"q": {"loss": "quick"}}, rounds=3)
    assert quiet.noise == 0
    assert loud.noise > 1


def test_a_step_that_was_disturbed_does_not_count() -> None:
    assert Sample((10.0, 10.0, 10.5, 90.0), 1.0).typical == 10.0
    assert Sample((10.0,), 1.0).typical == 10.0


def test_a_contender_that_crashes_is_named_and_the_others_go_on() -> None:
    bench = StandIns(COSTS, crashing=frozenset({"middling"}))
    found = interleaved(bench, SLOW, {"m": {"loss": "middling"}, "q": {"loss": "quick"}}, rounds=3)
    assert found.broken == {"m": "middling ended its process"}
    assert found.measured["q"].ms == 100
    assert bench.calls.count({"loss": "middling"}) == 1


def test_a_baseline_that_crashes_ends_it() -> None:
    with pytest.raises(Broken, match="slow ended its process"):
        interleaved(StandIns(COSTS, crashing=frozenset({"slow"})), SLOW, {}, rounds=1)


def test_a_contender_whose_interval_decides_gets_no_further_round() -> None:
    bench = StandIns({"loss": {"slow": (40.0, 0.0), "awful": (400.0, 0.0), "near": (39.0, 0.0), "same": (40.1, 0.0)}})
    given = {name: {"loss": name} for name in ("awful", "near", "same")}
    found = interleaved(bench, SLOW, given, rounds=3)
    assert found.measured["awful"].ms == 500
    counts = {name: bench.calls.count({"loss": name}) for name in given}
    assert counts == {"awful": 1, "near": 1, "same": 1}
    interleaved(bench, SLOW, given, rounds=3, closely=True)
    assert bench.calls.count({"loss": "awful"}) == 4


def test_where_steps_vary_an_interval_takes_longer_to_decide() -> None:
    bench = StandIns(COSTS, jitter=(0.0, 24.0))
    interleaved(bench, SLOW, {"near": {"loss": "near"}}, rounds=3)
    assert bench.calls.count({"loss": "near"}) == 3


def test_figures_of_later_rounds_stand_in_one_table_with_those_of_the_first() -> None:
    bench = StandIns(COSTS)
    first = interleaved(bench, SLOW, {}, rounds=1)
    bench.base = (150.0, 10.0)  # the machine got slower in between
    later = interleaved(bench, SLOW, {"q": {"loss": "quick"}}, rounds=1, zero=first.baseline.ms)
    assert later.measured["q"].ms == 100


def test_steps_that_warm_up_do_not_count() -> None:
    times = iter([0.0, 0.010, 0.010, 0.030])
    done: list[int] = []
    found = timed(lambda: done.append(1), WallStopwatch(lambda: next(times)), warm=3, steps=2)
    assert len(done) == 5
    assert found.ms == pytest.approx((10.0, 20.0))
