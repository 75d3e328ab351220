"""Inputs on which a careless generator is wrong without a word, one test a row."""

import ast
import re
from pathlib import Path

import pytest

from omni_kit.errors import BadInput
from omni_kit.patchgen import ConfigResult, check_configs, run_config, run_configs
from omni_kit.patchgen.diagnostics import Severity
from tests.patchgen.conftest import World

CLASS = """
    class C:
        def m(self, x):
            return x

        def other(self):
            return 1
"""


def errors(result: ConfigResult) -> set[str]:
    return {d.code for d in result.diagnostics if d.severity is Severity.error}


def codes(result: ConfigResult) -> set[str]:
    return {d.code for d in result.diagnostics}


def method(text: str, path: str) -> ast.FunctionDef | ast.AsyncFunctionDef:
    """The function at "C.m" of a text; fails when there is not exactly one."""
    nodes: list[ast.stmt] = ast.parse(text).body
    for name in path.split("."):
        found = [n for n in nodes if getattr(n, "name", None) == name]
        assert len(found) == 1, (path, len(found))
        node = found[0]
        nodes = getattr(node, "body", [])
    assert isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    return node


@pytest.mark.parametrize(
    "patch",
    [
        "@config.replace_class('D')\nclass New: ...",
        "@config.replace_function('f')\ndef new(): ...",
        "@config.override_method('D.m')\ndef new(self): ...",
        "@config.modify_init('C')\ndef new(original_init, self):\n    original_init(self)",
        "@config.add_helper_after('D')\ndef new(): ...",
        "config.exclude_from_output('D')",
        "config.patches.append(create_patch_from_external('D', 'json', 'JSONDecoder'))",
    ],
)
def test_missing_target_is_an_error_and_nothing_is_written(patch: str, world: World, tmp_path: Path) -> None:
    path = world(CLASS, "")
    path.write_text(path.read_text() + patch + "\n")
    result = run_config(path, tmp_path / "out")
    assert result.status == "error"
    assert errors(result) == {"missing-target"}
    assert not (tmp_path / "out").exists()


def test_unknown_method_is_injected_aloud(world: World) -> None:
    result = run_config(world(CLASS, "@config.override_method('C.fresh')\ndef fresh(self):\n    return 2\n"))
    assert [a.status for a in result.patches] == ["injected"]
    assert "injected" in codes(result)
    assert method(result.text, "C.fresh")


def test_strict_asks_for_inject(world: World) -> None:
    text = "@config.override_method('C.fresh'{})\ndef fresh(self):\n    return 2\n"
    assert errors(run_config(world(CLASS, text.format(""), arguments=", strict=True"))) == {"injected"}
    assert not errors(run_config(world(CLASS, text.format(", inject=True"), arguments=", strict=True")))


def test_strict_makes_warnings_errors(world: World) -> None:
    same = "@config.override_method('C.m')\ndef m(self, x):\n    return x\n"
    assert run_config(world(CLASS, same)).status == "written"
    assert errors(run_config(world(CLASS, same, arguments=", strict=True"))) == {"no-change"}


def test_modify_init_runs_both(world: World) -> None:
    upstream = """
        class Base:
            def __init__(self, size):
                self.size = size

        class C(Base):
            def __init__(self, size, extra=1):
                super().__init__(size)
                if extra:
                    self.extra = extra
    """
    config = """
        @config.modify_init("C")
        def wider(original_init, self, size, extra=1):
            '''Twice as wide.'''
            original_init(self, size * 2, extra=extra)
            self.added = self.size + 1
    """
    result = run_config(world(upstream, config))
    scope: dict[str, object] = {}
    exec(result.text, scope)
    made = scope["C"](3, extra=7)  # type: ignore[operator]
    assert (made.size, made.extra, made.added) == (6, 7, 7)


def test_lambda_is_refused(world: World) -> None:
    config = "config.replace_function('f', replacement=lambda x: x)\n"
    assert errors(run_config(world("def f(x):\n    return 1\n", config))) == {"no-source"}


@pytest.mark.parametrize(
    "decorated",
    [
        "replace = config.override_method\n\n@replace('C.m')",
        "def register(target):\n    return config.override_method(target)\n\n@register('C.m')",
        "from functools import partial\n\nmine = partial(config.override_method, description='x')\n\n@mine('C.m')",
    ],
)
def test_aliased_decorator_is_taken_off(decorated: str, world: World) -> None:
    path = world(CLASS, "")
    path.write_text(path.read_text() + f"{decorated}\ndef m_patched(self, x):\n    return x + 1\n")
    result = run_config(path)
    assert result.status == "written"
    assert "aliased-decorator" in codes(result)
    assert method(result.text, "C.m").decorator_list == []


def test_overload_stub_is_not_patched(world: World) -> None:
    upstream = """
        from typing import overload

        class C:
            @overload
            def m(self, x: int) -> int: ...
            @overload
            def m(self, x: str) -> str: ...
            def m(self, x):
                return x
    """
    result = run_config(world(upstream, "@config.override_method('C.m')\ndef m(self, x):\n    return x * 2\n"))
    bodies = [ast.unparse(n) for n in ast.parse(result.text).body[-1].body]  # type: ignore[attr-defined]
    assert len(bodies) == 3
    assert all("overload" in body for body in bodies[:2])
    assert "x * 2" in bodies[2]


def test_property_and_setter_are_told_apart(world: World) -> None:
    upstream = """
        class C:
            @property
            def x(self):
                return self._x

            @x.setter
            def x(self, value):
                self._x = value
    """
    config = """
        @config.override_method("C.x")
        def getter(self):
            return self._x + 1


        @config.override_method("C.x.setter")
        def setter(self, value):
            self._x = value * 10
    """
    result = run_config(world(upstream, config))
    scope: dict[str, object] = {}
    exec(result.text, scope)
    made = scope["C"]()  # type: ignore[operator]
    made.x = 3
    assert made.x == 31


def test_own_property_decorator_is_not_doubled(world: World) -> None:
    upstream = "class C:\n    @property\n    def x(self):\n        return 1\n"
    config = "@config.override_method('C.x')\n@property\ndef x(self):\n    return 2\n"
    result = run_config(world(upstream, config))
    scope: dict[str, object] = {}
    exec(result.text, scope)
    assert scope["C"]().x == 2  # type: ignore[operator]


def test_same_target_twice_is_an_error(world: World) -> None:
    config = "\n".join(f"@config.override_method('C.m')\ndef m{i}(self, x):\n    return {i}\n" for i in (1, 2))
    assert errors(run_config(world(CLASS, config))) == {"duplicate-target"}


def test_layered_configs_may_patch_again(world: World, tmp_path: Path) -> None:
    world(CLASS, "@config.override_method('C.m')\ndef m(self, x):\n    return 1\n", name="gpu_patch_gen_config.py")
    layer = tmp_path / "npu_patch_gen_config.py"
    layer.write_text(
        "from gpu_patch_gen_config import config\n\n@config.override_method('C.m')\ndef m(self, x):\n    return 2\n"
    )
    result = run_config(layer)
    assert [a.status for a in result.patches] == ["shadowed", "applied"]
    assert "return 2" in ast.unparse(method(result.text, "C.m"))


def test_override_inside_a_replaced_class_is_an_error(world: World) -> None:
    config = """
        @config.replace_class("C")
        class New:
            def m(self, x):
                return 3


        @config.override_method("C.m")
        def m(self, x):
            return 4
    """
    assert errors(run_config(world(CLASS, config))) == {"shadowed"}


def test_name_map_leaves_strings_comments_and_substrings_alone(world: World) -> None:
    upstream = "class WideNorm: ...\n\n\nclass WideLayer:\n    def m(self):\n        return 0\n"
    config = '''
        class Normaliser: ...


        config.add_helper(Normaliser)


        def m(self):
            """Norm stays Norm here."""
            # and Norm here
            norm = Normaliser
            return Norm, norm, "Norm", f"{Norm} is a Norm"


        config.override_method("WideLayer.m", replacement=m, name_map={"Norm": "WideNorm"})
    '''
    result = run_config(world(upstream, config))
    assert "Norm stays Norm here" in result.text
    assert "# and Norm here" in result.text
    assert 'return WideNorm, norm, "Norm", f"{WideNorm} is a Norm"' in result.text


def test_name_map_does_not_lose_the_patch_by_its_own_name(world: World) -> None:
    config = """
        def qwen3_forward(self, x):
            return qwen3_scale(x)


        config.add_helper(qwen3_forward)
        config.override_method("C.m", replacement=qwen3_forward, name_map={"qwen3": "qwen3_moe"})
    """
    result = run_config(
        world(CLASS + "\n    def qwen3_moe_scale(x):\n        return x\n\n    qwen3_scale = None\n", config)
    )
    assert "qwen3_moe_scale(x)" in ast.unparse(method(result.text, "C.m"))


def test_triple_quoted_strings_keep_their_value(world: World) -> None:
    config = '''
        @config.override_method("C.m")
        def m(self, x):
            text = """first
        second
            third
        """
            raw = f"""{x}
          four"""
            return text + raw
    '''
    path = world(CLASS, "")
    import textwrap

    body = textwrap.dedent(config).lstrip("\n")
    path.write_text(path.read_text() + body)
    result = run_config(path)
    scope: dict[str, object] = {}
    exec(result.text, scope)
    wanted: dict[str, object] = {}
    exec(body.partition("\n")[2], wanted)
    assert scope["C"]().m(1) == wanted["m"](None, 1)  # type: ignore[operator]


def test_nested_classes_are_addressable(world: World) -> None:
    inner = "    class Inner:\n        def m(self):\n            return 1\n"
    upstream = f"class Outer:\n{inner}\n    def m(self):\n        return 2\n"
    config = """
        @config.override_method("Outer.Inner.m")
        def inner(self):
            return 10


        @config.override_method("Outer.Inner.fresh", inject=True)
        def fresh(self):
            return 11
    """
    scope: dict[str, object] = {}
    exec(run_config(world(upstream, config)).text, scope)
    outer = scope["Outer"]
    assert outer.Inner().m() == 10  # type: ignore[attr-defined]
    assert outer.Inner().fresh() == 11  # type: ignore[attr-defined]
    assert outer().m() == 2  # type: ignore[operator]


def test_sync_patch_of_an_async_target_is_an_error(world: World) -> None:
    upstream = "class C:\n    async def m(self):\n        return 1\n"
    config = "@config.override_method('C.m')\ndef m(self):\n    return 2\n"
    assert errors(run_config(world(upstream, config))) == {"async-mismatch"}


def test_method_under_if_is_patched_where_it_stands(world: World) -> None:
    upstream = "import sys\n\n\nclass C:\n    if sys.maxsize > 3:\n\n        def m(self):\n            return 1\n"
    result = run_config(world(upstream, "@config.override_method('C.m')\ndef m(self):\n    return 2\n"))
    guard = ast.parse(result.text).body[-1].body[0]  # type: ignore[attr-defined]
    assert isinstance(guard, ast.If)
    assert "return 2" in ast.unparse(guard)
    assert "guarded-target" in codes(result)


def test_every_kind_of_top_level_statement_stays(world: World) -> None:
    upstream = '''
        # Licence
        """Docstring."""
        import contextlib
        import sys

        LIMIT: int = 3
        LIMIT += 1
        if sys.maxsize > 5:
            import json
        try:
            import fast_thing
        except ImportError:
            fast_thing = None
        for name in ("a", "b"):
            globals()[name] = 1
        with contextlib.suppress(KeyError):
            SEEN = 1
        assert LIMIT == 4
        del name

        # about f
        def f():
            return json, fast_thing
    '''
    config = "@config.replace_function('f')\ndef f_patched():\n    return json, fast_thing, SEEN\n"
    result = run_config(world(upstream, config))
    kinds = [type(n) for n in ast.parse(result.text).body]
    for kind in (ast.AnnAssign, ast.AugAssign, ast.If, ast.Try, ast.For, ast.With, ast.Assert, ast.Delete):
        assert kind in kinds, kind
    assert "# Licence" in result.text
    assert "# about f" in result.text
    assert ast.get_docstring(ast.parse(result.text)) == "Docstring."
    exec(result.text, {"__name__": "x"})


def test_guarded_imports_stay_guarded(world: World) -> None:
    upstream = "import sys\n\nif sys.maxsize < 0:\n    import nowhere\n\n\ndef f():\n    return nowhere\n"
    result = run_config(world(upstream, "config.add_import('json', is_from_import=False)\n"))
    guard = next(n for n in ast.parse(result.text).body if isinstance(n, ast.If))
    assert "import nowhere" in ast.unparse(guard)
    exec(result.text, {})


def test_undefined_name_is_an_error(world: World) -> None:
    config = "@config.override_method('C.m')\ndef m(self, x):\n    return missing(x)\n"
    result = run_config(world(CLASS, config))
    assert errors(result) == {"undefined-name"}
    assert result.diagnostics[0].names == ("missing",)
    assert re.search(r"missing is not defined; the module of \w+ \S+ lacks it: ", result.diagnostics[0].message)


def test_dropped_import_in_use_is_an_error(world: World) -> None:
    upstream = "import json\n\n\ndef f():\n    return json\n"
    assert errors(run_config(world(upstream, "config.drop_import_names('json')\n"))) == {"undefined-name"}


def test_a_config_that_fails_to_import_is_an_error_of_the_check(world: World, tmp_path: Path) -> None:
    good = world(CLASS, "@config.override_method('C.m')\ndef m(self, x):\n    return 2\n")
    run_config(good)
    bad = tmp_path / "bad_patch_gen_config.py"
    bad.write_text("import json.nowhere\n")
    results = check_configs([good, bad])
    assert [r.status for r in results] == ["ok", "error"]
    assert errors(results[1]) == {"cannot-load"}


def test_orphans_are_seen(world: World, tmp_path: Path) -> None:
    good = world(CLASS, "@config.override_method('C.m')\ndef m(self, x):\n    return 2\n")
    result = run_config(good)
    assert result.output is not None
    left = result.output.with_name("patched_modeling_old.py")
    left.write_text(result.text)
    found = check_configs([good])
    assert [r.status for r in found] == ["ok", "orphan"]
    assert found[1].output == left


def test_no_configs_are_no_pass() -> None:
    with pytest.raises(BadInput):
        check_configs([])


def test_old_file_stands_when_ruff_fails(world: World, tmp_path: Path) -> None:
    path = world(CLASS, "@config.override_method('C.m')\ndef m(self, x):\n    return 2\n")
    first = run_config(path)
    assert first.output is not None
    (tmp_path / "ruff.toml").write_text("line-length = 'wide'\n")
    path.write_text(path.read_text().replace("return 2", "return 3"))
    second = run_config(path)
    assert errors(second) == {"format-failed"}
    assert first.output.read_text() == first.text
    assert [p.name for p in first.output.parent.iterdir()] == ["after.py"]


def test_empty_bodies_take_a_method(world: World) -> None:
    upstream = """
        class A: ...  # nothing


        class B(A):
            pass


        class D(
            A,
        ): ...


        class E: "doc"


        class F: x = 1; y = 2
    """
    config = "\n".join(
        f"@config.override_method('{name}.m', inject=True)\ndef m_{name}(self):\n    return '{name}'\n\n"
        for name in "ABDEF"
    )
    result = run_config(world(upstream, config))
    assert result.status == "written", result.diagnostics
    scope: dict[str, object] = {}
    exec(result.text, scope)
    assert [scope[name]().m() for name in "ABDEF"] == list("ABDEF")  # type: ignore[operator]
    assert scope["F"].y == 2  # type: ignore[attr-defined]
    assert "# nothing" in result.text


def test_replaced_class_may_speak_of_itself(world: World) -> None:
    config = """
        @config.replace_class("C")
        class Patched:
            def m(self, x):
                return super(Patched, self).__str__() and Patched.__name__
    """
    scope: dict[str, object] = {}
    exec(run_config(world(CLASS, config)).text, scope)
    assert scope["C"]().m(1) == "C"  # type: ignore[operator]


def test_external_replacements_of_all_kinds(world: World) -> None:
    upstream = """
        from functools import lru_cache

        class Old: ...

        def f(x):
            return x

        class C:
            @lru_cache
            def m(self):
                return 1
    """
    config = """
        for target, module, name, kind in [
            ("Old", "collections", "OrderedDict", PatchType.CLASS_REPLACEMENT),
            ("f", "math", "sqrt", PatchType.FUNCTION_REPLACEMENT),
            ("C.m", "operator", "index", PatchType.METHOD_OVERRIDE),
        ]:
            config.patches.append(create_patch_from_external(target, module, name, kind))
    """
    result = run_config(world(upstream, config))
    scope: dict[str, object] = {}
    exec(result.text, scope)
    assert scope["Old"].__name__ == "OrderedDict"  # type: ignore[attr-defined]
    assert scope["f"](9) == 3  # type: ignore[operator]
    assert hasattr(scope["C"].m, "cache_info")  # type: ignore[attr-defined]


def test_two_configs_of_one_file_are_an_error(world: World, tmp_path: Path) -> None:
    first = world(CLASS, "", name="one_patch_gen_config.py")
    second = world(CLASS, "", name="two_patch_gen_config.py")
    run_configs([first])
    assert "same-output" in errors(check_configs([first, second])[1])


def test_unreadable_source_is_an_error(world: World, tmp_path: Path) -> None:
    path = world(CLASS, "")
    (tmp_path / "upstream_module.py").write_text("def broken(:\n")
    assert errors(run_config(path)) == {"no-source-module"}


def test_an_optional_source_may_be_absent(world: World, tmp_path: Path) -> None:
    path = world(CLASS, "")
    path.write_text(path.read_text().replace('"upstream_module"', '"not_installed.mod"'))
    assert errors(run_config(path)) == {"no-source-module"}
    path.write_text(path.read_text().replace('target_file="after.py"', 'target_file="after.py", optional=True'))
    result = run_config(path)
    assert result.status == "ok"
    assert "skipped" in result.notes[0]
    assert not (tmp_path / "generated").exists()
    assert [r.status for r in check_configs([path])] == ["ok"]


def test_a_guarded_definition_can_be_excluded(world: World) -> None:
    upstream = "import sys\n\nif sys.maxsize > 3:\n\n    class Gone: ...\n\n\nclass Stays: ...\n"
    scope: dict[str, object] = {}
    exec(run_config(world(upstream, "config.exclude_from_output('Gone')\n")).text, scope)
    assert "Gone" not in scope
    assert "Stays" in scope
