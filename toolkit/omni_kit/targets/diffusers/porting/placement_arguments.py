"""Without `device` and `dtype` in constructors: torch decides where a model is made, and users move it."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

import libcst as cst

from omni_kit.targets.diffusers.porting.parts import Part, Parts
from omni_kit.targets.diffusers.porting.syntax import chain, code, method, with_method
from omni_kit.targets.diffusers.porting.visiting import visited, walk

_PLACED = ("device", "dtype")
_INIT = "__init__"
_NULL = "None"


@dataclass(frozen=True)
class _Left:
    """A part without such arguments.

    Attributes:
        whole: nothing else needs them.
    """

    node: cst.BaseStatement
    whole: bool = True


def without_placements(parts: Parts) -> None:
    """Leave out the arguments of constructors that are null and only passed on, and the dicts that pass them on.

    All stay where one of them has another use or default, or a call of a class of the file passes a value.
    """
    own = {part.name for part in parts.parts if part.cls is not None}
    needing = {part.name for part in parts.parts if isinstance(part.node, cst.FunctionDef) and not _all_null(part.node)}
    left = [_without(part, needing) for part in parts.parts]
    if all(one.whole for one in left) and not any(_is_passed(one.node, own) for one in left):
        for part, one in zip(parts.parts, left, strict=True):
            part.node = one.node


def _placed(function: cst.FunctionDef) -> list[cst.Param]:
    given = function.params
    return [one for one in (*given.params, *given.kwonly_params) if one.name.value in _PLACED]


def _all_null(function: cst.FunctionDef) -> bool:
    return all(one.default is not None and code(one.default) == _NULL for one in _placed(function))


def _without(part: Part, needing: Collection[str]) -> _Left:
    """Return a part without the arguments.

    Args:
        needing: functions of the file that have other defaults for theirs.
    """
    init = method(part.cls, _INIT) if part.cls is not None else None
    if part.cls is None or init is None or not _placed(init):
        return _Left(part.node)
    remover = _Remover({one.name.value for one in _placed(init)}, {*_dicts(init)})
    changed = visited(init, remover)
    kept = {*_variables(changed.body)} & {*remover.names, *remover.dicts}
    whole = _all_null(init) and not kept and not remover.called & {*needing}
    return _Left(with_method(part.cls, _INIT, lambda _: changed), whole)


def _variables(body: cst.CSTNode) -> Iterator[str]:
    """Yield the names of variables: not those of attributes, or of arguments in a call."""
    nodes = [*walk(body)]
    others = {id(one.attr) for one in nodes if isinstance(one, cst.Attribute)}
    others |= {id(one.keyword) for one in nodes if isinstance(one, cst.Arg)}
    yield from (one.value for one in nodes if isinstance(one, cst.Name) and id(one) not in others)


def _dicts(node: cst.CSTNode) -> Iterator[str]:
    """Yield the variables that hold such arguments alone: `{"device": device}`, or `dict(device=device)`."""
    for one in walk(node):
        if isinstance(one, cst.Assign) and len(one.targets) == 1 and isinstance(one.targets[0].target, cst.Name):
            keys = [*_keys(one.value)]
            if keys and {*keys} <= {*_PLACED}:
                yield one.targets[0].target.value


def _keys(value: cst.CSTNode) -> Iterator[str]:
    """Yield the keys of a dict."""
    if isinstance(value, cst.Dict):
        yield from (code(one.key).strip("\"'") if isinstance(one, cst.DictElement) else "" for one in value.elements)
    elif isinstance(value, cst.Call) and chain(value.func) == "dict":
        yield from (one.keyword.value if one.keyword is not None else "" for one in value.args)


def _is_passed(node: cst.CSTNode, own: Collection[str]) -> bool:
    """Return whether a call of a class of the file, or a dict that may be for one, has such an argument."""
    for one in walk(node):
        if isinstance(one, cst.Call) and (chain(one.func) in own or code(one.func).startswith("super(")):
            if any(given.keyword is not None and given.keyword.value in _PLACED for given in one.args):
                return True
        elif isinstance(one, cst.Dict | cst.Call) and {*_keys(one)} & {*_PLACED}:
            return True
    return False


class _Remover(cst.CSTTransformer):
    """Takes arguments, their dicts, and what passes them on out of a constructor.

    Attributes:
        called: what they were passed to.
    """

    def __init__(self, names: set[str], dicts: set[str]) -> None:
        self.names, self.dicts, self.called = names, dicts, set[str]()

    def leave_Parameters(  # noqa: N802
        self, original_node: cst.Parameters, updated_node: cst.Parameters
    ) -> cst.Parameters:
        """Leave out the arguments of the constructor, and a star that none follows."""
        params, named = ([one for one in given if one.name.value not in self.names]
                         for given in (updated_node.params, updated_node.kwonly_params))  # fmt: skip
        starred = isinstance(updated_node.star_arg, cst.ParamStar) and not named
        star = cst.MaybeSentinel.DEFAULT if starred else updated_node.star_arg
        return updated_node.with_changes(params=_listed(params), kwonly_params=_listed(named), star_arg=star)

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.Call:  # noqa: N802
        """Leave out `device=device`, and `**factory_kwargs`."""
        kept = [one for one in updated_node.args if not self._passes(one)]
        if len(kept) < len(updated_node.args):
            self.called.add(chain(original_node.func))
        return updated_node.with_changes(args=_listed(kept)) if len(kept) < len(updated_node.args) else updated_node

    def leave_SimpleStatementLine(  # noqa: N802
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.SimpleStatementLine | cst.RemovalSentinel:
        """Leave out the dict."""
        one = original_node.body[0]
        made = isinstance(one, cst.Assign) and chain(one.targets[0].target) in self.dicts
        return cst.RemoveFromParent() if made else updated_node

    def _passes(self, one: cst.Arg) -> bool:
        name, keyword = chain(one.value), one.keyword.value if one.keyword is not None else ""
        return (keyword == name and name in self.names) or (one.star == "**" and name in self.dicts)


def _listed(given: list[cst.Param] | list[cst.Arg]) -> list[cst.Param] | list[cst.Arg]:
    """Return items of a list that its last one ends."""
    return [*given[:-1], *(one.with_changes(comma=cst.MaybeSentinel.DEFAULT) for one in given[-1:])]
