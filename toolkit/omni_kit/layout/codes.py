"""The IDs of check-layout's findings: what each code means. The number never changes and is never given away again.

1xx: experts. 2xx: keys and parameters. 3xx: the library's own loader. 4xx: how much is known.
"""

from collections.abc import Mapping

from omni_kit.diagnostics.definition import Definition, Documentation
from omni_kit.diagnostics.finding import Severity

_NEVER = "never."


# Each is the verdict itself: no layout is known that could be loaded.
_VERDICTS = frozenset({"quantised-experts", "not-exact", "ambiguous-orientation"})


def _define(number: int, code: str, severity: Severity, summary: str, why: str, fine_when: str = _NEVER) -> Definition:
    said = Documentation(summary, why=why, fine_when=fine_when)
    return Definition(f"LAY{number}", code, severity, "layout", said, suppressible=code not in _VERDICTS)


_ALL = (
    _define(
        101,
        "incomplete-experts",
        Severity.error,
        "Store every expert of a layer.",
        "the stack of experts has another size than the parameter, or experts stay randomly initialised.",
        "the shards are still being downloaded.",
    ),
    _define(
        102,
        "expert-count",
        Severity.error,
        "Store as many experts as the model has.",
        "the stacked tensor does not fit the parameter; a tolerant loader leaves it randomly initialised.",
        "the config is of another checkpoint; pass the right one with `--config`.",
    ),
    _define(
        103,
        "quantised-experts",
        Severity.error,
        "Dequantise experts before converting them.",
        "quantised weights have scales, for which the canonical form has no place.",
        "the loader reads the quantised layout itself and nothing is converted.",
    ),
    _define(
        104,
        "not-exact",
        Severity.error,
        "Store experts in a layout that has an exact canonical form.",
        "a conversion would change values or lose tensors.",
        "nothing is converted.",
    ),
    _define(
        105,
        "canonical-form",
        Severity.info,
        "Convert canonical experts with `--to memory` when transformers holds them transposed.",
        "the library's loader reads the transposed form only.",
        "the framework loads the canonical form.",
    ),
    _define(
        106,
        "no-recipe",
        Severity.error,
        "Load per-expert checkpoints with a transformers that has a recipe for the model.",
        "the loader finds no key for the stacked parameters and initialises them randomly.",
        "the checkpoint is converted first.",
    ),
    _define(
        107,
        "recipe-disagrees",
        Severity.error,
        "Store experts in the orientation that the recipe and the module expect.",
        "with equal dimensions the transposed weights load without an error and compute something else.",
    ),
    _define(
        108,
        "expert-biases",
        Severity.warning,
        "Give biases of experts their own place.",
        "the canonical form stores weights only; a converter would drop the biases.",
        "the modules have parameters for the biases.",
    ),
    _define(
        109,
        "ambiguous-orientation",
        Severity.error,
        "Pass the shards, or `--assume LAYOUT`, when shapes fit both orientations.",
        "the wrong orientation loads without an error and computes something else.",
    ),
    _define(
        110,
        "not-loadable",
        Severity.error,
        "Store experts in a layout that the framework's loader or a converter can read.",
        "the framework fails while it loads, or trains randomly initialised experts.",
        "the checkpoint is converted first: `omni-kit convert --to memory`.",
    ),
    _define(
        201,
        "extra-layers",
        Severity.error,
        "Use a config with as many layers as the checkpoint.",
        "the loader drops the additional layers without an error.",
        "the layers predict further tokens, and the config says so.",
    ),
    _define(
        202,
        "unmapped-keys",
        Severity.error,
        "Store only keys that fill a parameter.",
        "the loader drops the tensor, and a parameter of a similar name stays randomly initialised.",
        "the tensors belong to another part of the system, such as a draft model.",
    ),
    _define(
        203,
        "missing-parameters",
        Severity.error,
        "Store a key for every parameter.",
        "the parameter is randomly initialised, with only an INFO log.",
        "the parameter is trained from scratch, such as a new head.",
    ),
    _define(
        204,
        "shape-mismatch",
        Severity.error,
        "Store tensors whose converted shape is the parameter's.",
        "loading fails, or the parameter stays randomly initialised.",
        "the config is of another checkpoint; pass the right one with `--config`.",
    ),
    _define(
        205,
        "half-fed",
        Severity.error,
        "Store all the parts that a parameter is made of.",
        "the parameter cannot be assembled, or a part of it stays randomly initialised.",
    ),
    _define(
        206,
        "fed-twice",
        Severity.error,
        "Store one source for each parameter.",
        "the key that is loaded last overwrites the other, and the order is not defined.",
    ),
    _define(
        301,
        "load-missing",
        Severity.error,
        "Fill every parameter in the library's own loader.",
        "the loader would initialise the parameter randomly.",
        "the parameter is trained from scratch, such as a new head.",
    ),
    _define(
        302,
        "load-unexpected",
        Severity.error,
        "Leave no key over in the library's own loader.",
        "the loader drops the tensor.",
        "the tensors belong to another part of the system.",
    ),
    _define(
        303,
        "load-mismatched",
        Severity.error,
        "Match every parameter's shape in the library's own loader.",
        "loading fails, or the parameter stays randomly initialised.",
    ),
    _define(
        304,
        "load-twice",
        Severity.error,
        "Fill every parameter once in the library's own loader.",
        "the key that is loaded last overwrites the other.",
    ),
    _define(
        305,
        "load-error",
        Severity.error,
        "Store a checkpoint that the library's own loader accepts.",
        "users cannot load the checkpoint.",
    ),
    _define(
        401,
        "no-config",
        Severity.warning,
        "Pass a config.json, or `--model-type`.",
        "without the model, nobody knows which parameter each key fills.",
        "only the layout of the experts matters.",
    ),
    _define(
        402,
        "not-judged",
        Severity.warning,
        "Check keys that the account leaves open with `--against-model`.",
        "code outside the recipe maps these keys, so the account cannot follow them.",
        "another tool has checked them.",
    ),
    _define(
        403,
        "no-checkpoint",
        Severity.info,
        "Pass a checkpoint to check one.",
        "the layout is what the library declares; the file may differ.",
        "the layout of a future checkpoint is the question.",
    ),
    _define(
        404,
        "whole-checkpoint",
        Severity.info,
        "Read which part of a larger checkpoint was checked.",
        "the other parts were not looked at.",
        "the note names the part that you meant.",
    ),
)

DEFINITIONS: Mapping[str, Definition] = {one.name: one for one in _ALL}
"""Code -> what it means."""
IDS: Mapping[str, Definition] = {one.id: one for one in _ALL}
"""ID -> what it means."""
