"""Edits of tables of imports, dicts, definitions and tables of contents."""

import pytest

from omni_kit.errors import BadInput
from omni_kit.scaffold.codemods import apply_edit
from omni_kit.targets.protocol import DefinitionEntry, Edit, ImportEntry, ItemEntry, KeyedEntry, PageEntry

CASES: list[tuple[str, Edit, str]] = [
    (
        't = {"a": []}\nt["m"].extend(\n    [\n        "A",\n        "C",\n    ]\n)\n',
        KeyedEntry("f", "t", "m", "B"),
        't = {"a": []}\nt["m"].extend(\n    [\n        "A",\n        "B",\n        "C",\n    ]\n)\n',
    ),
    (
        't["a"] = ["A"]\nt["c"] = ["C"]\n',
        KeyedEntry("f", "t", "b", "B"),
        't["a"] = ["A"]\nt["b"] = ["B"]\nt["c"] = ["C"]\n',
    ),
    ('t["a"] = ["A", "C"]\n', KeyedEntry("f", "t", "a", "B"), 't["a"] = ["A", "B", "C"]\n'),
    (
        "if x:\n    from .a import A\n    from .c import C\n",
        ImportEntry("f", ".b", "B", made=True),
        "if x:\n    from .a import A\n    from .b import B\n    from .c import C\n",
    ),
    (
        "from .m import A\nfrom .m import (\n    B,\n    D,\n)\n",
        ImportEntry("f", ".m", "C"),
        "from .m import A\nfrom .m import (\n    B,\n    C,\n    D,\n)\n",
    ),
    (
        'D = {\n    "a": 1\n}\n',
        ItemEntry("f", "D", "b", "{\n    1\n}"),
        'D = {\n    "a": 1,\n    "b": {\n        1\n    },\n}\n',
    ),
    (
        'D = Ordered(\n    [\n        ("a", 1)\n    ]\n)\n',
        ItemEntry("f", "D", "b", 'f("B")'),
        'D = Ordered(\n    [\n        ("a", 1),\n        ("b", f("B")),\n    ]\n)\n',
    ),
    (
        "class A:\n    x = 1\n\n\nclass C:\n    pass\n",
        DefinitionEntry("f", "B", "class B:\n    pass\n"),
        "class A:\n    x = 1\n\n\nclass B:\n    pass\n\n\nclass C:\n    pass\n",
    ),
    (
        "def a():\n    pass\n",
        DefinitionEntry("f", "b", "def b():\n    pass"),
        "def a():\n    pass\n\n\ndef b():\n    pass\n",
    ),
    (
        "- local: m/a\n  title: A\n- local: m/c\n  title: C\n",
        PageEntry("f", "m/b", "B", "m/"),
        "- local: m/a\n  title: A\n- local: m/b\n  title: B\n- local: m/c\n  title: C\n",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("before", "edit", "after"), CASES, ids=lambda value: type(value).__name__)
def test_an_edit_is_made_once(before: str, edit: Edit, after: str) -> None:
    assert apply_edit(before, edit) == after
    assert apply_edit(after, edit) == after


@pytest.mark.parametrize("edit", [
    KeyedEntry("f", "t", "a", "A"), ItemEntry("f", "D", "a", "1"), ImportEntry("f", ".m", "A", made=True),
    ImportEntry("f", ".m", "A"), PageEntry("f", "m/b", "B", "m/"),
], ids=lambda edit: type(edit).__name__)  # fmt: skip
def test_where_there_is_no_place_that_is_said(edit: Edit) -> None:
    with pytest.raises(BadInput, match="f"):
        apply_edit("x = 1\n", edit)


def test_what_is_no_python_is_said() -> None:
    with pytest.raises(BadInput, match="not valid Python"):
        apply_edit("x = (\n", ItemEntry("f", "D", "a", "1"))
