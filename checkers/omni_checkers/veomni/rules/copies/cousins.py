"""VEO427: what other integrations have, too, is said as they say it."""

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
    """Two plugins that cut a sequence alike, but for where a part ends."""
    right = f"import torch\n\n\n{_SPLIT.format(padded=_PADDED, last='first + share')}"
    ours = f"import torch\n\n\n{_SPLIT.format(padded=_PADDED, last=last)}"
    return {"../cousin/__init__.py": _COUSIN, "../cousin/sharing.py": right, "sharing.py": ours}


class CousinsSayTheSame(Rule):
    """What several integrations say in almost the same words, this one says as they do.

    A function is compared with those of other integrations that share most of its lines: those of VeOmni, and for a
    plugin those beside it. A finding is a line that differs from theirs by one small thing, and that neither upstream's
    own files of this model nor any of the others have; or a line that changes a value and that most of them have. In
    functions that are otherwise different, a line is compared with what others have between the same lines.

    Why: code for sequence parallelism, collators and converters is copied from one integration to the next, and
    upstream has nothing like it. A line that differs from every other copy is likely a slip of the copying. On one
    process it does nothing; on several ranks it cuts, pads or gathers the wrong elements.

    Fine when: this model needs the line as it is; say why in an ignore comment.
    """

    id = "VEO427"
    name = "cousins-say-the-same"
    severity = Severity.warning
    target = "veomni"
    obligations = ("VEO-PG-39",)
    failure_modes = ("sp-sharding-set-wrong", "cu-seqlens-padding")
    detectors = (
        Detector(1, "altered-statement", "Keep what the copied statement says, where all the others say the same."),
        Detector(2, "rewritten-statement", "Do not rewrite a statement of a function that is otherwise a copy."),
        Detector(3, "discarded-result", "Keep the results that the others keep."),
        Detector(4, "exchanged-statements", "Keep the order of statements that depend on each other."),
        Detector(5, "left-out-statement", "Keep statements that change a value and that most of the others have."),
        Detector(6, "odd-statement", "Between the same statements, write what all the others write."),
    )
    BAD = (_both(last="first + size"),)
    GOOD = (_both(last="first + share"),)

    def check(self, clone_edits: list[CloneEdit]) -> Findings:
        for edit in clone_edits:
            where = f"{edit.other.file.parent.name}/{edit.other.file.name}, line {edit.original_line}"
            message = f"{edit.function.name}: {edit.what} ({where})"
            yield Finding(message, edit.function.file, edit.line, detector=edit.kind)
