"""A to-do that only a plan says reaches its file, where verify reads it."""

from pathlib import Path

import pytest

from omni_kit.scaffold import new_model
from omni_kit.scaffold.render import left_open, with_marks
from omni_kit.targets.protocol import Todo
from omni_kit.verify.unfinished import left_to_do


def test_a_todo_without_a_line_gets_one_where_it_belongs() -> None:
    files = {"a.py": "def f():\n    return 1\n", "b.md": "text\n"}
    marked = with_marks(files, [Todo("a.py", 2, "return two"), Todo("b.md", 1, "write more")])
    assert marked["a.py"] == "def f():\n    # TODO(omni-kit): return two\n    return 1\n"
    assert marked["b.md"] == files["b.md"]
    assert [(one.line, one.what) for one in left_open(marked)] == [(2, "return two")]


def test_a_line_that_says_so_itself_stays_alone() -> None:
    files = {"a.py": "# TODO(omni-kit): return two\nreturn 1\n"}
    assert with_marks(files, [Todo("a.py", 1, "return two")]) == files


@pytest.mark.parametrize(("name", "left"), [("PriorTransformer", "write get_condition"), ("gpt2", "")])
def test_every_todo_of_a_plan_is_in_a_file(tmp_path: Path, name: str, left: str) -> None:
    made = new_model("mine", name, target="veomni", into=tmp_path)
    found = [one.what for one in left_to_do(tmp_path / "mine")]
    assert [one.what for one in made.plan.todo] == found
    assert bool(found) == bool(left)
    assert all(left in line for line in found)
