"""What is made of diffusers' pipelines passes the gate and can be imported; what upstream itself lacks is said."""

import ast
import importlib
import importlib.util
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from omni_checkers import Finding, check
from omni_kit.errors import BadInput, Refusal
from omni_kit.pysource.library import find_library
from omni_kit.scaffold import new_model
from omni_kit.upstream.diffusers.classes import PIPELINES, find_class

# Constants of other pipelines, a name of an older class, setters, a base's methods in a round, a round left whole.
SOME = ["SanaPipeline", "Lumina2Text2ImgPipeline", "BriaPipeline", "WanAnimatePipeline", "HeliosPipeline"]


def _made(names: Sequence[str], folder: Path) -> dict[Path, str]:
    """The packages of those pipelines that the command takes."""
    made = {}
    for name in names:
        try:
            new_model(f"blocks_{name.lower()}", name, target="diffusers", kind="modular", into=folder)
        except (BadInput, Refusal):
            continue
        made[folder / f"blocks_{name.lower()}"] = name
    return made


def _upstreams_own(finding: Finding, name: str) -> bool:
    """Whether the pipeline has it, too: the same finding, or an attribute that nothing ever gives it."""
    library = find_library("diffusers")
    source = find_class(library, name).source  # type: ignore[union-attr]
    read = re.search(r"uses '(\w+)'", finding.message)
    if read is not None:
        there = {node.attr for node in ast.walk(source.tree) if isinstance(node, ast.Attribute) and _stored(node)}
        return read[1] not in there | {node.name for node in ast.walk(source.tree) if isinstance(node, ast.FunctionDef)}
    said = check([source.path], target="diffusers", select=[finding.rule])
    return finding.message in [one.message for one in said.findings]


def _stored(node: ast.Attribute) -> bool:
    return isinstance(node.ctx, ast.Store)


def _judge(names: Sequence[str], folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    made = _made(names, folder)
    findings = check(list(made), target="diffusers").findings
    own = [one for one in findings if not _upstreams_own(one, made[one.path.parent])]
    assert [(one.path.parent.name, one.message) for one in own] == []
    monkeypatch.syspath_prepend(str(folder))
    for path in made:
        if _needs_what_is_not_here(path):
            continue
        module = importlib.import_module(path.name)
        pipeline = next(one for name, one in vars(module).items() if name.endswith("ModularPipeline"))()
        assert pipeline.blocks.doc
    for name in [name for name in sys.modules if name.partition(".")[0] in {path.name for path in made}]:
        del sys.modules[name]
    return list(made.values())


def _needs_what_is_not_here(path: Path) -> bool:
    """Whether a pipeline takes a package unguarded that is not installed."""
    texts = "\n".join(file.read_text(encoding="utf-8") for file in path.glob("*.py"))
    names = set(re.findall(r"^import (\w+)|^from (\w+)[.\w]* import", texts, re.M))
    return any(importlib.util.find_spec(name or other) is None for name, other in names)


@pytest.mark.sweep
def test_blocks_of_some_pipelines_have_no_findings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _judge(SOME, tmp_path, monkeypatch) == SOME
    text = (tmp_path / "blocks_sanapipeline" / "inputs.py").read_text(encoding="utf-8")
    assert "ASPECT_RATIO_1024_BIN = {" in text
    round_left_whole = (tmp_path / "blocks_heliospipeline" / "denoise.py").read_text(encoding="utf-8")
    assert "LoopSequentialPipelineBlocks" not in round_left_whole
    setter = (tmp_path / "blocks_briapipeline" / "modular_pipeline.py").read_text(encoding="utf-8")
    assert "@attention_kwargs.setter" in setter
    assert "def progress_bar" not in setter


@pytest.mark.sweep
def test_blocks_of_no_pipeline_have_findings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = find_library("diffusers").root / PIPELINES
    found = (re.findall(r"^class (\w+Pipeline)\b", file.read_text(), re.M) for file in folder.rglob("pipeline_*.py"))
    names = sorted({name for one in found for name in one})
    assert len(_judge(names, tmp_path, monkeypatch)) > 120
