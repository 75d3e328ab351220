# ruff: noqa: N802 - libcst calls visitors by the names of its nodes
"""`--fix`: adds to a config's exclude_from_output what its excludes leave dead."""

import libcst as cst

from omni_kit.files import write_atomic
from omni_kit.patchgen.result import ConfigResult


def add_excludes(result: ConfigResult) -> list[str]:
    """Add the findings of `dead-helper` to the config file of a result; return notes of the additions."""
    names = [name for found in result.diagnostics if found.code == "dead-helper" for name in found.names]
    if not names or result.path is None:
        return []
    before = result.path.read_text(encoding="utf-8")
    after = with_excludes(before, names)
    if after == before:
        return []
    write_atomic(result.path, after)
    return [f"{result.path.name}: added {', '.join(names)} to exclude_from_output"]


def with_excludes(text: str, names: list[str]) -> str:
    """Return the text of a config with `names` added to its last exclude_from_output call."""
    module = cst.parse_module(text)
    finder = _Calls()
    module.visit(finder)
    if not finder.calls:
        return text
    last = finder.calls[-1]
    given = {arg.value.evaluated_value for arg in last.args if isinstance(arg.value, cst.SimpleString)}
    fresh = [name for name in names if name not in given]
    return module.visit(_Add(last, fresh)).code if fresh else text


class _Calls(cst.CSTVisitor):
    def __init__(self) -> None:
        super().__init__()
        self.calls: list[cst.Call] = []

    def visit_Call(self, node: cst.Call) -> None:
        if isinstance(node.func, cst.Attribute) and node.func.attr.value == "exclude_from_output":
            self.calls.append(node)


class _Add(cst.CSTTransformer):
    """Appends arguments in the style of the call: one a line where the call has one a line."""

    def __init__(self, call: cst.Call, names: list[str]) -> None:
        super().__init__()
        self.call, self.names = call, names

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.Call:
        if original_node is not self.call or not updated_node.args:
            return updated_node
        *rest, last = updated_node.args
        comma = rest[-1].comma if rest else cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
        closing = last.comma
        added = [cst.Arg(cst.SimpleString(f'"{name}"'), comma=comma) for name in self.names]
        added[-1] = added[-1].with_changes(comma=closing)
        return updated_node.with_changes(args=[*rest, last.with_changes(comma=comma), *added])
