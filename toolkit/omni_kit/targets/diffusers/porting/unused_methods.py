"""Without the methods that the model's forward does not reach: saving, printing, the authors' own switches."""

import ast
import re
from collections.abc import Collection, Iterator, Sequence

import libcst as cst

from omni_kit.pysource.classes import ClassRef
from omni_kit.targets.diffusers.porting.calling_forward import calls_forward
from omni_kit.targets.diffusers.porting.parts import Part, Parts
from omni_kit.targets.diffusers.porting.syntax import body_of, chain, names_used, own_attribute, with_body
from omni_kit.targets.diffusers.porting.visiting import walk
from omni_kit.upstream.repositories.reference import Reference

# Bases whose own code calls no method of a class that it does not name here.
_PLAIN = re.compile(r"(^|\.)(Module|ModelMixin|ConfigMixin|LightningModule|ABC|object)$")
_CALLED_BY_LIBRARIES = re.compile(
    r"^(__\w+__|forward|extra_repr|train|eval|to|half|float|double|cuda|cpu|type|apply|_apply|requires_grad_|parameters"
    r"|reset_parameters|_(load_from|save_to)_state_dict|(load_)?state_dict|get_extra_state|set_extra_state"
    r"|(get|set)_processor|(un)?fuse_projections)$"  # by a model of diffusers, of its modules
)
_STORES = re.compile(r"(^|_)(load|save|restore|print|summary)(_|$)")  # what diffusers has its own methods for


def without_unused_methods(parts: Parts, kept_names: Collection[str] = ()) -> None:
    """Leave out methods that nothing of the model names.

    A method of the model itself that assigns attributes stays: it sets what forward reads. So do methods whose names
    the code computes.

    Args:
        kept_names: further methods of the model that stay.
    """
    classes = [part for part in parts.parts if part.cls is not None]
    own = {part.name for part in classes}
    computed = [name for part in classes for name in _computed_names(part)]
    plain = [part for part in classes if part.cls is not None and _is_plain(part.cls, own)]
    waiting = [one for part in plain for one in _methods(part) if not _stays(one, part is parts.root, computed)]
    used = {*kept_names}
    for part in parts.parts:
        left = [one for one in _methods(part) if any(one is other for other in waiting)]
        used |= _named_in(part, left)
    while reached := [one for one in waiting if one.name.value in used]:
        waiting = [one for one in waiting if one.name.value not in used]
        for one in reached:
            used |= _names(one)
    for part in plain:
        assert part.cls is not None
        kept = [one for one in body_of(part.cls) if not any(one is other for other in waiting)]
        if len(kept) < len(body_of(part.cls)):
            part.node = with_body(part.cls, kept)


def without_method(part: Part, name: str) -> None:
    """Leave out a method of a class, unless it assigns attributes, which it may do for forward."""
    assert part.cls is not None
    kept = [one for one in body_of(part.cls)
            if not (isinstance(one, cst.FunctionDef) and one.name.value == name) or _assigns(one)]  # fmt: skip
    part.node = with_body(part.cls, kept)


def called_by_others(reference: Reference) -> set[str]:
    """Return the methods of the model that other files of its authors call, as those that sample do.

    A method that itself calls the model is none of them: its work is that of a pipeline.
    """
    classes = [one for one in reference.cls.mro if isinstance(one, ClassRef)]
    own = {one.source.path for one in classes}
    methods = (item for one in classes for item in one.node.body if isinstance(item, ast.FunctionDef))
    names = {item.name for item in methods if not calls_forward(item)}
    wanted = {name for name in names if not _STORES.search(name) and not _CALLED_BY_LIBRARIES.match(name)}
    texts = (
        file.read_text(encoding="utf-8", errors="ignore") for file in reference.repository.files if file not in own
    )
    return {name for text in texts for name in wanted if f".{name}(" in text} if wanted else set()


def _methods(part: Part) -> Iterator[cst.FunctionDef]:
    if part.cls is not None:
        yield from (one for one in body_of(part.cls) if isinstance(one, cst.FunctionDef))


def _is_plain(cls: cst.ClassDef, own: set[str]) -> bool:
    """Return whether all bases are modules of torch without methods of their own that call others, or classes of the
    file.
    """
    return all(_PLAIN.search(chain(one.value)) or chain(one.value) in own for one in cls.bases)


def _stays(method: cst.FunctionDef, of_model: bool, computed: Sequence[str]) -> bool:
    name = method.name.value
    return (
        (of_model and _assigns(method))
        or bool(_CALLED_BY_LIBRARIES.match(name))
        or any(re.fullmatch(one, name) for one in computed)
    )


def _assigns(method: cst.BaseStatement | cst.BaseSmallStatement) -> bool:
    assigned = (target.target for one in walk(method) if isinstance(one, cst.Assign) for target in one.targets)
    return any(own_attribute(one) for one in assigned)


def _computed_names(part: Part) -> Iterator[str]:
    """Yield patterns of the names of attributes that a class computes: `getattr(self, f"encode_{kind}")`."""
    calls = (one for one in walk(part.node) if isinstance(one, cst.Call) and chain(one.func) == "getattr")
    for call in (one for one in calls if len(one.args) > 1 and chain(one.args[0].value) == "self"):
        match call.args[1].value:
            case cst.SimpleString():
                pass
            case cst.FormattedString(parts=pieces):
                yield "".join(re.escape(one.value) if isinstance(one, cst.FormattedStringText) else r"\w*"
                              for one in pieces)  # fmt: skip
            case _:
                yield r"\w+"


def _named_in(part: Part, left: list[cst.FunctionDef]) -> set[str]:
    """Return the names in a part without these methods."""
    if part.cls is None or not left:
        return _names(part.node) | {name for one in part.before for name in _names(one)}
    body = [one for one in body_of(part.cls) if not any(one is other for other in left)]
    return {name for one in (*part.before, *body, *part.cls.bases, *part.cls.decorators) for name in _names(one)}


def _names(node: cst.CSTNode) -> set[str]:
    """Return every name in a piece of code, and every text that is one: `getattr(block, "attend")`.

    The name of a method that it defines is not one.
    """
    words = {str(one.raw_value) for one in walk(node) if isinstance(one, cst.SimpleString)}
    if not isinstance(node, cst.FunctionDef):
        return names_used(node) | words
    return {name for part in (node.params, node.body, *node.decorators) for name in names_used(part)} | words
