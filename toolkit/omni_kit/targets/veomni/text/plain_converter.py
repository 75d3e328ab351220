"""The converter of a model without experts: what upstream does while it loads, and VeOmni's loader does not.

VeOmni loads names as they are in the file. What it does not find it initialises again, together with everything else
that the same module holds (`_init_parameter` of `veomni.models.module_utils`). It ties the weight of the output
embeddings to that of the input embeddings, and nothing else (`post_process_after_weight_loading`).
"""

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from omni_kit.errors import Refusal
from omni_kit.pysource.classes import ClassRef
from omni_kit.pysource.source import dotted
from omni_kit.targets.veomni.text.renaming import Conversion, Renaming, conversions, kept_names, renamings
from omni_kit.targets.veomni.text.sequence import built_classes
from omni_kit.upstream.transformers.models import UpstreamModel

_TIES = "_tied_weights_keys"
TEMPLATE = "plain_tensor_converter.py.jinja"


@dataclass(frozen=True)
class PlainContext:
    """Variables for the converter's template.

    Attributes:
        name, class_name: what its functions and classes are called after.
        veomni_models: the package that it imports from, with a dot at the end.
        renames, conversions: what the recipe does to keys and tensors; `kept`, the names that no renaming may change.
        copies: parameter that may be tied -> the one that the file then has instead, where the tied one shares its
            module with others.
    """

    name: str
    class_name: str
    veomni_models: str
    renames: Sequence[Renaming]
    kept: Sequence[str]
    conversions: Sequence[Conversion]
    copies: Sequence[tuple[str, str]]

    @property
    def needed(self) -> bool:
        """Return whether a checkpoint that upstream publishes would load wrong without it."""
        return bool(self.renames or self.conversions or self.copies)


def plain_context(model: UpstreamModel, name: str, class_name: str, veomni_models: str) -> PlainContext:
    """Return the template's context for a model without experts.

    Raises:
        BadInput: the recipe does what a converter cannot.
    """
    return PlainContext(
        name=name,
        class_name=class_name,
        veomni_models=veomni_models,
        renames=renamings(model.recipe),
        kept=kept_names(model),
        conversions=conversions(model.recipe),
        copies=copies_of_ties(model),
    )


def refuse_other_ties(model: UpstreamModel) -> None:
    """Raise where upstream ties more than VeOmni does, or less.

    Raises:
        BadInput: which parameters would train apart.
    """
    name, source = model.class_name, model.source
    for tie in filter(None, map(source.classes.get, built_classes(source, name))):
        if (made := _tie_made(tie)) is not None:
            raise Refusal(
                f"{tie.name} ties its layers' weights to each other in __init__ ({source.where(made)}): VeOmni ties "
                "the weight of the output embeddings alone, and the layers would train apart"
            )
    declared = ClassRef(source, source.classes[name]).assigned(_TIES)
    where = source.where(source.classes[name]) if declared is None else declared[0].source.where(declared[1])
    if model.built_config.get("tie_word_embeddings") is True and not model.skeleton.tied:
        raise Refusal(
            f"{name} ({where}) ties nothing although its config sets tie_word_embeddings: VeOmni would tie",
            "set tie_word_embeddings to false in config.json",
        )
    owners = {parameter.name: parameter.owner for parameter in model.skeleton.parameters}
    for tied, origin in model.skeleton.tied.items():
        if not (tied.endswith(".weight") and "Embedding" in owners.get(origin, "") and owners.get(tied) == "Linear"):
            raise Refusal(
                f"{name} ties {tied} to {origin} ({where}): VeOmni ties the weight of the output embeddings alone, "
                "and both would train apart",
                "set tie_word_embeddings to false in config.json and give both in the checkpoint",
            )


def _tie_made(cls: ast.ClassDef) -> ast.Assign | ast.Call | None:
    """Return the statement of a method that adds to the ties which the class declares."""
    for node in (node for method in cls.body if isinstance(method, ast.FunctionDef) for node in ast.walk(method)):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict) and node.value.keys:
            if dotted(node.targets[0]) == f"self.{_TIES}":
                return node
        elif isinstance(node, ast.Call) and dotted(node.func) == f"self.{_TIES}.update":
            return node
    return None


def copies_of_ties(model: UpstreamModel) -> list[tuple[str, str]]:
    """Return pairs (tied parameter, its source) whose module holds more than it, or does with another config.

    Whether this config ties or not: another checkpoint of the same class may.
    """
    held: dict[str, set[str]] = {}
    for parameter in model.skeleton.parameters:
        module, _, leaf = parameter.name.rpartition(".")
        held.setdefault(module, set()).add(leaf)
    ties = model.skeleton.tieable.items()
    modules = {tied: tied.rpartition(".")[0] for tied, _ in ties}
    shared = {
        tied for tied, module in modules.items() if len(held.get(module, ())) > 1 or _may_have_bias(model, module)
    }
    return [(tied, source) for tied, source in ties if tied in shared]


def _may_have_bias(model: UpstreamModel, module: str) -> bool:
    """Return whether the class that holds a module computes the `bias` that it makes it with."""
    holder, _, name = module.rpartition(".")
    names = {path: class_name for path, class_name, _ in model.skeleton.submodels}
    found = model.source.resolve_class(names.get(holder, ""))
    made = ClassRef(*found).method("__init__") if found is not None else None
    if made is None:
        return False
    assigned = (node for node in ast.walk(made[1]) if isinstance(node, ast.Assign))
    values = (one.value for one in assigned if any(dotted(place) == f"self.{name}" for place in one.targets))
    keywords = (keyword for value in values if isinstance(value, ast.Call) for keyword in value.keywords)
    return any(one.arg == "bias" and not isinstance(one.value, ast.Constant) for one in keywords)
