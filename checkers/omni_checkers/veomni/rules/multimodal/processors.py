"""Rules about processors that a model brings along: VEO610 and VEO611."""

import ast
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from omni_checkers.engine.files import File, read_file, walked
from omni_checkers.engine.rule import Finding, Findings, NotApplicable, Rule
from omni_checkers.veomni.facts.constants import veomni_package
from omni_kit.files import files_matching
from omni_kit.pysource.source import dotted
from omni_kit.targets.veomni.model_dir import ModelDir

_MEDIA = {"audio", "audios", "image", "images", "video", "videos"}
_HEAD = """\
from transformers.processing_utils import ProcessorMixin


class Qwen2_5OmniProcessor(ProcessorMixin):
"""
_FILE = "processing_qwen2_5_omni.py"


class AbsentMediaAreEmpty(Rule):
    """Test for media in a processor with `if audios:`, not with `is not None`.

    Why: the data pipeline passes `[]` for absent media. A processor that treats the list as media calls the feature
    extractor on nothing: the first sample without audio raises, or gets features of length 0.

    Fine when: the code has already checked that the list is not empty.
    """

    id = "VEO610"
    name = "absent-media-are-empty-lists"
    target = "veomni"
    obligations = ("VEO-OMNI-05",)
    failure_modes = ("data-contract",)
    example_of = "qwen2_5_omni"
    BAD = (
        {
            _FILE: _HEAD
            + "    def __call__(self, text=None, images=None, videos=None, audios=None, **kwargs):\n"
            + "        if audios is not None:\n            return self.feature_extractor(audios)\n        return {}\n"
        },
    )
    GOOD = (
        {
            _FILE: _HEAD
            + "    def __call__(self, text=None, images=None, videos=None, audios=None, **kwargs):\n"
            + "        if audios:\n            return self.feature_extractor(audios)\n        return {}\n"
        },
    )

    def check(self, files: dict[Path, File]) -> Findings:
        for file, _, call in _processors(files):
            media = {arg.arg for arg in (*call.args.args, *call.args.kwonlyargs)} & _MEDIA
            for test in (node.test for node in walked(call) if isinstance(node, (ast.If, ast.IfExp))):
                for node in walked(test):
                    name = dotted(node.left) if isinstance(node, ast.Compare) else None
                    if isinstance(node, ast.Compare) and name in media and isinstance(node.ops[0], (ast.Is, ast.IsNot)):
                        alone = not any(isinstance(n, ast.Name) and n.id == name for n in _others(test, node))
                        if alone and ast.unparse(node.comparators[0]) == "None":
                            message = (
                                f"'{ast.unparse(node)}' treats the empty list of a sample without {name} as {name}"
                            )
                            yield Finding(message, file.path, node.lineno, node.col_offset + 1)


class ProcessorTakesPipelineNames(Rule):
    """Accept media in a processor under the names that VeOmni's data transforms use.

    Why: the transforms pass `audios=`, upstream's processors accept `audio=`. The argument disappears in the keyword
    arguments: samples lose their audio without an error.

    Fine when: the model has its own data transform.
    """

    id = "VEO611"
    name = "processor-takes-names-of-pipeline"
    target = "veomni"
    obligations = ("VEO-OMNI-06",)
    failure_modes = ("data-contract",)
    example_of = "qwen2_5_omni"
    BAD = (
        {
            _FILE: _HEAD
            + "    def __call__(self, text=None, images=None, videos=None, audio=None, **kwargs):\n        return {}\n"
        },
    )
    GOOD = (
        {
            _FILE: _HEAD
            + "    def __call__(self, text=None, images=None, videos=None, audios=None, **kwargs):\n        return {}\n"
        },
    )

    def check(self, files: dict[Path, File], model_dir: ModelDir) -> Findings:
        package = veomni_package(model_dir)
        passed = _passed(package) if package is not None else frozenset()
        if not passed:
            raise NotApplicable("no data transform of VeOmni calls a whole processor")
        for file, owner, call in _processors(files):
            taken = {arg.arg for arg in (*call.args.args, *call.args.kwonlyargs)}
            for name in sorted(taken & _MEDIA - passed):
                wanted = next((other for other in sorted(passed) if other.rstrip("s") == name.rstrip("s")), "")
                if wanted and wanted not in taken:
                    message = f"{owner} takes '{name}', but the data transforms pass '{wanted}'"
                    yield Finding(message, file.path, call.lineno)


def _processors(files: dict[Path, File]) -> Iterator[tuple[File, str, ast.FunctionDef]]:
    """Yield the `__call__` of every processor class that the directory defines."""
    found = [
        (file, node.name, item)
        for file in files.values()
        for node in file.nodes(ast.ClassDef)
        if any((dotted(base) or "").endswith(("ProcessorMixin", "Processor")) for base in node.bases)
        for item in node.body
        if isinstance(item, ast.FunctionDef) and item.name == "__call__"
    ]
    if not found:
        raise NotApplicable("the directory defines no processor")
    yield from found


def _others(test: ast.expr, one: ast.expr) -> Iterator[ast.AST]:
    """Return the parts of a condition other than one comparison."""
    inside = {id(node) for node in walked(one)}
    return (node for node in walked(test) if id(node) not in inside)


@lru_cache(maxsize=16)
def _passed(package: Path) -> frozenset[str]:
    """Return the names of media that VeOmni's data transforms pass to a processor itself."""
    found: set[str] = set()
    for path in files_matching(package / "data", "*.py"):
        file = read_file(path)
        if "processor(" not in file.text:
            continue
        for call in file.nodes(ast.Call):
            if isinstance(call.func, ast.Name) and call.func.id == "processor":
                found |= {keyword.arg for keyword in call.keywords if keyword.arg in _MEDIA}
    return frozenset(found)
