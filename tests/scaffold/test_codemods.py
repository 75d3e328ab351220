"""Edits of existing files: as small as can be, and only once."""

import pytest

from omni_kit.errors import BadInput
from omni_kit.scaffold.codemods import apply_edit
from omni_kit.targets.protocol import ImportEntry, ListEntry

INIT = """# licence

from . import (
    llama,
    qwen3,  # the newest
)


__all__ = [
    "llama",
    "qwen3",
]
"""
ADD = ImportEntry("x.py", ".", "olmoe")
ALL = ListEntry("x.py", "__all__", '"olmoe"')


def test_import_takes_its_place_in_the_alphabet() -> None:
    assert apply_edit(INIT, ADD) == INIT.replace("    llama,\n", "    llama,\n    olmoe,\n", 1)


def test_import_at_the_end() -> None:
    text = "from . import (\n    llama,\n    qwen3,\n)\n"
    assert apply_edit(text, ImportEntry("x", ".", "zaya")) == text.replace("    qwen3,\n", "    qwen3,\n    zaya,\n")


def test_import_on_one_line() -> None:
    assert apply_edit("from . import llama\n", ADD) == "from . import llama, olmoe\n"


def test_list_entry_goes_last() -> None:
    assert apply_edit(INIT, ALL) == INIT.replace('    "qwen3",\n]', '    "qwen3",\n    "olmoe",\n]')


def test_list_of_calls() -> None:
    text = 'CASES = [\n    pytest.param("a", True, id="a"),\n    pytest.param("b", False, id="b"),\n]\n'
    element = 'pytest.param("c", True, id="c")'
    added = apply_edit(text, ListEntry("x", "CASES", element))
    assert added == text.replace("]\n", f"    {element},\n]\n")
    assert apply_edit(added, ListEntry("x", "CASES", element)) == added


def test_empty_list() -> None:
    assert apply_edit("CASES = []\n", ListEntry("x", "CASES", "1")) == "CASES = [1]\n"


@pytest.mark.parametrize("edit", [ADD, ALL])
def test_twice_is_once(edit: ImportEntry | ListEntry) -> None:
    once = apply_edit(INIT, edit)
    assert apply_edit(once, edit) == once


@pytest.mark.parametrize(
    ("text", "edit", "says"),
    [
        ("import os\n", ADD, r"has no 'from \. import"),
        ("import os\n", ALL, "has no list __all__"),
        ("from . import (", ADD, "is not valid Python"),
    ],
)
def test_nothing_to_edit_is_said(text: str, edit: ImportEntry | ListEntry, says: str) -> None:
    with pytest.raises(BadInput, match=says):
        apply_edit(text, edit)
