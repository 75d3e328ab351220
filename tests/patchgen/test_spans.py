"""Positions, splices and re-indenting."""

import ast
from textwrap import dedent

import pytest

from omni_kit.patchgen.spans import Edit, Source, first_line, last_line, shift, splice


def test_offsets_count_characters_not_bytes() -> None:
    source = Source("x = 'é🚀'; y = 1\n")
    second = ast.parse(source.text).body[1]
    assert source.of(second) == "y = 1"
    assert source.text[source.start_of(second) :] == "y = 1\n"


def test_rows_and_lines_keep_their_ends() -> None:
    source = Source("a\nb\n\nc")
    assert source.rows(2, 3) == "b\n\n"
    assert source.rows(4, 4) == "c"
    assert source.line_start(99) == len(source.text)


def test_splice_applies_all_and_keeps_the_rest() -> None:
    edits = [Edit(5, 6, "Y"), Edit(0, 1, "X"), Edit(3, 3, "+")]
    assert splice("abcdefg", edits) == "Xbc+deYg"


def test_insertions_at_one_place_keep_their_order() -> None:
    assert splice("ab", [Edit(1, 1, "1"), Edit(1, 1, "2"), Edit(1, 2, "B")]) == "a12B"


def test_overlapping_edits_are_refused() -> None:
    with pytest.raises(ValueError):
        splice("abcdef", [Edit(0, 3, ""), Edit(2, 4, "")])


def test_first_line_is_the_first_decorator() -> None:
    node = ast.parse("@a\n@b(\n  1)\ndef f(): ...\n").body[0]
    assert first_line(node) == 1


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("def f():\n    return 1\n    # inside\n\n# outside\n", 3),
        ("def f():\n    return 1\n\n    # inside\nx = 1\n", 4),
        ("def f():\n    return 1\n\n\nx = 1\n", 2),
        ("def f():\n    return 1", 2),
    ],
)
def test_last_line_takes_the_comments_of_the_body(text: str, wanted: int) -> None:
    assert last_line(Source(text), ast.parse(text).body[0]) == wanted


FUNCTION = dedent(
    '''
    def f(x):
        """Doc
        string."""
        a = """one
      two
            three"""
        b = f"""{x}
    four {x!r}
    """
        c = "five \\
    six"
        return a + b + c
    '''
).lstrip("\n")


@pytest.mark.parametrize("indent", [0, 4, 8])
def test_shift_keeps_string_values(indent: int) -> None:
    moved = shift(FUNCTION, 0, indent)
    scope: dict[str, object] = {}
    wanted: dict[str, object] = {}
    exec("if 1:\n" + moved if indent else moved, scope)
    exec(FUNCTION, wanted)
    assert scope["f"](1) == wanted["f"](1)  # type: ignore[operator]


def test_shift_there_and_back_is_nothing() -> None:
    assert shift(shift(FUNCTION, 0, 4), 4, 0) == FUNCTION


def test_shift_leaves_blank_lines_blank() -> None:
    assert shift("a\n\n   \nb\n", 0, 2) == "  a\n\n   \n  b\n"
