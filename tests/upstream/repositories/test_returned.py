"""What a forward returns, as its authors wrote it."""

import ast
import textwrap

import pytest

from omni_kit.upstream.repositories.returned import LIST, MAPPING, OBJECT, TENSOR, TUPLE, Returned, returned_by


@pytest.mark.parametrize(("body", "meant"), [
    ("return x", Returned()),
    ("return x, t", Returned(TUPLE, 2)),
    ("return [x, t]", Returned(LIST)),
    ("return Output(sample=x)", Returned(OBJECT)),
    ("return {'x': x, 'mask': t}", Returned(MAPPING, keys=("x", "mask"))),
    ("return dict(x=x)", Returned(MAPPING, keys=("x",))),
    ("out = {}\nout['mask'] = t\nout['x'] = x\nreturn out", Returned(MAPPING, keys=("x", "mask"))),
    ("if whole:\n    return {'x': x}\nreturn x", Returned()),
    ("if whole:\n    if t:\n        return x, t\n    return [x]\nreturn {'x': x}", Returned(MAPPING, 2, ("x",))),
])  # fmt: skip
def test_the_last_return_as_written_is_the_form(body: str, meant: Returned) -> None:
    function = ast.parse(f"def forward(self, x, t, whole=True):\n{textwrap.indent(body, '    ')}").body[0]
    assert isinstance(function, ast.FunctionDef)
    assert returned_by(function) == meant
    assert (meant.form == TENSOR) == (body.endswith("return x"))
