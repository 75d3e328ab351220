"""Attribution of a failure to a line of the integration. Each question costs a run, so only failures ask."""

from dataclasses import replace
from typing import TYPE_CHECKING

from omni_kit.isolation.worker import StepError
from omni_kit.parity.compare.comparison import Comparison
from omni_kit.parity.processes.code_places import OwnCode
from omni_kit.parity.report.report import LevelResult
from omni_kit.patchgen.header import patch_at

if TYPE_CHECKING:
    from omni_kit.parity.case import Case
    from omni_kit.parity.processes.outcomes import ScenarioOutcome
    from omni_kit.parity.processes.step import Step
    from omni_kit.parity.report.report import Divergence


class Places:
    """Places for the failures of one comparison: FILE:LINE relative to the integration; empty if none is known.

    Args:
        case: the comparison. One with an injected fault has no places: the fault is not in the integration's files.
    """

    def __init__(self, case: "Case") -> None:
        self._case = case
        self._own = OwnCode(case.pair.candidate.path)

    def of_hook(self, hook: str, said: str) -> str:
        """Return where a hook that is wrong raised, made the wrong value, or is defined."""
        from omni_kit.parity.processes.steps.locating import PlaceOfHook

        return self._asked(PlaceOfHook(self._case.pair.checkpoint, self._case.pair.inputs_file, hook, said))

    def of_keys(self, found: Comparison) -> str:
        """Return which line made the first tensor of another name or shape, or should have made a missing one."""
        names = [*found.unexpected, *(worst.name for worst in found.worst), *found.missing]
        return self._made(names[0]) if names else ""

    def of_loading(self, found: Comparison) -> str:
        """Return which line made the first tensor that loading gets wrong, or left it out."""
        names = [*(worst.name for worst in found.worst), *found.missing]
        return self._loaded(names[0]) if names else ""

    def of_failed_loading(self) -> str:
        """Return the last own line that made a named tensor, where the framework's code raises while it loads."""
        return self._loaded("")

    def of_saving(self, found: Comparison) -> str:
        """Return which line names the first tensor that is exported wrongly, or leaves it out."""
        from omni_kit.parity.processes.steps.locating import PlaceOfSaving

        names = [*(worst.name for worst in found.worst), *found.missing, *found.unexpected]
        pair = self._case.pair
        out = pair.folder("candidate") / "located"
        return self._asked(PlaceOfSaving(pair.checkpoint, out, names[0])) if names else ""

    def of_divergence(self, found: "Divergence | None") -> str:
        """Return the forward of the module that adds error, or the line that loads its weights wrongly.

        Of a module whose class is upstream's own, the line that makes it.
        """
        if found is None or not self._known:
            return ""
        if place := self._weights(found.module):
            return place
        file, _, line = found.candidate_source.rpartition(":")
        return self._own.at(file, int(line)) if file and self._own.file(file) else self._made(found.module)

    def of_way(self, called: "ScenarioOutcome") -> str:
        """Return the place of the first module that adds error while the model is called in one way."""
        from omni_kit.parity.compare.modules import divergence, first_backward, first_forward

        if not self._known:
            return ""
        try:
            free, fed = self._case.pair.traced_way(called.folder)
        except (StepError, ValueError):
            return ""
        blame = first_forward(fed, free)
        if blame is None:
            blame = first_backward(free, 1e-4)
        if blame is None and free.candidate.calls:
            return self._own_forward(free.candidate.calls[0].source)
        return self.of_divergence(divergence(blame, free)) if blame is not None else ""

    def added(self, result: LevelResult) -> LevelResult:
        """Return a result whose reason ends with its place, and with the patch that the code there is of."""
        if not result.place:
            return result
        file, _, line = result.place.rpartition(":")
        patch = patch_at(self._own.home / file, int(line))
        named = f"/{result.place}" in result.reason
        where = ("" if named else f", at {result.place}") + (f" (patch {patch})" if patch else "")
        return replace(result, reason=f"{result.reason}{where}")

    @property
    def _known(self) -> bool:
        return self._case.evidence is self._case.pair

    def _own_forward(self, source: str) -> str:
        file, _, line = source.rpartition(":")
        return self._own.at(file, int(line)) if file else ""

    def _weights(self, module: str) -> str:
        """Return the line that loads a weight of a module wrongly; empty if all of its weights are right."""
        from omni_kit.parity.compare.tensors import compare_exactly

        try:
            loaded = compare_exactly(self._case.pair.state(), self._case.evidence.loaded())
        except StepError:
            return ""
        wrong = [worst.name for worst in loaded.worst if worst.name.startswith(f"{module}.")]
        wrong += [name for name in loaded.missing if name.startswith(f"{module}.")]
        return self._loaded(wrong[0]) if wrong else ""

    def _made(self, name: str) -> str:
        from omni_kit.parity.processes.steps.locating import PlaceOfTensor

        return self._asked(PlaceOfTensor(self._case.pair.checkpoint, name))

    def _loaded(self, name: str) -> str:
        from omni_kit.parity.processes.steps.locating import PlaceOfLoading

        return self._asked(PlaceOfLoading(self._case.pair.checkpoint, name))

    def _asked(self, step: "Step[str]") -> str:
        """Ask the candidate's process once for each place."""
        if not self._known:
            return ""
        key = f"place {step.as_line()}"
        taken = self._case.pair.taken
        if key not in taken:
            try:
                taken[key] = str(self._case.pair.located(step))
            except StepError:
                taken[key] = ""
        return str(taken[key])
