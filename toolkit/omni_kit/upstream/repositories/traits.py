"""The profile of a model as its authors wrote it: what its signatures and its calls say, with evidence."""

import ast
import re
import sys
from collections.abc import Iterator, Mapping

from omni_kit.upstream.kinds import Kind, Signs, derive
from omni_kit.upstream.profile import ModelProfile, Trait
from omni_kit.upstream.repositories.attention import attending_in
from omni_kit.upstream.repositories.reference import Reference
from omni_kit.upstream.repositories.repository import REPOSITORY
from omni_kit.upstream.repositories.settings import fields_of
from omni_kit.upstream.repositories.timestep import STEP, step_of

# A condition that only tensors on a GPU, or those of the half precision of its kernels, meet.
NEEDS_GPU = re.compile(
    r"\.device\.type *==|\.is_cuda\b|\.dtype *(==|in) *[\[({]?((torch|th)\.(b?float16|half)(, *)?)+[\])}]?$"
)

HALVES: Mapping[str, str] = {"half": "float16", "bfloat16": "bfloat16"}
"""Methods of a tensor that cast it to half precision -> the dtype."""

IS_HALF = re.compile(r"^(torch|th)\.(b?float16|half)$")
"""Half precision by name, which authors write where their model has it."""

ENDS = frozenset({"exit", "quit", "sys.exit", "os._exit"})
"""Functions that end a process, with which authors refuse what they do not support."""

_TENSOR = re.compile(r"self\.(\w+) = (?:torch\.)?nn\.Parameter\(|self\.register_(?:buffer|parameter)\(['\"](\w+)")


def profile(reference: Reference) -> ModelProfile:
    """Return the profile of a class of a repository."""
    step, how = step_of(reference)
    kind, evidence = derive(Signs(denoises=how)) if step else (Kind.other, _timeless(reference))
    return ModelProfile(
        model_type=reference.class_name,
        library=REPOSITORY,
        library_version=reference.repository.version,
        architectures=(reference.class_name,),
        kind=kind,
        kind_evidence=evidence,
        traits=tuple(_traits(reference)),
    )


def _timeless(reference: Reference) -> str:
    """Return the reason why a model is not known to denoise: no time, or a time within an object."""
    for name, one in reference.forward.items():
        held = next((held for held in fields_of(reference.cls, "forward").get(name, ()) if STEP.match(held)), "")
        if held:
            return (
                f"forward receives the time inside an object, {name}.{held} ({one.where}): pass a class whose forward"
                " takes the tensors themselves, in a copy of the authors' files"
            )
    return f"no argument of forward ({', '.join(reference.forward)}) is a time"


def _traits(reference: Reference) -> Iterator[Trait]:
    yield Trait("inputs", list(reference.forward), reference.where)
    if reference.settings is not None:
        made = reference.settings.cls
        yield Trait("settings", made.node.name, made.source.where(made.node))
    found = attending_in(reference.closure)
    if found:
        yield Trait("attention", list(dict.fromkeys(one.by for one in found)), found[0].where)
    for package, where in foreign(reference).items():
        yield Trait("foreign-import", package, where)


def kept_as_tensors(reference: Reference) -> frozenset[str]:
    """Return the arguments that the constructor makes parameters or buffers of, under their own names; by default they
    are null.
    """
    found = reference.cls.method("__init__")
    text = ast.unparse(found[1]) if found is not None else ""
    set_ = {name for pair in _TENSOR.findall(text) for name in pair}
    return frozenset(name for name, one in reference.arguments.items() if name in set_ and one.default is None)


def foreign(reference: Reference) -> dict[str, str]:
    """Return the packages other than torch and Python's own that the class needs -> file:line of the first use."""
    found = reference.closure.packages()
    return {name: where for name, where in found.items() if name != "torch" and name not in sys.stdlib_module_names}
