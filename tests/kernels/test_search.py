"""The search, with stand-in kernels of known cost."""

from collections.abc import Mapping

import pytest

from omni_kit.kernels.pareto import pareto
from omni_kit.kernels.search import DEFAULT, MOST, Found, Search
from omni_kit.kernels.timing import Measured, Rounds

from .stand_ins import StandIns

COSTS = {
    "loss": {"fused": (60.0, 0.0), "chunked": (10.0, 3.0), "plain": (0.0, 8.0)},
    "norm": {"kernel": (0.0, 0.0), "plain": (14.0, 1.0)},
    "rope": {"kernel": (0.1, 0.0), "plain": (0.0, 0.0)},
}
START = {"loss": "fused", "norm": "plain", "rope": "kernel"}
KERNELS = {slot: list(costs) for slot, costs in COSTS.items()}


def search(bench: StandIns, limit: float | None = None, **given: object) -> Search:
    return Search(bench, START, KERNELS, lambda gb: limit, rounds=2, clock=bench.clock, **given)  # type: ignore[arg-type]


def test_the_fastest_is_found_and_slots_that_do_not_matter_keep_the_default() -> None:
    found = search(StandIns(COSTS)).run()
    assert found.choices[found.recommended] == {"loss": "plain", "norm": "kernel", "rope": "kernel"}
    assert found.matters == {"loss", "norm"}
    assert found.measured[found.recommended].ms == pytest.approx(100.1)


def test_memory_is_respected() -> None:
    found = search(StandIns(COSTS), limit=14.0).run()
    assert found.choices[found.recommended] == {"loss": "chunked", "norm": "kernel", "rope": "kernel"}
    assert found.measured[found.recommended].gb == 13


def test_where_nothing_fits_the_smallest_is_taken() -> None:
    found = search(StandIns(COSTS), limit=5.0).run()
    assert found.choices[found.recommended] == {"loss": "fused", "norm": "kernel", "rope": "kernel"}
    assert found.measured[found.recommended].gb == 10


def test_the_front_holds_every_trade_of_time_for_memory() -> None:
    found = search(StandIns(COSTS)).run()
    figures = [(found.measured[name].ms, found.measured[name].gb) for name in found.front]
    assert figures == sorted(figures)
    assert [gb for _, gb in figures] == [18, 13, 10]


def test_what_two_kernels_do_together_is_measured_and_not_added_up() -> None:
    """Alone each gains; together they lose: the greedy way would not know without asking."""
    bench = StandIns(COSTS, synergy={frozenset({"chunked", "kernel"}): 0.0, frozenset({"plain"}): 0.0})
    apart = StandIns(
        {"a": {"off": (20.0, 0.0), "on": (0.0, 0.0)}, "b": {"no": (20.0, 0.0), "yes": (5.0, 0.0)}},
        synergy={frozenset({"on", "yes"}): 90.0},
    )
    found = Search(
        apart, {"a": "off", "b": "no"}, {"a": ["off", "on"], "b": ["no", "yes"]}, rounds=2, clock=apart.clock
    ).run()
    assert found.choices[found.recommended] == {"a": "on", "b": "no"}
    assert not bench.calls


def test_what_helps_only_together_is_found() -> None:
    bench = StandIns(
        {"a": {"off": (0.0, 0.0), "on": (3.0, -2.0)}, "b": {"no": (0.0, 0.0), "yes": (4.0, -2.0)}},
        synergy={frozenset({"on", "yes"}): -50.0},
    )
    given = {"a": ["off", "on"], "b": ["no", "yes"]}
    found = Search(bench, {"a": "off", "b": "no"}, given, rounds=2, clock=bench.clock).run()
    assert found.choices[found.recommended] == {"a": "on", "b": "yes"}


def _found(recommended: str, **ms: tuple[float, float]) -> Found:
    """A search whose choices have these milliseconds and GB, each with one kernel other than the default."""
    measured = {name: Measured(one, gb, one - ms[DEFAULT][0]) for name, (one, gb) in ms.items()}
    choices = {name: {"slot": name} for name in ms}
    return Found(choices, measured, {}, 0.5, frozenset({"slot"}), recommended, "", 1.0, pareto(measured))


def _rounds(noise: float, **ms: tuple[float, float]) -> Rounds[Mapping[str, str]]:
    base = ms.pop(DEFAULT)
    return Rounds(
        Measured(*base, 0.0), noise, {name: Measured(one, gb, one - base[0]) for name, (one, gb) in ms.items()}, {}
    )


def test_a_recommendation_that_loses_when_measured_again_gives_way_to_the_runner_up() -> None:
    found = _found("a", default=(69.7, 10.0), a=(64.0, 10.5), b=(65.8, 10.3), c=(90.0, 9.0))
    assert found.finalists(11.3) == ["a", "b"]
    again = found.confirmed(_rounds(0.4, default=(69.7, 10.0), a=(71.8, 10.5), b=(65.9, 10.3)), 11.3)
    assert again.recommended == "b"
    assert (again.measured["a"].ms, again.measured["b"].ms) == (71.8, 65.9)


def test_a_tie_with_the_default_keeps_the_default() -> None:
    found = _found("a", default=(70.0, 10.0), a=(66.0, 10.5))
    assert found.confirmed(_rounds(0.4, default=(70.0, 10.0), a=(69.8, 10.5)), None).recommended == DEFAULT


def test_runners_up_fit_into_memory() -> None:
    found = _found("a", default=(70.0, 10.0), a=(66.0, 10.5), b=(60.0, 20.0))
    assert found.finalists(11.0) == ["a"]


def test_nothing_beyond_noise_leaves_everything_as_it_was() -> None:
    costs = {"norm": {"kernel": (0.0, 0.0), "plain": (0.2, 0.0)}, "rope": {"kernel": (0.3, 0.0), "plain": (0.0, 0.0)}}
    bench = StandIns(costs)
    start = {"norm": "plain", "rope": "kernel"}
    found = Search(bench, start, {slot: list(one) for slot, one in costs.items()}, rounds=2, clock=bench.clock).run()
    assert found.recommended == DEFAULT
    assert found.matters == frozenset()
    assert found.stopped == "no slot makes a difference beyond noise"
    assert len(found.measured) == 3


def test_a_kernel_brings_along_what_it_needs_in_other_slots() -> None:
    costs = {
        "compile": {"off": (0.0, 0.0), "blocks": (-20.0, 0.0)},
        "norm": {"kernel": (0.0, 0.0), "plain": (4.0, 0.0)},
        "loss": {"slow": (30.0, 0.0), "quick": (0.0, 0.0)},
    }
    bench = StandIns(costs)
    start = {"compile": "off", "norm": "kernel", "loss": "slow"}
    kernels = {slot: list(one) for slot, one in costs.items()}
    along = {("compile", "blocks"): {"norm": "plain"}}
    found = Search(bench, start, kernels, along=along, rounds=2, clock=bench.clock).run()
    assert found.choices[found.recommended] == {"compile": "blocks", "norm": "plain", "loss": "quick"}
    assert found.alone["compile", "blocks"] == "compile=blocks, norm=plain"
    assert all(call["norm"] == "plain" for call in bench.calls if call["compile"] == "blocks")


def test_what_came_along_is_also_tried_without_the_kernel_that_brought_it() -> None:
    """Compiled blocks only win alone because of the experts that they bring along."""
    costs = {
        "compile": {"off": (0.0, 0.0), "blocks": (3.0, 0.0)},
        "experts": {"slow": (10.0, 0.0), "quick": (0.0, 0.0)},
        "loss": {"slow": (30.0, 0.0), "quick": (0.0, 0.0)},
    }
    bench = StandIns(costs)
    start = {"compile": "off", "experts": "slow", "loss": "slow"}
    kernels = {slot: list(one) for slot, one in costs.items()}
    along = {("compile", "blocks"): {"experts": "quick"}}
    found = Search(bench, start, kernels, along=along, rounds=2, clock=bench.clock).run()
    assert found.choices[found.recommended] == {"compile": "off", "experts": "quick", "loss": "quick"}


def test_a_kernel_that_crashes_is_named_and_never_chosen() -> None:
    bench = StandIns(COSTS, crashing=frozenset({"chunked"}))
    found = search(bench).run()
    assert "chunked ended its process" in found.broken["loss=chunked"]
    assert all(choice["loss"] != "chunked" for name, choice in found.choices.items() if name in found.measured)
    assert bench.calls.count({**START, "loss": "chunked"}) == 1


def test_it_stops_when_no_combination_can_be_faster() -> None:
    bench = StandIns(COSTS)
    found = search(bench).run()
    assert found.stopped == "no combination that is left can be expected to be faster"
    assert "loss=plain, norm=kernel" in found.measured
    assert {"loss": "fused", "norm": "kernel", "rope": "plain"} not in bench.calls  # rope does not matter


def test_kernels_that_change_nothing_are_not_combined() -> None:
    costs = {
        "loss": {"slow": (60.0, 0.0), "quick": (0.0, 0.0), "no quicker": (60.1, 0.0)},
        "norm": {"plain": (14.0, 0.0), "kernel": (0.0, 0.0), "no kernel": (14.1, 0.0)},
    }
    bench = StandIns(costs)
    start = {"loss": "slow", "norm": "plain"}
    found = Search(bench, start, {slot: list(one) for slot, one in costs.items()}, rounds=3, clock=bench.clock).run()
    assert found.choices[found.recommended] == {"loss": "quick", "norm": "kernel"}
    assert len(found.measured) == 6
    assert len(bench.calls) < 15


def test_a_faster_choice_that_fits_claims_to_be_measured_again() -> None:
    found = _found("a", default=(69.7, 10.0), a=(64.0, 10.5), b=(65.8, 10.3), c=(60.0, 12.0))
    again = found.confirmed(_rounds(0.4, default=(69.7, 10.0), a=(71.8, 10.5)), 11.3)
    assert again.recommended == DEFAULT
    assert again.claimants(11.3) == ["b"]
    assert found.claimants(11.3) == []


def test_it_stops_after_its_seconds() -> None:
    bench = StandIns(COSTS)
    found = search(bench, seconds=5.0).run()
    assert found.stopped.startswith("stopped after")
    assert found.recommended in found.measured


def test_it_stops_after_so_many_choices() -> None:
    many = {f"slot{n}": {str(kernel): (float(kernel), -float(kernel)) for kernel in range(9)} for n in range(8)}
    bench = StandIns(many)
    start = dict.fromkeys(many, "8")
    found = Search(
        bench, start, {slot: list(one) for slot, one in many.items()}, rounds=1, seconds=1e9, clock=bench.clock
    ).run()
    assert MOST <= len(found.measured) < MOST + 9


def test_front_of_points() -> None:
    points = {"a": (1.0, 9.0), "b": (2.0, 9.0), "c": (3.0, 4.0), "d": (4.0, 4.5), "e": (1.0, 9.0)}
    assert pareto({name: Measured(*both, 0.0) for name, both in points.items()}) == ["a", "c"]
