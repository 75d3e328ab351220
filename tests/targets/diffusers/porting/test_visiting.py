"""Changes of concrete syntax do what libcst's own visit does, and make nothing again that stays."""

import libcst as cst
import pytest

from omni_kit.targets.diffusers.porting.syntax import code
from omni_kit.targets.diffusers.porting.visiting import visited, walk

TEXT = '''\
@f(1, *a, k=2, **b)
class A(B, metaclass=C):
    def m(self, x: int = 0, *y, z=None, **w) -> "A":  # why
        """Text."""
        with open(x) as g, h:
            pass
        if not x and y[1:2, ...] < z <= 3:
            del x
        elif (x := y):
            return f"{x!r:>{w}} {y}", {**w, "k": -x}, [i async for i in y if i]
        else:
            raise E from e
        try:
            y = lambda v, /: v @ 2 if v else (yield)
        except* (E, F) as e:
            import a.b as c, d
        print(x); del y
'''


def whole() -> cst.BaseStatement:
    return cst.parse_statement(TEXT)


def test_a_walk_sees_all_but_spaces_in_the_order_of_the_text() -> None:
    def every(node: cst.CSTNode) -> list[cst.CSTNode]:
        return [node, *(one for child in node.children for one in every(child))]

    tree = whole()
    expected = [one for one in every(tree) if not isinstance(one, cst.SimpleWhitespace | cst.Newline)]
    assert [*map(id, walk(tree))] == [*map(id, expected)]


class _Doubled(cst.CSTTransformer):
    """Removes `del`, doubles `raise`, drops an `else`, and renames what is not within a lambda."""

    def visit_Lambda(self, node: cst.Lambda) -> bool:  # noqa: N802
        return False

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.Name:  # noqa: N802
        return updated_node.with_changes(value="other") if updated_node.value == "x" else updated_node

    def leave_Del(self, original_node: cst.Del, updated_node: cst.Del) -> cst.RemovalSentinel:  # noqa: N802
        return cst.RemoveFromParent()

    def leave_Else(self, original_node, updated_node):  # type: ignore[no-untyped-def]  # noqa: N802
        return cst.RemoveFromParent()

    def leave_SimpleStatementLine(  # noqa: N802
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.BaseStatement | cst.FlattenSentinel[cst.BaseStatement]:
        return cst.FlattenSentinel([updated_node, updated_node]) if len(original_node.body) > 1 else updated_node


class _Everywhere(_Doubled):
    def on_leave(self, original_node, updated_node):  # type: ignore[no-untyped-def]
        return super().on_leave(original_node, updated_node)


@pytest.mark.parametrize("change", [_Doubled, _Everywhere])
def test_a_change_is_that_of_libcst(change: type[cst.CSTTransformer]) -> None:
    expected = whole().visit(change())
    assert isinstance(expected, cst.BaseStatement)
    assert code(visited(whole(), change())) == code(expected)
    assert "other" in code(expected)


class _Returns(cst.CSTTransformer):
    """Changes no node of this text."""

    def leave_Return(self, original_node: cst.Return, updated_node: cst.Return) -> cst.Return:  # noqa: N802
        return updated_node.with_changes(value=cst.Integer("2"))


def test_what_a_change_has_nothing_to_say_about_is_the_same_object() -> None:
    tree = cst.parse_module("def f():\n    return 1\ndef g():\n    pass\n")
    changed = visited(tree, _Returns())
    assert changed.code == "def f():\n    return 2\ndef g():\n    pass\n"
    assert changed.body[1] is tree.body[1]
    assert visited(tree.body[1], _Returns()) is tree.body[1]


class _WithoutNames(cst.CSTTransformer):
    def leave_Name(self, original_node, updated_node):  # type: ignore[no-untyped-def]  # noqa: N802
        return cst.RemoveFromParent()


def test_what_must_be_there_cannot_be_removed() -> None:
    with pytest.raises(TypeError, match="exactly one"):
        visited(cst.parse_statement("x = 1"), _WithoutNames())
