"""One comparison under way: upstream's results, evidence about the candidate, and what follows from both."""

from functools import cached_property, partial

import torch

from omni_kit.isolation.worker import StepError
from omni_kit.parity.compare.attention import attention_differences
from omni_kit.parity.compare.comparison import Comparison
from omni_kit.parity.compare.missing_inputs import caller_at_fault, lacking
from omni_kit.parity.compare.modules import Blame, Compared, divergence, first_backward, first_forward, owner
from omni_kit.parity.compare.tensors import FLOAT32_TOLERANCE, compare_up_to_rounding, without_lone_zeros
from omni_kit.parity.evidence import Evidence
from omni_kit.parity.processes.builder import made_batch_builder
from omni_kit.parity.processes.outcomes import NUDGED, REFERENCE
from omni_kit.parity.processes.pair import Pair
from omni_kit.parity.report.report import Divergence
from omni_kit.targets.sides import Ability
from omni_kit.toys.batches.protocol import BatchBuilder
from omni_kit.toys.tensors import Tensors


class Case:
    """Results that the levels request. Each comparison is made once, whichever level requests it first.

    Args:
        pair: both sides.
        evidence: about the candidate; None for the pair's own.
        notes: what the report must say; a case with a fault has its own.
        thorough: levels take the time for what they leave out where nobody named them.
    """

    def __init__(
        self, pair: Pair, evidence: Evidence | None = None, notes: list[str] | None = None, *, thorough: bool = False
    ) -> None:
        self.thorough = thorough
        self.pair = pair
        self.evidence: Evidence = evidence or pair
        self.notes = [] if notes is None else notes
        self.divergence: Divergence | None = None
        self.reported: dict[str, str] = {}  # by the error of a step, the level that reports it

    def note(self, line: str) -> None:
        """Something that the report must say, once."""
        if line not in self.notes:
            self.notes.append(line)

    @property
    def offers(self) -> frozenset[Ability]:
        """Abilities that both sides have."""
        return frozenset(self.pair.candidate.offers)

    @cached_property
    def batch_builder(self) -> BatchBuilder:
        """Builder of the batch."""
        return made_batch_builder(self.pair.candidate.batch_builder)

    @cached_property
    def mask(self) -> torch.Tensor:
        """Mask of the output positions that count."""
        return self.batch_builder.mask(self.pair.inputs()).bool()

    @cached_property
    def outputs(self) -> Comparison:
        """The answers; what the candidate answers beyond upstream has nothing to be compared with."""
        reference, candidate = self.pair.results_of(REFERENCE, "outputs"), self.evidence.results("outputs")
        return self._closely("outputs", reference, {name: candidate[name] for name in candidate if name in reference})

    @cached_property
    def gradients(self) -> Comparison:
        """The gradients of all parameters."""
        return self.compared_gradients(self.evidence.results("gradients"))

    def compared_outputs(self, candidate: Tensors) -> Comparison:
        """Answers of another run of the candidate, all of which upstream must have."""
        return self._without_lone_zeros("outputs", candidate)

    def compared_gradients(self, candidate: Tensors) -> Comparison:
        """Gradients of a run of the candidate."""
        return self._without_lone_zeros("gradients", candidate)

    def _without_lone_zeros(self, what: str, candidate: Tensors) -> Comparison:
        reference = self.pair.results_of(REFERENCE, what)
        return self._closely(what, without_lone_zeros(reference, candidate), without_lone_zeros(candidate, reference))

    def _closely(self, what: str, reference: Tensors, candidate: Tensors) -> Comparison:
        nudged = self.pair.results_of(NUDGED, what)
        return compare_up_to_rounding(reference, candidate, nudged, partial(self.pair.rounded_again, what))

    def right(self) -> bool:
        """Return whether no answer, and no gradient where there is one, is wrong."""
        return self.outputs.ok and (Ability.gradient not in self.offers or self.gradients.ok)

    def attention_differences(self) -> list[str]:
        """For each module that calls attention on both sides, what it says differently from upstream."""
        return attention_differences(self.pair.attention_of(REFERENCE), self.evidence.attention())

    @cached_property
    def free(self) -> Compared:
        """Both sides' modules, running freely."""
        return Compared(self.pair.recordings()[0], self.evidence.recording(), self.mask)

    @cached_property
    def replayed(self) -> Compared:
        """Upstream's modules, and the candidate's fed as they were."""
        return Compared(self.pair.recordings()[0], self.evidence.replayed(), self.mask)

    def locate(self) -> None:
        """Names the first module that adds error, where there is one, as the report's first divergence."""
        if Ability.trace in self.offers and self.divergence is None and (blame := self.blame()) is not None:
            self.divergence = divergence(blame, self.free)

    def blame(self) -> Blame | None:
        """Return the first module to add error, forward or backward; None if there is none."""
        if (forward := first_forward(self.replayed, self.free)) is not None:
            return self._or_giver(forward)
        if not self.outputs.ok:
            return Blame(self.free.candidate.calls[0], 1.0, "what it returns, and in nothing that its parts return")
        return self._backward_blame() if Ability.gradient in self.offers else None

    def _backward_blame(self) -> Blame | None:
        wrong = [*self.gradients.missing, *(worst.name for worst in self.gradients.worst)]
        if not wrong:
            return None
        sound = self.pair.results_of(REFERENCE, "gradients").keys() - set(wrong)
        tolerance = max(FLOAT32_TOLERANCE, self.gradients.tolerance)
        return first_backward(self.free, tolerance, sound) or owner(self.free, wrong)

    def _or_giver(self, blame: Blame) -> Blame:
        """Return the caller that did not pass what the blamed module needs, if nothing else is wrong with it."""
        if not lacking(self.replayed, blame.call):
            return blame
        try:
            completed = Compared(self.free.reference, self.evidence.completed(), self.mask)
        except StepError:  # it does not take what it lacks
            return blame
        return caller_at_fault(self.replayed, blame, completed, self.free)
