"""The rule about copied code: DFU311."""

from omni_checkers.diffusers.examples import LUMEN, PIPELINE, changed
from omni_checkers.diffusers.facts.copies import copies_in, original_of, same_copy
from omni_checkers.engine.rule import Finding, Findings, Rule
from omni_kit.pysource.library import Library
from omni_kit.pysource.source import SourceFile

_CLASS = "\n\nclass LumenPipeline(DiffusionPipeline)"
_SHIFT = """

# Copied from diffusers.pipelines.flux.pipeline_flux.calculate_shift
def calculate_shift(
    image_seq_len, base_seq_len: int = 256, max_seq_len: int = 4096, base_shift: float = 0.5, max_shift: float = 1.15
):
    m = (max_shift - base_shift) / (max_seq_len - base_seq_len)
    b = base_shift - m * base_seq_len
    mu = image_seq_len * m + b
    return mu
"""


class CopiesAreCopies(Rule):
    """Keep code under `# Copied from diffusers...` identical to its source, with the declared renames.

    The rule compares executable code: it ignores formatting, comments, docstrings and annotations.

    Why: `make fix-copies` overwrites the difference without confirmation, and CI fails. Fixes of a source that no
    longer exists never reach the copy.

    Fine when: the comment is meant as a hint; then write "Adapted from".
    """

    id = "DFU311"
    name = "copies-are-copies"
    target = "diffusers"
    obligations = ("DIF-37",)
    BAD = (
        changed(PIPELINE, (_CLASS, _SHIFT.replace("* m + b", "* m - b") + _CLASS)),
        changed(PIPELINE, (_CLASS, _SHIFT.replace("flux.pipeline_flux.", "flux.pipeline_fluxes.") + _CLASS)),
    )
    GOOD = (changed(PIPELINE, (_CLASS, _SHIFT + _CLASS)), {PIPELINE: LUMEN[PIPELINE]})

    def check(self, sources: list[SourceFile], library: Library) -> Findings:
        if library.module_file("diffusers.configuration_utils") is None:
            return
        for source in sources:
            for copy in copies_in(source):
                original = original_of(library, copy.place)
                if original is None:
                    yield Finding(f"copied from {copy.place}, which does not exist", source.path, copy.line)
                elif not same_copy(copy, original):
                    yield Finding(f"differs from {copy.place}: copy it again", source.path, copy.line)
