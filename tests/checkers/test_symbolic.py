"""Symbolic execution: what code would do, on every path, without running it."""

import ast
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from omni_checkers.symbolic import Call, Evaluator, Exhausted, Opaque, Outcome, Program, Record, explore, show


def outcomes(tmp_path: Path, text: str, arguments: tuple[Any, ...] = (Opaque("<x>"),), **files: str) -> list[Outcome]:
    """Every path through `f` of a package whose `__init__.py` is `text`."""
    package = tmp_path / "package"
    package.mkdir(exist_ok=True)
    for name, content in {"__init__": text, **files}.items():
        (package / f"{name}.py").write_text(dedent(content), encoding="utf-8")
    program = Program(package, "package", lambda path: ast.parse(path.read_text(encoding="utf-8")))
    module = program.module("package")
    assert module is not None

    def run(oracle: Any) -> Outcome:
        evaluator = Evaluator(program, oracle)
        names = evaluator.run_module(module)
        return evaluator.call_function(names.names["f"], list(arguments), {})

    return list(explore(run))


def values(tmp_path: Path, text: str, **files: str) -> list[str]:
    """What `f` returns on each path, or what it raises."""
    found = outcomes(tmp_path, text, (Opaque("<x>"),), **files)
    return [outcome.raised or show(outcome.value) for outcome in found]


def body(*lines: str) -> str:
    return "def f(x):\n" + "".join(f"    {line}\n" for line in lines)


class TestPaths:
    def test_a_condition_that_is_not_known_gives_two(self, tmp_path: Path) -> None:
        assert values(tmp_path, body("if 'A' in x:", "    return 1", "return 2")) == ["1", "2"]

    def test_the_same_condition_has_one_answer_on_a_path(self, tmp_path: Path) -> None:
        text = body("a = 1 if x else 2", "b = 1 if x else 2", "return (a, b)")
        assert values(tmp_path, text) == ["[1, 1]", "[2, 2]"]

    def test_a_negated_condition_is_the_same_condition(self, tmp_path: Path) -> None:
        text = body("a = 1 if 'A' in x else 2", "b = 1 if 'A' not in x else 2", "return (a, b)")
        assert values(tmp_path, text) == ["[1, 2]", "[2, 1]"]

    def test_a_condition_that_is_known_gives_one(self, tmp_path: Path) -> None:
        assert values(tmp_path, body("if 2 > 1:", "    return 1", "return 2")) == ["1"]

    def test_a_key_that_is_not_known_may_be_any(self, tmp_path: Path) -> None:
        assert values(tmp_path, body("return {'a': 1, 'b': 2}[x]")) == ["1", "2"]
        assert values(tmp_path, body("return {'a': 1}.get(x, 0)")) == ["1", "0"]

    def test_an_exception_ends_a_path(self, tmp_path: Path) -> None:
        assert values(tmp_path, body("if x:", "    raise ValueError(x)", "return 1")) == ["ValueError(x)", "1"]

    def test_too_many_are_said(self, tmp_path: Path) -> None:
        lines = [f"if x == {number}: x = x" for number in range(12)]
        with pytest.raises(Exhausted):
            values(tmp_path, body(*lines, "return x"))

    def test_an_endless_loop_is_said(self, tmp_path: Path) -> None:
        with pytest.raises(Exhausted):
            values(tmp_path, body("while True:", "    x = x"))


class TestValues:
    @pytest.mark.parametrize(
        ("expression", "value"),
        [
            ("'a' + 'b'", "'ab'"),
            ("f'{1}-{\"b\"}'", "'1-b'"),
            ("'%s' % 'a'", "'a'"),
            ("[n * 2 for n in range(4) if n % 2]", "[2, 6]"),
            ("{k: v for k, v in zip('ab', (1, 2))}", "{'a': 1, 'b': 2}"),
            ("sorted({'b', 'a'})", "['a', 'b']"),
            ("len([*(1, 2), 3])", "3"),
            ("{**{'a': 1}, 'b': 2}", "{'a': 1, 'b': 2}"),
            ("'a.b'.split('.')", "['a', 'b']"),
            ("(lambda y, z=2: (y, z))(1)", "[1, 2]"),
            ("[1, 2, 3][-1]", "3"),
            ("[1, 2, 3][1:]", "[2, 3]"),
            ("list(enumerate('ab', 1))", "[[1, 'a'], [2, 'b']]"),
            ("(y := 3) + y", "6"),
            ("not None", "True"),
            ("1 < 2 < 3", "True"),
            ("dict(a=1) | {'b': 2}", "{'a': 1, 'b': 2}"),
        ],
    )
    def test_of_known_expressions(self, expression: str, value: str, tmp_path: Path) -> None:
        assert values(tmp_path, body(f"return {expression}")) == [value]

    @pytest.mark.parametrize(
        ("lines", "value"),
        [
            (["a, *b = x", "return a"], "<x>[0]"),
            (["d = {}", "d.setdefault('a', []).append(1)", "return d"], "{'a': [1]}"),
            (["a = []", "for n in (1, 2):", "    if n == 2: break", "    a.append(n)", "return a"], "[1]"),
            (["n = 0", "while n < 3: n += 1", "return n"], "3"),
            (["n = 0", "while n < 3: n += 1", "else: n = 9", "return n"], "9"),
            (["n = 0", "while n < 3: break", "else: n = 9", "return n"], "0"),
            (["try:", "    return {}['a']", "except KeyError:", "    return 1"], "1"),
            (["with open(x) as file:", "    return 1"], "1"),
            (["match 'b':", "    case 'a': return 1", "    case 'b': return 2"], "2"),
            (["def g(*args, **kwargs): return (args, kwargs)", "return g(1, b=2)"], "[[1], {'b': 2}]"),
            (["from functools import partial", "return partial(lambda a, b: (a, b), 1)(b=2)"], "[1, 2]"),
            (["return getattr(x, 'a')"], "<x>.a"),
            (["global y", "y = 1", "return y"], "1"),
        ],
    )
    def test_after_statements(self, lines: list[str], value: str, tmp_path: Path) -> None:
        assert values(tmp_path, body(*lines)) == [value]

    @pytest.mark.parametrize(
        "expression", ["[].pop()", "re.compile('(')", "'{}'.format()", "{1}.remove(2)", "{}.pop(1)"]
    )
    def test_of_a_call_that_fails_are_not_guessed(self, expression: str, tmp_path: Path) -> None:
        (outcome,) = outcomes(tmp_path, "import re\n\n" + body(f"return {expression}"))
        assert outcome.raised is not None or isinstance(outcome.value, (Opaque, Call))

    def test_of_a_record_are_its_attributes_and_no_others(self, tmp_path: Path) -> None:
        record = Record("config", {"hidden_size": 4})
        (fine,) = outcomes(tmp_path, body("return getattr(x, 'text', x).hidden_size"), (record,))
        (wrong,) = outcomes(tmp_path, body("return x.text.hidden_size"), (record,))
        assert fine.value == 4
        assert wrong.raised == "AttributeError: config has no attribute 'text'"
        assert wrong.line == 2


class TestModules:
    def test_imports_within_the_package_are_followed(self, tmp_path: Path) -> None:
        text = "from .names import KEYS as K\nfrom . import names\n\ndef f(x):\n    return K + names.more()\n"
        names = "KEYS = ['a']\n\ndef more():\n    return [PREFIX + 'b']\n\nPREFIX = 'p.'\n"
        assert values(tmp_path, text, names=names) == ["['a', 'p.b']"]

    def test_what_lies_outside_is_a_symbol(self, tmp_path: Path) -> None:
        text = "from torch import nn\nimport os.path as p\n\ndef f(x):\n    return (nn.Linear, p.join)\n"
        assert values(tmp_path, text) == ["[torch.nn.Linear, os.path.join]"]

    def test_a_missing_module_of_the_package_is_an_error(self, tmp_path: Path) -> None:
        assert values(tmp_path, body("from .nothing import g", "return g")) == ["ModuleNotFoundError: package.nothing"]

    def test_a_missing_name_too_and_handlers_see_it(self, tmp_path: Path) -> None:
        lines = ["try:", "    from .names import g", "except ImportError:", "    g = 1", "return g"]
        assert values(tmp_path, body(*lines), names="h = 2\n") == ["1"]

    def test_import_module_is_an_import(self, tmp_path: Path) -> None:
        lines = ["import importlib", "return importlib.import_module('.names', __package__).KEY"]
        assert values(tmp_path, body(*lines), names="KEY = 'a'\n") == ["'a'"]

    def test_a_name_that_is_bound_under_a_condition(self, tmp_path: Path) -> None:
        names = "from torch import npu\n\nif npu.is_available():\n    KEY = 'npu'\nelse:\n    KEY = 'gpu'\n"
        assert values(tmp_path, body("from .names import KEY", "return KEY"), names=names) == ["'npu'", "'gpu'"]

    def test_only_what_is_asked_for_is_executed(self, tmp_path: Path) -> None:
        names = "import torch\n\nflags = [torch.a and 1, torch.b and 1, torch.c and 1]\nKEY = 'a'\n"
        assert values(tmp_path, body("from .names import KEY", "return KEY"), names=names) == ["'a'"]

    def test_modules_that_import_each_other(self, tmp_path: Path) -> None:
        text = "from .names import g\n\nKEY = 1\n\ndef f(x):\n    return g()\n"
        names = "def g():\n    from . import KEY\n    return KEY\n"
        assert values(tmp_path, text, names=names) == ["1"]


class TestClasses:
    def test_attributes_are_stored_on_the_path_that_stores_them(self, tmp_path: Path) -> None:
        text = "class C:\n    pass\n\ndef f(x):\n    if x:\n        C.a = staticmethod(f)\n    return C\n"
        first, second = outcomes(tmp_path, text)
        assert [name for _, name in first.attributes] == ["a"]
        assert not second.attributes

    def test_attributes_are_inherited(self, tmp_path: Path) -> None:
        text = "class A:\n    a = 1\n\nclass B(A):\n    pass\n\ndef f(x):\n    A.b = 2\n    return (B.a, B.b)\n"
        assert values(tmp_path, text) == ["[1, 2]"]

    def test_a_base_of_the_same_name_ends_the_line(self, tmp_path: Path) -> None:
        names = "class A:\n    a = 1\n"
        text = "from .names import A\n\nclass A(A):\n    b = 2\n\ndef f(x):\n    return (A.b, A.a)\n"
        assert values(tmp_path, text, names=names) == ["[2, package.A.a]"]

    def test_bases_that_lead_back_end_the_line(self, tmp_path: Path) -> None:
        classes = "class A:\n    a = 1\n\nclass B(A):\n    b = 2\n\nclass A(B):\n    c = 3\n\n"
        text = classes + "def f(x):\n    return (A.b, A.c)\n"
        assert values(tmp_path, text) == ["[2, 3]"]

    def test_a_call_is_kept_with_its_arguments(self, tmp_path: Path) -> None:
        text = "class A:\n    pass\n\ndef f(x):\n    return A(1, b=2)\n"
        assert values(tmp_path, text) == ["package.A(1, b=2)"]

    def test_a_decorator_of_the_package_is_called(self, tmp_path: Path) -> None:
        twice = "def twice(g):\n    return lambda y: 2 * g(y)\n\n"
        text = twice + "@twice\ndef g(y):\n    return y\n\ndef f(x):\n    return g(4)\n"
        assert values(tmp_path, text) == ["8"]

    def test_a_decorator_of_a_library_leaves_the_function(self, tmp_path: Path) -> None:
        text = "from lib import cached\n\n@cached(size=4)\ndef g(y):\n    return y\n\ndef f(x):\n    return g(4)\n"
        assert values(tmp_path, text) == ["4"]

    def test_recursion_comes_to_an_end(self, tmp_path: Path) -> None:
        assert values(tmp_path, body("return f(x)")) == ["f(...)"]
