"""Facts about one pipeline, by the names under which rules ask for them."""

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

from omni_checkers.engine.facts import Facts
from omni_checkers.engine.files import File, read_file
from omni_checkers.engine.rule import NotApplicable
from omni_checkers.sglang_diffusion.facts.classes import Classes
from omni_checkers.sglang_diffusion.facts.places import files_of
from omni_kit.errors import BadInput, MissingRequirement
from omni_kit.targets.sglang_diffusion.pipeline_dir import PipelineDir, find_pipeline_dir
from omni_kit.upstream.diffusers.pipelines import Pipeline, find_pipeline
from omni_kit.upstream.library import find_library
from omni_kit.upstream.python.source import dotted


def pipeline_facts(path: Path) -> tuple[Facts, list[File]]:
    """The facts about the pipeline at `path`, and its files."""
    files = [read_file(file) for file in files_of(path)]
    given = {"path": path, "files": files, "classes": Classes(files), "kinds": frozenset()}
    return Facts(given, _PROVIDERS), files


def _served(path: Path) -> PipelineDir:
    """Which pipeline it is."""
    try:
        return find_pipeline_dir(path)
    except BadInput as why:
        raise NotApplicable(why.message) from why


def _upstream(served: PipelineDir) -> Pipeline:
    """diffusers' pipeline of that name."""
    try:
        return find_pipeline(find_library("diffusers"), served.pipeline_name, {})
    except (BadInput, MissingRequirement) as why:
        raise NotApplicable(why.message) from why


def _standard_denoising(files: list[File]) -> str:
    """How the pipeline adds SGLang's own denoising stage."""
    calls = (dotted(node.func) or "" for file in files for node in file.nodes(ast.Call))
    found = next((call for call in calls if call.rpartition(".")[2] in _DENOISING), "")
    if not found:
        raise NotApplicable("it has a denoising stage of its own")
    return found


_DENOISING = frozenset({"add_standard_denoising_stage", "add_standard_t2i_stages", "DenoisingStage"})
_PROVIDERS: dict[str, Callable[..., Any]] = {
    "served": _served,
    "upstream": _upstream,
    "standard_denoising": _standard_denoising,
}
