"""Samplers that the authors' own code uses, of several that they wrote."""

from pathlib import Path

import pytest

from omni_kit.upstream.repositories.processes.used_samplers import used_samplers
from omni_kit.upstream.repositories.reference import find_reference
from omni_kit.upstream.repositories.sampling import samplings_of
from tests.upstream.repositories.test_authors_calls import NET

CLASSES = """
__all__ = ["First", "Second"]


class First:
    def walk(self, model, x, steps):
        for t in range(steps):
            x = self.part(model, x, t)
        return x

    def sample(self, model, x, steps):
        for t in range(steps):
            x = x - model(x, t) / steps
        return x

    def solver_sample(self, model, x, steps):
        return Solver().solve(model, x, steps)


class Second(First):
    def sample(self, model, x, steps):
        for t in range(steps):
            x = x + model(x, t) / steps
        return super(Second, self).sample(model, x, steps)


class Solver:
    def solve(self, model, x, steps):
        for t in range(steps):
            x = x - model(x, t)
        return x
"""
NAMES = ["net.First.sample", "net.Second.sample", "net.Solver.solve"]
FIRST, SECOND, SOLVER = NAMES


DESCRIBED = """
denoiser: {class_path: net.Net}
sampler: {class_path: net.First}
"""


@pytest.mark.parametrize(("old", "new", "expected"), [
    ("", "", {FIRST}),
    ("net.Net", "other.Net", {SECOND, FIRST}),  # a config of another model
])  # fmt: skip
def test_a_config_of_the_model_says_which_sampler_is_used(
    tmp_path: Path, old: str, new: str, expected: set[str]
) -> None:
    (tmp_path / "net.py").write_text(NET + CLASSES, encoding="utf-8")
    (tmp_path / "run.py").write_text("from net import *\nSecond().sample(Net(), x, 9)\n", encoding="utf-8")
    (tmp_path / "a.yaml").write_text(DESCRIBED.replace(old, new) if old else DESCRIBED, encoding="utf-8")
    found = used_samplers(find_reference(f"{tmp_path / 'net.py'}::Net"), NAMES)
    assert {one for one in found if one in NAMES} == expected


@pytest.mark.parametrize(("script", "expected"), [
    ("First().sample(Net(), x, 9)", {FIRST}),
    ("made = Second()\nmade.sample(Net(), x, 9)", {FIRST, SECOND}),  # which calls the other one
    ("First().solver_sample(Net(), x, 9)", {SOLVER}),  # through another method
    ("getattr(make('net.First'), 'sample')(Net(), x, 9)", {FIRST}),
    ("model = Net()", set()),
])  # fmt: skip
def test_a_sampler_is_used_where_its_class_and_its_method_are_named(
    tmp_path: Path, script: str, expected: set[str]
) -> None:
    (tmp_path / "net.py").write_text(NET + CLASSES, encoding="utf-8")
    (tmp_path / "run.py").write_text(f"from net import *\n{script}\n", encoding="utf-8")
    found = used_samplers(find_reference(f"{tmp_path / 'net.py'}::Net"), NAMES)
    assert found & {*NAMES} == expected
    assert bool(found) == bool(expected)


@pytest.mark.parametrize("name", ["README.md", "scripts/run.py"])
def test_documents_and_files_outside_the_root_of_imports_are_code_as_well(tmp_path: Path, name: str) -> None:
    inner = tmp_path / "inner"
    for folder in (inner, tmp_path / "scripts"):
        folder.mkdir()
    (tmp_path / "README.md").write_text("Our model\n", encoding="utf-8")
    (inner / "net.py").write_text(NET + CLASSES, encoding="utf-8")
    (inner / "other.py").write_text("from net import Net\n", encoding="utf-8")
    (tmp_path / name).write_text("First().sample(model, x, 9)\n", encoding="utf-8")
    reference = find_reference(f"{inner / 'net.py'}::Net")
    assert reference.repository.root == inner
    assert used_samplers(reference, NAMES) & {*NAMES} == {FIRST}


LOOP = """

class {name}:
    def sample(self, model, x, levels):
        for now, after in zip(levels[:-1], levels[1:]):
            x = x + (after - now) * model(x, now)
        return x
"""


@pytest.mark.parametrize(("script", "expected"), [
    ("One().sample(Net(), x, levels)", ["net.One.sample"]),
    ("pass", ["net.One.sample", "net.Other.sample"]),
])  # fmt: skip
def test_a_loop_that_nothing_uses_is_left_out_where_another_one_is_used(
    tmp_path: Path, script: str, expected: list[str]
) -> None:
    (tmp_path / "net.py").write_text(NET + LOOP.format(name="One") + LOOP.format(name="Other"), encoding="utf-8")
    (tmp_path / "run.py").write_text(f"from net import *\n{script}\n", encoding="utf-8")
    assert [one.full_name for one in samplings_of(find_reference(f"{tmp_path / 'net.py'}::Net"))] == expected
