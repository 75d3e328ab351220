"""Outputs of the model's forward: diffusers' output class, and a tuple without `return_dict`."""

import ast
import textwrap
from collections.abc import Sequence

import libcst as cst

from omni_kit.targets.diffusers.porting.syntax import code, expression, parameters, statement
from omni_kit.targets.diffusers.porting.visiting import visited
from omni_kit.upstream.repositories.returned import Returned, returned_by

OUTPUT = "Transformer2DModelOutput"
_SWITCH = "return_dict"
_OFF = ("False", "None", "0")
_CLASS = "Output"  # ends the name of an output class
_Statements = cst.SimpleStatementLine | cst.FlattenSentinel[cst.BaseStatement]


def with_output(node: cst.FunctionDef, outputs: "Outputs") -> cst.FunctionDef:
    """Return the function with diffusers' output class, and a tuple without `return_dict`."""
    changed = visited(node, outputs)
    given = changed.params
    if outputs.switched:
        return changed
    more = cst.Param(cst.Name(_SWITCH), cst.Annotation(cst.Name("bool")), cst.MaybeSentinel.DEFAULT, cst.Name("True"))
    if given.kwonly_params or isinstance(given.star_arg, cst.Param | cst.ParamStar):
        return changed.with_changes(params=given.with_changes(kwonly_params=[*given.kwonly_params, more]))
    return changed.with_changes(params=given.with_changes(params=[*given.params, more]))


class Outputs(cst.CSTTransformer):
    """Every `return` of the function itself, except what a caller asks for by an argument that is off by default.

    Attributes:
        todo: what is left to do.
        keys: those of the tuple's values, where authors return a mapping.
        plain: the switches under which it returns a tuple as it is.
        objects: it returns an output object, of which callers read fields.
        switched: the authors have `return_dict` themselves.
    """

    def __init__(self, function: cst.FunctionDef) -> None:
        self.todo: list[str] = []
        self.keys: tuple[str, ...] = ()
        self.plain: set[str] = set()
        self.objects = False
        tree = ast.parse(textwrap.dedent(code(function))).body[0]
        output = returned_by(tree) if isinstance(tree, ast.FunctionDef) else Returned()
        given = {one.name.value: code(one.default) if one.default is not None else "" for one in parameters(function)}
        self.switched = _SWITCH in given
        self._filled = output.keys  # of a mapping that statements fill, else of one that is written out
        self._inside = -1
        self._asked: list[str] = []  # the switches that are on
        self._switches = {name for name, default in given.items() if default in _OFF and name != _SWITCH}
        self._plainly = 0  # depth of `if not return_dict`
        self._tupled = False  # the authors return a tuple without return_dict

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:  # noqa: N802
        """Count the functions around a statement."""
        self._inside += 1

    def leave_FunctionDef(self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef) -> cst.FunctionDef:  # noqa: N802
        """Leave a function, the method itself among them."""
        self._inside -= 1
        return updated_node

    def _is_switch(self, test: cst.BaseExpression) -> bool:
        return isinstance(test, cst.Name) and test.value in self._switches

    def _is_plain(self, test: cst.BaseExpression) -> bool:
        return self.switched and code(test) == f"not {_SWITCH}"

    def visit_If_body(self, node: cst.If) -> None:  # noqa: N802
        """Take note of a condition that is a switch."""
        self._asked += [code(node.test)] * self._is_switch(node.test)
        self._plainly += self._is_plain(node.test)

    def leave_If_body(self, node: cst.If) -> None:  # noqa: N802
        """Forget the condition."""
        del self._asked[len(self._asked) - self._is_switch(node.test) :]
        self._plainly -= self._is_plain(node.test)

    def leave_If(  # noqa: N802
        self, original_node: cst.If, updated_node: cst.If
    ) -> cst.If | cst.RemovalSentinel | cst.FlattenSentinel[cst.BaseStatement]:
        """`if return_dict:`, of which each `return` has both forms now."""
        if self._inside or not self.switched or code(original_node.test) != _SWITCH:
            return updated_node
        body = original_node.body.body
        last = body[-1]
        if not isinstance(last, cst.SimpleStatementLine) or not isinstance(last.body[-1], cst.Return):
            return updated_node
        if updated_node.orelse is not None and isinstance(updated_node.body, cst.IndentedBlock):
            return cst.FlattenSentinel(updated_node.body.body)
        return cst.RemoveFromParent() if original_node.orelse is None else updated_node  # the rest returns both forms

    def leave_SimpleStatementLine(  # noqa: N802
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> _Statements:
        """`return x`."""
        last = updated_node.body[-1]
        if self._inside or not isinstance(last, cst.Return) or last.value is None:
            return updated_node
        if self._plainly:
            return self._as_tuple(updated_node, last.value)
        fields = _fields(last.value)
        values, named = _values(last.value), bool(fields)
        kept = len(fields) > 1  # the authors' class has a field for each
        self.objects |= named
        whole_mapping = isinstance(last.value, cst.Name) and bool(self._filled)
        if whole_mapping:
            values = [expression(f"{code(last.value)}[{self._filled[0]!r}]")]
        if len(values) > 1 and self._asked:
            self.plain |= {*self._asked}
            return updated_node
        first, lines = values[0], list[cst.BaseStatement]()
        if not isinstance(first, cst.Name) and not kept:
            lines.append(statement(f"sample = {code(first)}"))
            first = cst.Name("sample")
        self.keys = self._filled[: len(values)]
        whole = ", ".join([code(first), *map(code, values[1:])])
        if len(values) > 1 and not named:
            self.todo = [f"return all values in an output class of its own: {OUTPUT} keeps {code(first)} of ({whole})"]
        elif whole_mapping and len(self._filled) > 1:
            left = ", ".join(self._filled[1:])
            self.todo = [f"return all values in an output class of its own: {OUTPUT} does not keep {left}"]
        if not self._tupled:
            whole += "," * (len(values) == 1)
            lines.append(statement(f"if not {_SWITCH}:\n    return ({whole})\n"))
        lines.append(statement(f"return {code(last.value) if kept else f'{OUTPUT}(sample={code(first)})'}"))
        lines[0] = lines[0].with_changes(leading_lines=updated_node.leading_lines)
        return cst.FlattenSentinel(lines)

    def _as_tuple(self, node: cst.SimpleStatementLine, value: cst.BaseExpression) -> cst.SimpleStatementLine:
        self._tupled = True
        if isinstance(value, cst.Tuple):
            return node
        line = statement(f"return ({code(value)},)")
        assert isinstance(line, cst.SimpleStatementLine)
        return line.with_changes(leading_lines=node.leading_lines)


def _fields(returned: cst.BaseExpression) -> Sequence[cst.Arg]:
    """Return the fields of an output class of which an object is made; empty for another expression."""
    if not isinstance(returned, cst.Call) or any(one.star for one in returned.args):
        return ()
    name = code(returned.func)
    made = name.rpartition(".")[2].lstrip("_")[:1].isupper() and all(one.keyword is not None for one in returned.args)
    return returned.args if made or name.endswith(_CLASS) else ()


def _values(returned: cst.BaseExpression) -> list[cst.BaseExpression]:
    """Return the values of a tuple, a mapping or an output; another expression is one."""
    inner = returned.elements if isinstance(returned, cst.Tuple | cst.Dict) else _fields(returned)
    return [one.value for one in inner] or [returned]
