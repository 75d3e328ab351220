"""VEO427: code shared with other integrations is the same in each."""

from omni_checkers.engine.rule import Detector, Example, Finding, Findings, Rule, Severity
from omni_checkers.veomni.facts.code_clones import CloneEdit

_COUSIN = """\
from veomni.models.loader import MODELING_REGISTRY


@MODELING_REGISTRY.register("cousin")
def register_cousin_modeling(architecture):
    raise NotImplementedError
"""
_SPLIT = """\
def cut_for_this_rank(hidden, lengths, rank, size):
    padding = -hidden.shape[0] % size
    {padded}
    share = hidden.shape[0] // size
    first = rank * share
    part = hidden[first : {last}]
    counts = lengths.clone()
    counts[-1] += padding
    return part, counts
"""
_PADDED = "hidden = torch.cat([hidden, hidden.new_zeros(padding, hidden.shape[1])])"


def _both(last: str) -> Example:
    """Return two plugins that cut a sequence alike, but for where a part ends."""
    right = f"import torch\n\n\n{_SPLIT.format(padded=_PADDED, last='first + share')}"
    ours = f"import torch\n\n\n{_SPLIT.format(padded=_PADDED, last=last)}"
    return {"../cousin/__init__.py": _COUSIN, "../cousin/sharing.py": right, "sharing.py": ours}


class CousinsSayTheSame(Rule):
    """Keep code that several integrations share the same in this one.

    The rule compares a function with functions of other integrations that share most of its lines: VeOmni's, and for a
    plugin the neighbouring ones. It reports a line that differs from theirs by a small edit and occurs neither in
    upstream's files of this model nor in other integrations, and a missing line that changes a value and that most of
    them have. In functions that differ, it compares a line with those between the same neighbours.

    Why: integrations copy their code for sequence parallelism, collators and converters from each other, and upstream
    has no equivalent. A line that differs from every other copy is probably a copying mistake. It has no effect on one
    process; on several ranks it slices, pads or gathers the wrong elements.

    Fine when: this model needs the line; give the reason in an ignore comment.
    """

    id = "VEO427"
    name = "cousins-say-the-same"
    severity = Severity.warning
    target = "veomni"
    obligations = ("VEO-PG-39",)
    failure_modes = ("sp-sharding-set-wrong", "cu-seqlens-padding")
    detectors = (
        Detector(1, "altered-statement", "Keep a copied statement the same where all other integrations agree."),
        Detector(2, "rewritten-statement", "Do not rewrite a single statement of a copied function."),
        Detector(3, "discarded-result", "Keep the results that the other integrations keep."),
        Detector(4, "exchanged-statements", "Keep the order of statements that depend on each other."),
        Detector(5, "left-out-statement", "Keep value-changing statements that most other integrations have."),
        Detector(6, "odd-statement", "Between the same statements, write what all other integrations write."),
    )
    BAD = (_both(last="first + size"),)
    GOOD = (_both(last="first + share"),)

    def check(self, clone_edits: list[CloneEdit]) -> Findings:
        for edit in clone_edits:
            where = f"{edit.other.file.parent.name}/{edit.other.file.name}, line {edit.original_line}"
            message = f"{edit.function.name}: {edit.what} ({where})"
            yield Finding(message, edit.function.file, edit.line, detector=edit.kind)
