"""Rules about the tests that a checkout has of a model or a pipeline: DFU322 and DFU323."""

import ast
import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from omni_checkers.diffusers.examples import CONFIG_MIXIN
from omni_checkers.engine.rule import Finding, Findings, NotApplicable, Rule, Severity
from omni_kit.files import files_matching
from omni_kit.pysource.classes import ClassRef
from omni_kit.pysource.nodes import calls, last_name
from omni_kit.pysource.source import SourceFile, parse_file
from omni_kit.upstream.diffusers.package import package_root

_TESTS, _TESTERS = "tests", "tests/models/testing_utils"
_MARKS = ("slow", "nightly")
_LOADS = ("from_pretrained", "from_single_file", "load_lora_weights")
_HUB = re.compile(r"^(https://huggingface\.co/)?(?P<name>[\w-][\w.-]*/[\w.-]+)(/.*)?$")
_SMALL = re.compile(r"(^hf-internal-testing/|tiny|dummy|random|small-test)", re.IGNORECASE)
_MIXIN = "ModelTesterMixin"
_MODEL = {
    "src/diffusers/__init__.py": "",
    "src/diffusers/models/__init__.py": "",
    "src/diffusers/models/modeling_utils.py": "class ModelMixin:\n    pass\n",
    "src/diffusers/models/transformers/__init__.py": "",
    "src/diffusers/models/transformers/transformer_lumen.py": (
        "from ..modeling_utils import ModelMixin\n\n\nclass LumenTransformer2DModel(ModelMixin):\n    pass\n"
    ),
    "tests/models/testing_utils/__init__.py": "",
}
_TEST = "tests/models/transformers/test_models_transformer_lumen.py"
_TESTED = """\
class LumenTesterConfig(BaseModelTesterConfig):
    @property
    def model_class(self):
        return LumenTransformer2DModel


class TestLumen(LumenTesterConfig, {mixin}):
    pass
"""
_SLOW = """\
{mark}class LumenSlowTests(unittest.TestCase):
    def test_a_picture(self):
        model = LumenTransformer2DModel.from_pretrained("lumen/lumen-2b")
"""


class LargeTestsAreSlow(Rule):
    """Mark tests that load published weights `@slow` or `@nightly`.

    Why: an unmarked test runs on every commit and downloads gigabytes. `RUN_SLOW=1` enables the marked tests.

    Fine when: the weights are small and their name says so: hf-internal-testing/..., or "tiny" in the name.
    """

    id = "DFU322"
    name = "large-tests-are-slow"
    target = "diffusers"
    severity = Severity.warning
    obligations = ("DIF-29",)
    BAD = ({**CONFIG_MIXIN, **_MODEL, _TEST: _SLOW.format(mark="")},)
    GOOD = ({**CONFIG_MIXIN, **_MODEL, _TEST: _SLOW.format(mark="@slow\n")},)

    def check(self, path: Path, sources: list[SourceFile]) -> Findings:
        for file, tree in _tests_of(path, sources):
            for function in _quick(tree.body):
                for name in dict.fromkeys(_published(function)):
                    yield Finding(f"{function.name} loads {name}: mark it @slow", file, function.lineno)


class ModelsAreTestedByTesters(Rule):
    """Build a model's tests on the checkout's own testers, `ModelTesterMixin` first.

    Why: the testers save, load, cast, offload and shard the model as users do. A hand-written test covers only what its
    author expected.

    Fine when: the model is part of another model whose tests cover it.
    """

    id = "DFU323"
    name = "models-are-tested-by-testers"
    target = "diffusers"
    severity = Severity.warning
    obligations = ("DIF-30",)
    BAD = ({**CONFIG_MIXIN, **_MODEL, _TEST: _TESTED.format(mixin="unittest.TestCase")},)
    GOOD = ({**CONFIG_MIXIN, **_MODEL, _TEST: _TESTED.format(mixin=_MIXIN)},)

    def check(self, path: Path, models: list[ClassRef], sources: list[SourceFile]) -> Findings:
        names = {cls.node.name for cls in models}
        if not (_checkout(path) / _TESTERS).is_dir():
            raise NotApplicable("this checkout has no model testers")
        tested: dict[str, list[tuple[Path, ast.ClassDef, bool]]] = {}
        for file, tree in _tests_of(path, sources, "models"):
            own = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
            for node in own.values():
                above = list(_lineage(node, own))
                for name in names & {name for one in above for name in _model_class(one)}:
                    bases = {last_name(base) for one in above for base in one.bases}
                    tested.setdefault(name, []).append((file, node, _MIXIN in bases))
        for name, found in tested.items():
            if not any(by for _, _, by in found):
                yield Finding(f"no test of {name} is a {_MIXIN}", found[0][0], found[0][1].lineno)


def _checkout(path: Path) -> Path:
    root = package_root(path)
    if root is None or root.parent.name != "src":
        raise NotApplicable("not a checkout of diffusers")
    return root.parent.parent


def _tests_of(path: Path, sources: Sequence[SourceFile], below: str = "") -> Iterator[tuple[Path, ast.Module]]:
    """Yield the files of tests that are of a part alone: in a folder of its name, or named as one of its files."""
    stems = tuple(f"_{source.path.stem}" for source in sources if source.path.name != "__init__.py")
    for file in _tests(_checkout(path) / _TESTS / below):
        if file.parent.name == path.name or file.stem.endswith(stems):
            try:
                yield file, parse_file(file)[1]
            except (SyntaxError, UnicodeDecodeError):
                continue


@cache
def _tests(folder: Path) -> list[Path]:
    return files_matching(folder, "**/test_*.py")


def _quick(body: Sequence[ast.stmt]) -> Iterator[ast.FunctionDef]:
    """Yield the tests that nothing marks as slow."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            marked = any(_marks(one) for one in node.decorator_list)
            if isinstance(node, ast.ClassDef) and not marked:
                yield from _quick(node.body)
            elif isinstance(node, ast.FunctionDef) and not marked and node.name.startswith("test"):
                yield node


def _marks(decorator: ast.expr) -> bool:
    return last_name(decorator) in _MARKS or "skip" in last_name(decorator)


def _published(function: ast.FunctionDef) -> Iterator[str]:
    """Yield the hub models that a test loads without a name that marks them as small."""
    for call in calls(function, *_LOADS):
        given = call.args[0] if call.args else None
        found = _HUB.match(given.value) if isinstance(given, ast.Constant) and isinstance(given.value, str) else None
        if found is not None and not _SMALL.search(found["name"]):
            yield found["name"]


def _lineage(node: ast.ClassDef, known: dict[str, ast.ClassDef]) -> Iterator[ast.ClassDef]:
    todo, seen = [node], set[str]()
    while todo:
        one = todo.pop()
        if one.name not in seen:
            seen.add(one.name)
            yield one
            todo += [known[name] for base in one.bases if (name := last_name(base)) in known]


def _model_class(node: ast.ClassDef) -> Iterator[str]:
    """Yield the class that a class of tests says it is about."""
    for item in node.body:
        named = isinstance(item, ast.FunctionDef) and item.name == "model_class"
        if named or (isinstance(item, ast.Assign) and any(last_name(one) == "model_class" for one in item.targets)):
            yield from (one.id for one in ast.walk(item) if isinstance(one, ast.Name) and one.id != "model_class")
