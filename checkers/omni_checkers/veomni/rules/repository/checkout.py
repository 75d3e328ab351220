"""Rules about what surrounds a model in VeOmni's repository: VEO801 to VEO804."""

import ast
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from omni_checkers.engine.files import File, read_file
from omni_checkers.engine.rule import Finding, Findings, NotApplicable, Rule, Severity
from omni_checkers.veomni.facts.checkout import SUITES, training_configs
from omni_checkers.veomni.facts.constants import veomni_package
from omni_kit.documents import read_json, read_yaml
from omni_kit.errors import BadInput
from omni_kit.files import files_matching
from omni_kit.pysource.library import Library
from omni_kit.pysource.source import dotted
from omni_kit.targets.veomni.model_dir import ModelDir
from omni_kit.upstream.kinds import MULTIMODAL, Kind
from omni_kit.upstream.transformers.configs import config_class, model_types

_UP = "../../../../"
_CASES = """\
import pytest

TEST_CASES = [pytest.param("./tests/toy_config/{toy}/config.json", False, id="{name}")]
"""
_PATCH, _E2E = f"{_UP}tests/models/test_models_patch.py", f"{_UP}tests/e2e/test_e2e_parallel.py"
_TOY = f"{_UP}tests/toy_config/llama_toy/config.json"
_LLAMA = {_TOY: '{"model_type": "llama"}', _PATCH: _CASES.format(toy="llama_toy", name="llama3.1")}
_NOTE = {f"{_UP}tests/toy_config/llama_toy/README.md": "meta-llama/Llama-3.1-8B with 2 layers.\n"}
_MEDIA = ("vision_config", "audio_config", "thinker_config")


class TestListsNameTheModel(Rule):
    """List each model of VeOmni in VeOmni's test suites.

    A toy config of its model_type, or its name, lists a model. The kind of model determines which suites it needs.

    Why: nobody trains an unlisted model before its users do: continuous integration passes because it never ran.

    Fine when: continuous integration lacks a kernel that the model needs; skip the case, but list it.
    """

    __test__ = False
    id = "VEO801"
    name = "test-lists-name-the-model"
    severity = Severity.warning
    target = "veomni"
    obligations = (
        "VEO-TEST-03",
        "VEO-TEST-05",
        "VEO-TEST-06",
        "VEO-TEST-07",
        "VEO-TEST-16",
        "VEO-VLM-16",
        "VEO-DATA-05",
    )
    failure_modes = ("blind-integration-test",)
    example_of = "llama"
    BAD = ({**_LLAMA, _E2E: _CASES.format(toy="qwen3_toy", name="qwen3")},)
    GOOD = ({**_LLAMA, **_NOTE, _E2E: _CASES.format(toy="llama_toy", name="llama3.1")},)

    def check(self, model_dir: ModelDir, kinds: frozenset[Kind]) -> Findings:
        suites = [suite for suite in SUITES if (model_dir.sys_path / suite.path).is_file()]
        if model_dir.style != "in-tree" or not suites or Kind.dit in kinds:
            raise NotApplicable("the model is not in a checkout with tests")
        for suite in suites:
            file = model_dir.sys_path / suite.path
            if (not suite.kinds or suite.kinds & kinds) and not _listed(file, model_dir):
                keys = ", ".join(model_dir.registered)
                yield Finding(f"{keys} is in no case: {suite.what} is not tested", file, 1)


class ToyConfigsAreExplained(Rule):
    """Explain each toy config in a README.md: its source config and the changes.

    Why: a toy that lost a trait of the real model, such as experts after dense layers, tests another model. Without a
    note nobody notices the loss.

    Fine when: the toy is the config of a published small model.
    """

    id = "VEO802"
    name = "toy-config-is-explained"
    severity = Severity.info
    target = "veomni"
    obligations = ("VEO-TEST-02",)
    failure_modes = ("blind-integration-test",)
    example_of = "llama"
    BAD = (_LLAMA,)
    GOOD = ({**_LLAMA, **_NOTE},)

    def check(self, model_dir: ModelDir, path: Path) -> Findings:
        root = model_dir.sys_path / "tests" / "toy_config"
        toys = [file for file in files_matching(root, "*/config.json") if _model_type(file) in model_dir.registered]
        if model_dir.style == "plugin" and (path / "toy_config.json").is_file():
            toys = [path / "toy_config.json"]
        if not toys:
            raise NotApplicable("the model has no toy config")
        for toy in toys:
            if not any(toy.parent.glob("[Rr][Ee][Aa][Dd][Mm][Ee]*")) and not toy.with_suffix(".md").is_file():
                yield Finding(f"no README explains {toy.parent.name}/{toy.name}", toy, 1)


class DataTransformIsRegistered(Rule):
    """Register a data transform under the model_type of models with images or audio.

    Why: the trainer builds the transform by that name and raises KeyError when it builds the data set.

    Fine when: the model has its own trainer, or its users name another transform.
    """

    id = "VEO803"
    name = "data-transform-is-registered"
    severity = Severity.warning
    target = "veomni"
    kinds = MULTIMODAL
    obligations = ("VEO-DATA-02",)
    failure_modes = ("data-contract",)
    example_of = "qwen3_vl"
    BAD = (
        {
            "__init__.py": """\
from ...loader import MODELING_REGISTRY


@MODELING_REGISTRY.register("qwen2_audio")
def register_modeling(architecture):
    from .generated.patched_modeling_qwen3_vl_gpu import Qwen3VLForConditionalGeneration

    return Qwen3VLForConditionalGeneration
"""
        },
    )
    GOOD = ({},)

    def check(self, model_dir: ModelDir, files: dict[Path, File], transformers: Library) -> Findings:
        package = veomni_package(model_dir)
        known = _transforms(package) if package is not None else frozenset()
        if not known:
            raise NotApplicable("this VeOmni registers no data transforms that can be read")
        known |= {name for file in files.values() for name in _registered(file)}
        for key, line in model_dir.registered.items():
            if key in model_types(transformers) and _has_media(transformers, key) and key not in known:
                message = f"no data transform is registered for '{key}'"
                yield Finding(message, model_dir.path / "__init__.py", line)


class TrainingConfigsAreUnderstood(Rule):
    """Use only keys of VeOmni's arguments in a model's training configurations.

    The rule checks files under `configs/` in a directory with the model's name, and files that name its config.

    Why: the parser rejects unknown keys, or nothing reads the key of an earlier release: sequence parallelism of size 1
    although the file sets 2.

    Fine when: the file is for a script with its own arguments.
    """

    id = "VEO804"
    name = "training-configs-are-understood"
    severity = Severity.warning
    target = "veomni"
    obligations = ("VEO-DATA-04",)
    failure_modes = ("weights-path-not-forwarded",)
    example_of = "llama"
    BAD = ({f"{_UP}configs/text/llama/llama.yaml": "model:\n  model_path: llama\ntrain:\n  sp_size: 2\n"},)
    GOOD = (
        {
            f"{_UP}configs/text/llama/llama.yaml": "model:\n  model_path: llama\ntrain:\n  accelerator:\n"
            + "    ulysses_size: 2\n"
        },
    )

    def check(self, model_dir: ModelDir, kinds: frozenset[Kind] = frozenset()) -> Findings:
        package = veomni_package(model_dir)
        classes = _arguments(package) if package is not None else {}
        found = list(training_configs(model_dir))
        root = "VeOmniDiTArguments" if Kind.dit in kinds else "VeOmniArguments"
        if not found or root not in classes:
            raise NotApplicable("the model has no training configurations")
        for file in found:
            try:
                text = file.read_text(encoding="utf-8")
                values = read_yaml(text)
            except (OSError, ValueError):
                continue  # reported by OMK004
            for key in _strange(values, root, classes):
                leaf = key.rpartition(".")[2]
                line = next((n for n, t in enumerate(text.splitlines(), 1) if t.strip().startswith(f"{leaf}:")), 1)
                yield Finding(f"VeOmni has no argument '{key}'", file, line)


def _listed(file: Path, model_dir: ModelDir) -> bool:
    """Return whether a test file names the model: by a key, by an id that begins with one, or by a toy config of its
    type.
    """
    for node in read_file(file).nodes(ast.Constant):
        text = node.value if isinstance(node.value, str) else ""
        if text.partition("-")[0] in model_dir.registered:
            return True
        place = model_dir.sys_path / text
        if "/" in text and "\n" not in text and len(text) < 300:
            config = place if place.suffix == ".json" else place / "config.json"
            if config.is_file() and _model_type(config) in model_dir.registered:
                return True
    return False


def _model_type(file: Path) -> str:
    try:
        return str(read_json(file.read_text(encoding="utf-8")).get("model_type", ""))
    except (OSError, ValueError, AttributeError):
        return ""


def _has_media(transformers: Library, key: str) -> bool:
    try:
        return any(name in config_class(transformers, key).sub_configs for name in _MEDIA)
    except BadInput:
        return False


@lru_cache(maxsize=16)
def _transforms(package: Path) -> frozenset[str]:
    return frozenset(name for path in files_matching(package / "data", "*.py") for name in _registered(read_file(path)))


def _registered(file: File) -> Iterator[str]:
    """Literal keys of DATA_TRANSFORM_REGISTRY.register(...)."""
    for call in file.nodes(ast.Call) if "DATA_TRANSFORM_REGISTRY" in file.text else ():
        named = call.args[0] if call.args and dotted(call.func) == "DATA_TRANSFORM_REGISTRY.register" else None
        if isinstance(named, ast.Constant):
            yield str(named.value)


@lru_cache(maxsize=16)
def _arguments(package: Path) -> Mapping[str, Mapping[str, str]]:
    """Class of arguments -> field -> annotation, with inherited fields."""
    files = [package / "arguments" / "arguments_types.py", package / "trainer" / "dit_trainer.py"]
    found: dict[str, dict[str, str]] = {}
    nodes = [
        sorted(read_file(file).nodes(ast.ClassDef), key=lambda node: node.lineno) for file in files if file.is_file()
    ]
    for node in (one for part in nodes for one in part):
        fields = {name: text for base in node.bases for name, text in found.get(dotted(base) or "", {}).items()}
        annotated = (item for item in node.body if isinstance(item, ast.AnnAssign))
        found[node.name] = fields | {
            item.target.id: ast.unparse(item.annotation) for item in annotated if isinstance(item.target, ast.Name)
        }
    return found


def _strange(values: Any, owner: str, classes: Mapping[str, Mapping[str, str]], above: str = "") -> Iterator[str]:
    """Yield dotted keys without a matching field; fields whose type is not a class of arguments accept any key."""
    for key, value in values.items() if isinstance(values, dict) else ():
        name = f"{above}{key}"
        annotation = classes[owner].get(str(key))
        if annotation is None:
            yield name
        inner = next((word for word in re.findall(r"\w+", annotation or "") if word in classes), None)
        if inner is not None:
            yield from _strange(value, inner, classes, f"{name}.")
