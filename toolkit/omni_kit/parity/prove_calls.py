"""Would it have been noticed? Has the candidate take calls wrongly, one way after the other, and asks the scenarios."""

import shutil
from collections.abc import Callable, Iterator

from omni_kit.parity.case import Case
from omni_kit.parity.compare.comparison import Comparison
from omni_kit.parity.compare.files import same_bytes
from omni_kit.parity.faults.calling import CALL_FAULTS, CallFault
from omni_kit.parity.levels.scenarios import Scenarios, compared_way
from omni_kit.parity.processes.outcomes import CANDIDATE, ScenarioOutcome
from omni_kit.parity.report.report import InjectionResult

_OUTPUTS = "outputs.safetensors"


def prove_calls(case: Case, say: Callable[[str], None] = lambda line: None) -> Iterator[InjectionResult]:
    """Yield every mistake in taking a call; it is located where no way of calling shows it that has no part in it.

    Ways in which the integration is wrong without any mistake are left out, and mistakes that no way could show, such
    as those in an argument that no way passes.
    """
    told = case.pair.called()
    right = [called for called in told if compared_way(case, called, Comparison()).status == "pass"]
    for name, fault in CALL_FAULTS.items():
        if not any(_shown(one.name, fault) for one in right):
            continue
        place = f"{CANDIDATE}/mistaken ways"
        failures = case.pair.called_wrongly(name, place)
        if not any(one.name in failures for one in right):
            continue
        try:
            changed = [one for one in right if failures.get(one.name) or _changed(case, one, place)]
            seen = list(_showing(case, changed, place, failures))
            idle = not seen and not any(one.name in failures for one in changed)
        finally:
            shutil.rmtree(case.pair.folder(place), ignore_errors=True)
        located = bool(seen) and all(_shown(way, fault) for way in seen)
        noticed = (Scenarios.name,) if seen else ()
        yield (one := InjectionResult(name, name, "", noticed, ", ".join(seen), located, idle))
        say(f"called wrongly: {name}: {one}" + (f" ({one.blamed})" if seen else ""))


def _shown(way: str, fault: CallFault) -> bool:
    """Return whether a way of calling can show a fault, with a scene of media before it or without."""
    return way.startswith(fault.shown_by) or way.partition(", ")[2].startswith(fault.shown_by)


def _showing(case: Case, changed: list[ScenarioOutcome], place: str, failures: dict[str, str]) -> Iterator[str]:
    """Yield the ways that show it: an answer is another one, or there is none."""
    for one in changed:
        if failures.get(one.name) or compared_way(case, one, Comparison(), place).status == "fail":
            yield one.name


def _changed(case: Case, one: ScenarioOutcome, place: str) -> bool:
    """Return whether a way answers, bit for bit, something else than without the mistake."""
    return not same_bytes(
        *(case.pair.folder(folder) / one.folder / _OUTPUTS for folder in (f"{CANDIDATE}/ways", place))
    )
