"""Signatures made from source are `inspect.signature`'s, and `misfit` says what `Signature.bind` does."""

import ast
import importlib
import inspect
import random
from collections.abc import Callable, Iterator
from inspect import Parameter, Signature
from typing import Any

import pytest

from omni_kit.pysource.library import find_library
from omni_kit.pysource.signatures import (
    FunctionNode,
    bind,
    defaults,
    double_star,
    misfit,
    named,
    positional,
    required,
    signature,
    star,
)
from omni_kit.pysource.source import read_source

MODULES = (
    "transformers.activations",
    "transformers.cache_utils",
    "transformers.configuration_utils",
    "transformers.masking_utils",
    "transformers.modeling_attn_mask_utils",
    "transformers.tokenization_utils_base",
    "transformers.utils.generic",
    "transformers.utils.hub",
    "diffusers.configuration_utils",
    "diffusers.image_processor",
    "diffusers.models.attention",
    "diffusers.models.embeddings",
    "diffusers.models.normalization",
    "diffusers.models.resnet",
    "diffusers.schedulers.scheduling_ddim",
    "diffusers.utils.torch_utils",
)


def functions(module: str) -> Iterator[tuple[str, ast.FunctionDef, Callable[..., Any], bool]]:
    """Name, source and object of every function and method of a file; and whether it is looked at on an instance."""
    library = find_library(module.partition(".")[0])
    file = library.module_file(module)
    assert file is not None
    source, imported = read_source(library, file), importlib.import_module(module)
    for name, function in source.functions.items():
        yield name, function, getattr(imported, name, None), False  # type: ignore[misc]
    for name, cls in source.classes.items():
        owner = getattr(imported, name, None)
        for item in cls.body:
            if isinstance(item, ast.FunctionDef) and owner is not None:
                found = inspect.getattr_static(owner, item.name, None)
                if isinstance(found, staticmethod | classmethod) and item.name != "__new__":
                    yield f"{name}.{item.name}", item, getattr(owner, item.name), True
                elif inspect.isfunction(found):
                    yield f"{name}.{item.name}", item, found, False


def same_default(mine: object, theirs: object) -> bool:
    if mine is Parameter.empty or theirs is Parameter.empty:
        return mine is theirs
    assert isinstance(mine, ast.expr)
    try:
        return bool(ast.literal_eval(mine) == theirs)
    except (ValueError, TypeError):
        return True  # an expression, whose value is not read


@pytest.mark.parametrize("module", MODULES)
def test_they_are_those_of_imported_functions(module: str) -> None:
    looked = 0
    for name, node, function, bound in functions(module):
        code = getattr(inspect.unwrap(function), "__code__", None) if callable(function) else None
        line = node.decorator_list[0].lineno if node.decorator_list else node.lineno
        if code is None or code.co_firstlineno != line:
            continue  # another definition took its name
        theirs, mine = inspect.signature(function, follow_wrapped=True), signature(node, bound=bound)
        pairs = list(zip(mine.parameters.values(), theirs.parameters.values(), strict=False))
        shown = f"{module}.{name}: {mine} and {theirs}"
        assert list(mine.parameters) == list(theirs.parameters), shown
        assert all(a.kind == b.kind and same_default(a.default, b.default) for a, b in pairs), shown
        looked += 1
    assert looked > 3


WRITTEN = (
    "def f(): pass",
    "def f(a, b=1): pass",
    "def f(a, /, b, *, c, d=2): pass",
    "def f(*args, c): pass",
    "def f(a, b=1, *args, c=2, **kwargs): pass",
    "def f(a=0, /, **kwargs): pass",
    "lambda a, *, b=1: a",
)


def written(text: str) -> FunctionNode:
    node = ast.parse(text).body[0]
    made = node.value if isinstance(node, ast.Expr) else node
    assert isinstance(made, ast.FunctionDef | ast.Lambda)
    return made


@pytest.mark.parametrize("text", WRITTEN)
def test_whether_a_call_fits_is_what_bind_says(text: str) -> None:
    names: dict[str, Any] = {}
    exec(f"f = {text}" if text.startswith("lambda") else text, names)
    mine, theirs = signature(written(text)), inspect.signature(names["f"])
    chosen = random.Random(text)
    for _ in range(150):
        count, keywords = chosen.randrange(5), chosen.sample("abcdx", chosen.randrange(4))
        for partial in (False, True):
            assert bool(misfit(mine, count, keywords, partial)) is not fits(theirs, count, keywords, partial)


def fits(signature: Signature, count: int, keywords: list[str], partial: bool) -> bool:
    try:
        (signature.bind_partial if partial else signature.bind)(*[0] * count, **dict.fromkeys(keywords, 0))
    except TypeError:
        return False
    return True


@pytest.mark.parametrize(
    ("count", "keywords", "said"),
    [
        (1, ["b"], ""),
        (3, [], "3 positional arguments for 2 parameters"),
        (1, ["a"], "'a' is passed twice"),
        (0, ["x"], "it has no parameter 'x'"),
        (0, ["b"], "'a' is not passed"),
    ],
)
def test_why_a_call_does_not_fit(count: int, keywords: list[str], said: str) -> None:
    assert misfit(signature(written("def f(a, b=1): pass")), count, keywords) == said


def test_a_method_is_seen_from_its_instance_unless_it_is_static() -> None:
    assert list(signature(written("def f(self, a): pass"), bound=True).parameters) == ["a"]
    assert list(signature(written("@staticmethod\ndef f(a): pass"), bound=True).parameters) == ["a"]
    assert list(signature(written("def f(*args): pass"), bound=True).parameters) == ["args"]


def test_what_a_signature_consists_of() -> None:
    made = signature(written("def f(a, /, b=1, *args, c, d: int = 2, **kwargs): pass"))
    assert (list(named(made)), positional(made), required(made)) == (["a", "b", "c", "d"], ["a", "b"], ["a", "c"])
    assert {name: ast.unparse(one) for name, one in defaults(made).items()} == {"b": "1", "d": "2"}
    assert (star(made), double_star(made)) == ("args", "kwargs")
    given = bind(made, [1, 2, 3], {"c": 4, "x": 5}).arguments
    assert given == {
        "a": 1,
        "b": 2,
        "args": (3,),
        "c": 4,
        "kwargs": {"x": 5},
    }


def test_a_parameter_twice_is_not_a_crash() -> None:
    assert list(signature(written("lambda a, a: 0")).parameters) == ["a"]
