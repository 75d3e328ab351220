"""The index of an upstream module, its scopes, and the calls in it."""

import ast
from pathlib import Path
from textwrap import dedent

import pytest

from omni_kit.errors import BadInput
from omni_kit.patchgen.callgraph import calls_in
from omni_kit.patchgen.imports import absolute, import_line, insertion_line
from omni_kit.patchgen.locate import Libraries, package_of
from omni_kit.patchgen.scopes import quoted_names, scopes_of
from omni_kit.patchgen.source import SourceModule, read_source
from omni_kit.patchgen.spec import ImportSpec

TEXT = """
    import sys
    from typing import overload

    class A:
        @property
        def x(self): ...
        @x.setter
        def x(self, value): ...
        @x.deleter
        def x(self): ...
        @overload
        def m(self, a: int): ...
        @overload
        def m(self, a: str): ...
        def m(self, a): ...

        class Inner:
            def m(self): ...

        if sys.platform == "x":
            def guarded(self): ...
        else:
            def guarded(self): ...

    def twice(): return 1
    def twice(): return 2

    try:
        def tried(): ...
    except ImportError:
        pass
"""


def module(text: str) -> SourceModule:
    return SourceModule("pkg.sub.mod", Path("mod.py"), dedent(text).lstrip("\n"))


@pytest.mark.parametrize(
    ("path", "role", "guarded"),
    [
        ("A", "plain", False),
        ("A.x", "getter", False),
        ("A.x.setter", "setter", False),
        ("A.x.deleter", "deleter", False),
        ("A.m", "plain", False),
        ("A.Inner", "plain", False),
        ("A.Inner.m", "plain", False),
        ("twice", "plain", False),
        ("tried", "plain", True),
    ],
)
def test_every_definition_has_one_address(path: str, role: str, guarded: bool) -> None:
    definition = module(TEXT).get(path)
    assert definition is not None
    assert (definition.role, definition.guarded) == (role, guarded)
    assert definition.path == path


def test_two_branches_are_two_candidates() -> None:
    source = module(TEXT)
    assert source.get("A.guarded") is None
    assert len(source.candidates("A.guarded")) == 2


def test_the_last_of_two_definitions_counts() -> None:
    source = module(TEXT)
    definition = source.get("twice")
    assert definition is not None
    assert "return 2" in source.code_of(definition)


def test_decorators_are_cut_as_written() -> None:
    source = module("class C:\n    @a(\n        1,  # why\n    )\n    @b\n    def m(self): ...\n")
    definition = source.get("C.m")
    assert definition is not None
    assert source.decorators_of(definition) == "    @a(\n        1,  # why\n    )\n    @b\n"


def test_methods_of_a_class_are_its_own() -> None:
    assert set(module(TEXT).methods_of("A")) == {"x", "m", "Inner", "guarded"}
    assert module(TEXT).methods_of("A.Inner") == ["m"]


def test_a_source_that_is_not_there() -> None:
    for name in ("transformers.models.nowhere.modeling_nowhere", "no_such_package.mod"):
        with pytest.raises(BadInput) as caught:
            read_source(name, Libraries())
        assert name in caught.value.message


def test_reading_twice_parses_once() -> None:
    name = "transformers.models.llama.modeling_llama"
    assert read_source(name, Libraries()) is read_source(name, Libraries())


@pytest.mark.parametrize(
    ("statement", "wanted"),
    [
        ("from . import x", "pkg.sub"),
        ("from .other import x", "pkg.sub.other"),
        ("from ..other import x", "pkg.other"),
        ("from ...other import x", "other"),
        ("from other import x", "other"),
    ],
)
def test_relative_imports_become_absolute(statement: str, wanted: str) -> None:
    node = ast.parse(statement).body[0]
    assert isinstance(node, ast.ImportFrom)
    assert absolute(node, "pkg.sub.mod") == wanted


@pytest.mark.parametrize(
    ("spec", "line"),
    [
        (ImportSpec("a", ["b", "c as d"]), "from a import b, c as d"),
        (ImportSpec("a"), "from a import *"),
        (ImportSpec("a.b", is_from_import=False), "import a.b"),
        (ImportSpec("a.b", alias="c", is_from_import=False), "import a.b as c"),
        (ImportSpec("a", ["b"], alias="c"), "from a import b as c"),
    ],
)
def test_added_imports_as_text(spec: ImportSpec, line: str) -> None:
    assert import_line(spec) == line


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("import a\nimport b\n\nX = 1\n\ndef f(): ...\n", 2),
        ('"""Doc."""\nX = 1\n', 1),
        ("X = 1\n", 0),
        ("import a\nX = 1\nif X:\n    import b\n\ndef f(): ...\nimport c\n", 4),
        ("import a\ntry:\n    import b\nexcept ImportError:\n    b = None\nX = 1\n", 5),
    ],
)
def test_additions_go_behind_the_import_section(text: str, line: int) -> None:
    assert insertion_line(module(text)) == line


SCOPES = """
    import json
    from os import *
    LIMIT = 3

    def decorate(f): return f

    class C(Base):
        size = LIMIT
        table = [late for _ in range(3)]

        @decorate
        def m(self, x=DEFAULT):
            global MADE
            MADE = 1
            def inner():
                return json, x, missing, [comprehended for y in x]
            return inner
"""


def test_scopes_know_bound_and_used_names() -> None:
    scopes = scopes_of(dedent(SCOPES))
    assert {"json", "LIMIT", "decorate", "C", "MADE"} <= scopes.bound
    assert scopes.uses["missing"] == {"C.m"}
    assert scopes.uses["comprehended"] == {"C.m"}
    assert scopes.uses["Base"] == {""}
    assert scopes.uses["DEFAULT"] == {"C"}
    assert "x" not in scopes.uses


def test_scopes_tell_import_time_from_later() -> None:
    eager = scopes_of(dedent(SCOPES)).eager
    assert {"Base", "DEFAULT", "LIMIT", "decorate", "late"} <= set(eager)
    assert not {"missing", "json", "comprehended"} & set(eager)


def test_a_star_import_may_bind_anything() -> None:
    assert scopes_of(dedent(SCOPES)).undefined() == {}
    assert set(scopes_of("x = missing\n").undefined()) == {"missing"}
    assert scopes_of("x = __name__, len\n").undefined() == {}


def test_quoted_annotations_are_read() -> None:
    tree = ast.parse("def f(a: 'list[X]', b: int) -> 'Y | None': return 'Z'\n")
    assert {"X", "Y"} <= set(quoted_names(tree))
    assert "Z" not in set(quoted_names(tree))


CALLS = """
    def helper(x): ...

    class Block:
        def forward(self, x): ...

    class Deep(Block): ...

    class Base:
        def shared(self): ...

    class Model(Base):
        def __init__(self):
            self.one = Block()
            self.many = nn.ModuleList([Deep() for _ in range(3)])
            self.either = Block() if x else None
            self.other = Other()

        def forward(self, x):
            self.one(x)
            self.one.forward(x)
            self.shared()
            for block in self.many[1:]:
                block(x)
            for i, numbered in enumerate(self.many):
                numbered(x)
            self.either(x)
            self.other(x)
            unknown(x)
            return helper(x)
"""


def test_calls_are_followed_as_far_as_the_text_tells() -> None:
    found = [(c.target, c.caller) for c in calls_in(module(CALLS))]
    assert sorted(target for target, _ in found) == ["Base.shared", *["Block.forward"] * 4, "helper"]
    assert {caller for _, caller in found} == {"Model.forward"}


def test_a_relative_path_inside_a_package_has_the_same_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = tmp_path / "outer" / "inner"
    inner.mkdir(parents=True)
    for folder in (inner, inner.parent):
        (folder / "__init__.py").touch()
    monkeypatch.chdir(inner)
    assert package_of(Path("config.py")) == package_of(inner / "config.py") == (tmp_path, "outer.inner.config")
