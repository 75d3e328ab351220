"""The rules on SGLang's own pipelines: what holds for all of them is no finding."""

import importlib.util
import json
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest

from omni_checkers import Rule, all_rules
from omni_checkers.engine.files import read_file
from omni_checkers.engine.rule import NotApplicable
from omni_checkers.sglang_diffusion.facts import request
from omni_checkers.sglang_diffusion.facts.classes import PIPELINE, Classes
from omni_checkers.sglang_diffusion.rules.contract.fields import RequestKnowsItsFields
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


# Fields that SGLang sets and its own files of diffusion do not read -> why the rule is right, or what it cannot know.
EXPLAINED = {
    "ltx23_audio_replicated_for_sp": "a dead store: nothing in 0.5.23 reads it",
    "skip_radix_cache_insert": "of a request of SGLang's language runtime, which has the same name",
    "forward_mode": "of a batch of SGLang's language runtime, which has the same name",
}


def test_what_is_set_on_a_request_is_known_or_explained(package: Path) -> None:
    files = [read_file(file) for folder in ("configs", "runtime") for file in sorted((package / folder).rglob("*.py"))]
    found = {finding.message.split()[0].partition(".")[2] for finding in RequestKnowsItsFields().check(files=files)}
    assert found == set(EXPLAINED)


def test_the_recorded_fields_are_those_of_the_installed_version(package: Path) -> None:
    recorded = json.loads((Path(request.__file__).parent / "request_fields.json").read_text(encoding="utf-8"))
    assert recorded == {"sglang": version("sglang"), "fields": sorted(request.read_fields(package))}


def test_there_is_something_to_look_at(classes: Classes) -> None:
    assert len(list(classes.of(PIPELINE))) >= 60


def _served(package: Path) -> Iterator[PipelineDir]:
    for file in sorted((package / "runtime/pipelines").glob("*.py")):
        for class_name, name, line in pipelines_in(file):
            yield PipelineDir(file.parent, True, file, class_name, name, line)
