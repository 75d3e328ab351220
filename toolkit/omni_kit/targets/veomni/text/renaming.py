"""Renamings and conversions of a recipe for tensors other than experts, as the converter template writes them."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from omni_kit.errors import Refusal
from omni_kit.upstream.transformers.models import UpstreamModel
from omni_kit.upstream.transformers.recipes.book import Recipe
from omni_kit.upstream.transformers.recipes.transform import Operation, Transform

# Stacks of experts; the experts that all tokens share are ordinary weights.
_EXPERTS = re.compile(r"(?<!shared_)(?<!shared)experts\\?\.(gate_up_proj|up_proj|down_proj)$")
INSTEAD = "convert the checkpoint to the modules' layout first: omni-kit convert --to memory"
_TO_EXPERTS = frozenset({"MergeModulelist", "ErnieFuseAndSplitTextVisionExperts", "Interleave"})


@dataclass(frozen=True)
class Renaming:
    """One renaming: a pattern, and its replacement as a Python expression."""

    pattern: str
    replacement: str


@dataclass(frozen=True)
class Conversion:
    """Tensors that become others: "join" many to one, "split" one to many, "swap" two dimensions of one.

    Attributes:
        sources: pattern and replacement of each source; the replacement is that of the first target.
        targets: text of the first target as it stands in the key, and what the others have there instead.
    """

    kind: str
    sources: tuple[Renaming, ...]
    targets: tuple[str, ...]
    dims: tuple[int, ...]


def renamings(recipe: Recipe | None) -> list[Renaming]:
    """Return the renamings in order; each applies at most once to a key."""
    return [rename for t in (recipe.transforms if recipe else ()) if not t.converts for rename in _renamings(t)]


def kept_names(model: UpstreamModel) -> list[str]:
    """Return patterns of the parameters that a renaming would turn into what the model does not have: transformers
    keeps them.

    A name of the file that is a parameter's already stays, where what the recipe makes of it is no parameter's.
    """
    recipe, names = model.recipe, {parameter.name for parameter in model.skeleton.parameters}
    hit = [p for p in model.skeleton.parameters if recipe is not None and recipe.renamed(p.name) not in names]
    return list(dict.fromkeys(re.escape(parameter.pattern).replace(r"\*", r"\d+") for parameter in hit))


def conversions(recipe: Recipe | None) -> list[Conversion]:
    """Return the conversions of everything but experts.

    Raises:
        BadInput: the recipe has one that the converter template cannot write.
    """
    transforms = (t for t in (recipe.transforms if recipe else ()) if t.converts and not about_experts(t))
    return [_conversion(t) for t in transforms]


def about_experts(transform: Transform) -> bool:
    """Return whether a converter of the recipe makes stacks of experts."""
    names = {operation.name for operation in transform.operations}
    return bool(names & _TO_EXPERTS) or any(_EXPERTS.search(target) for target in transform.targets)


def _renamings(transform: Transform) -> Iterator[Renaming]:
    # paired renamings shift names up by one: taken from the last, none is shifted twice
    for source in reversed(range(len(transform.sources))):
        pattern, text = transform.substitution(source)
        if transform.offset:
            text = re.sub(r"\\(\d+)", rf"{{int(match.group(\1)) + {transform.offset}}}", text)
            yield Renaming(pattern, f'lambda match: f"{text}"')
        else:
            yield Renaming(pattern, f'r"{text}"')


def _conversion(transform: Transform) -> Conversion:
    operation = transform.operations[0]
    kind = {"Concatenate": "join", "Chunk": "split", "Transpose": "swap"}.get(operation.name)
    unusual = any(name not in {"dim", "dim0", "dim1"} for name, _ in operation.kwargs)
    if kind is None or unusual or len(transform.operations) != 1:
        shown = ", ".join(str(item) for item in transform.operations)
        raise Refusal(
            f"the recipe converts {transform.sources[0]} by {shown}, which no converter template can write",
            INSTEAD,
        )
    sources = [transform.substitution(source) for source in range(len(transform.sources))]
    texts = tuple(transform.substitution(0, target)[1] for target in range(len(transform.targets)))
    return Conversion(kind, tuple(Renaming(p, f'r"{t}"') for p, t in sources), texts, _dims(operation))


def _dims(operation: Operation) -> tuple[int, ...]:
    values = (*operation.args, *(value for _, value in operation.kwargs))
    return tuple(value for value in values if isinstance(value, int) and not isinstance(value, bool))
