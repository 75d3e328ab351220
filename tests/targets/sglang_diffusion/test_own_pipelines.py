"""The rules on SGLang's own pipelines: what holds for all of them is no finding."""

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest

from omni_checkers import Rule, all_rules
from omni_checkers.engine.files import read_file
from omni_checkers.engine.rule import NotApplicable
from omni_checkers.sglang_diffusion.facts.classes import PIPELINE, Classes
from omni_kit.errors import BadInput
from omni_kit.targets.sglang_diffusion.pipeline_dir import PipelineDir, pipelines_in
from omni_kit.upstream.diffusers.pipelines import find_pipeline
from omni_kit.upstream.library import find_library

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("sglang") is None, reason="needs SGLang, in an environment of its own: make test-sglang"
)
FOLDERS = ("configs", "runtime/pipelines", "runtime/models/dits", "runtime/pipelines_core/stages")
OF_CLASSES = [rule for rule in all_rules() if rule.target == "sglang-diffusion" and rule.facts() == ("classes",)]


@pytest.fixture(scope="module")
def package() -> Path:
    spec = importlib.util.find_spec("sglang")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "multimodal_gen"


@pytest.fixture(scope="module")
def classes(package: Path) -> Classes:
    return Classes([read_file(file) for folder in FOLDERS for file in sorted((package / folder).rglob("*.py"))])


@pytest.mark.parametrize("rule", OF_CLASSES, ids=lambda rule: rule.id)
def test_a_rule_is_quiet(rule: type[Rule], classes: Classes) -> None:
    assert [(found.message, found.path.name, found.line) for found in rule().check(classes=classes)] == []


def test_required_modules_are_diffusers(package: Path, classes: Classes) -> None:
    rule = next(rule for rule in all_rules() if rule.id == "SGL103")
    judged, findings = 0, []
    for served in _served(package):
        try:
            upstream = find_pipeline(find_library("diffusers"), served.pipeline_name, {})
            findings += list(rule().check(served=served, classes=classes, upstream=upstream))
            judged += 1
        except (BadInput, NotApplicable):
            continue
    assert judged >= 10
    assert [(found.message, found.path.name) for found in findings] == []


def test_there_is_something_to_look_at(classes: Classes) -> None:
    assert len(list(classes.of(PIPELINE))) >= 60


def _served(package: Path) -> Iterator[PipelineDir]:
    for file in sorted((package / "runtime/pipelines").glob("*.py")):
        for class_name, name, line in pipelines_in(file):
            yield PipelineDir(file.parent, True, file, class_name, name, line)
