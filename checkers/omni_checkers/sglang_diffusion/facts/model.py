"""Facts about one integration: each function is a fact, named as rules request it."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from omni_checkers.engine.facts import Facts, fact, facts_in, given
from omni_checkers.engine.files import File, read_file
from omni_checkers.engine.rule import NotApplicable
from omni_checkers.sglang_diffusion.facts.requests import request_names
from omni_checkers.sglang_diffusion.facts.serving import Serving
from omni_checkers.sglang_diffusion.facts.sources import Sources, sources_of
from omni_checkers.sglang_diffusion.facts.stages import StageUse, before_denoising, stages_of
from omni_kit.errors import BadInput
from omni_kit.files import files_matching
from omni_kit.pysource.classes import ClassRef
from omni_kit.targets.sglang_diffusion.pipeline_dir import PipelineDir, find_pipeline_dir
from omni_kit.upstream.kinds import Kind

Files = dict[Path, File]
# Where the parts of a pipeline of SGLang's own stand, each in a file that is named as its folder of stages.
_FOLDERS = (
    "runtime/pipelines", "configs/pipeline_configs", "configs/sample", "configs/models/dits", "configs/models/vaes",
    "runtime/models/dits",
)  # fmt: skip


def model_facts(path: Path) -> tuple[Facts, list[File]]:
    """Return the facts about the integration at `path`, and its files."""
    files = {file: read_file(file) for file in own_files(path)}
    facts = Facts({"path": path, "files": files, "kinds": frozenset({Kind.pipeline})}, facts_in(__package__))
    return facts, list(files.values())


def pipeline_facts(serving: Serving) -> Facts:
    """Return the facts about a pipeline that is known already."""
    files = {file: read_file(file) for file in serving.own}
    given = {"path": serving.cls.source.path, "files": files, "serving": serving}
    return Facts({**given, "kinds": frozenset({Kind.pipeline})}, facts_in(__package__))


def own_files(path: Path) -> list[Path]:
    """Return the Python files of an integration: those of its directory, and of SGLang's folders where it lies
    inside.
    """
    found = {*files_matching(path, "**/*.py")}
    try:
        directory = _directory(path)
    except BadInput:
        return sorted(found)
    if directory.in_tree and not path.is_dir():
        found |= _files_of(directory)
    elif directory.in_tree:
        package = next(parent for parent in path.resolve().parents if parent.name == "multimodal_gen")
        places = (package / folder / f"{path.name}.py" for folder in _FOLDERS)
        found |= {file for file in places if file.is_file()}
    return sorted(found)


def _files_of(directory: PipelineDir) -> set[Path]:
    """Return the files of a pipeline that SGLang has itself, without those that it shares with all others."""
    try:
        return set(resolved_files(_serving(directory, ())))
    except NotApplicable:
        return {directory.module}


@given
def path() -> Path:
    """Return the directory of the integration."""
    raise NotImplementedError


@given
def files() -> Files:
    """Return the Python files of the integration."""
    raise NotImplementedError


@given
def kinds() -> frozenset[Kind]:
    """Return a pipeline."""
    raise NotImplementedError


@given
def constructed() -> Mapping[str, Any]:
    """Return the results of `--level import` for the pipeline."""
    raise NotImplementedError


@fact
def pipeline_dir(path: Path) -> PipelineDir:
    """Return the directory with the pipeline's class and name."""
    try:
        return _directory(path)
    except BadInput as error:
        raise NotApplicable(error.message) from error


def _directory(path: Path) -> PipelineDir:
    """Return the pipeline's directory.

    Raises:
        BadInput: a file cannot be read as Python.
    """
    try:
        return find_pipeline_dir(path)
    except (OSError, SyntaxError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} cannot be read: {error}") from error


@fact
def serving(pipeline_dir: PipelineDir, files: Files) -> Serving:
    """Return the pipeline with the classes that belong to it."""
    return _serving(pipeline_dir, tuple(files))


def _serving(directory: PipelineDir, own: tuple[Path, ...]) -> Serving:
    sources = sources_of(directory)
    source = sources.read(directory.module)
    if source is None or directory.class_name not in source.classes:
        raise NotApplicable("the pipeline's file cannot be read")
    cls = ClassRef(source, source.classes[directory.class_name])
    return Serving(sources, cls, directory.pipeline_name, own, directory.in_tree)


@fact
def sglang(serving: Serving) -> Sources:
    """Return the packages, with SGLang among them."""
    if serving.sources.diffusion is None:
        raise NotApplicable("SGLang is not installed: what it expects cannot be read")
    return serving.sources


@fact
def config(serving: Serving) -> ClassRef:
    """Return the class of the pipeline's config."""
    if serving.config is None:
        raise NotApplicable("no PipelineConfig of this pipeline can be found")
    return serving.config


@fact
def denoiser(serving: Serving) -> ClassRef:
    """Return the class of the denoiser."""
    if serving.denoiser is None:
        raise NotApplicable("no denoiser of this pipeline can be found")
    return serving.denoiser


@fact
def stages(serving: Serving, sglang: Sources) -> list[StageUse]:
    """Return every stage that the pipeline adds."""
    found = stages_of(serving.cls)
    if not found:
        raise NotApplicable("no stages can be read")
    return found


@fact
def before(stages: list[StageUse]) -> list[StageUse]:
    """Return the stages before SGLang's DenoisingStage."""
    found = before_denoising(stages)
    if found is None:
        raise NotApplicable("the pipeline does not denoise by SGLang's DenoisingStage")
    return found


@fact
def own_stages(serving: Serving, stages: list[StageUse]) -> list[StageUse]:
    """Return the stages that the integration brings."""
    found = [one for one in stages if serving.is_own(one.cls)]
    if not found:
        raise NotApplicable("all stages are SGLang's own")
    return found


@fact
def known_to_requests(serving: Serving, sglang: Sources) -> set[str]:
    """Return the names that a request has."""
    found = request_names(sglang, serving.sampling)
    if found is None:
        raise NotApplicable("SGLang's Req cannot be read")
    return found


def resolved_files(serving: Serving) -> Iterator[Path]:
    """Yield the files of the classes that make up a pipeline of SGLang's own."""
    own = [serving.cls, serving.config, serving.sampling, serving.dit_config, serving.vae_config, serving.denoiser]
    yield from (cls.source.path for cls in own if cls is not None)
    for one in stages_of(serving.cls):
        if "model_specific_stages" in one.cls.source.path.as_posix():
            yield one.cls.source.path
