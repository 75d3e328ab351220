"""What is scaffolded for SGLang-diffusion: read from diffusers' own classes, refused where it would not be right."""

import ast
from pathlib import Path

import pytest

from omni_kit.errors import BadInput, Refusal
from omni_kit.formatting import format_python
from omni_kit.pysource.library import find_library
from omni_kit.scaffold import Scaffold, new_model
from omni_kit.targets.registry import get_target
from omni_kit.upstream.kinds import Kind
from tests.conftest import first

CLASSES = {
    "sana": "SanaPipeline", "flux": "FluxPipeline", "z_image": "ZImagePipeline", "qwen_image": "QwenImagePipeline",
    "sd3": "StableDiffusion3Pipeline", "wan": "WanPipeline", "ltx": "LTXPipeline",
}  # fmt: skip
# Pipeline -> what was read in diffusers' source by a person: step, guidance, latents.
READ = {
    "SanaPipeline": ("step", "negative + s (positive - negative)", "scale"),
    "FluxPipeline": ("step / 1000", "negative + s (positive - negative)", "shift and scale"),
    "ZImagePipeline": ("1.0 - step / 1000", "positive + s (positive - negative)", "shift and scale"),
    "QwenImagePipeline": ("step / 1000", "negative + s (positive - negative)", "mean and deviation"),
    "StableDiffusion3Pipeline": ("step", "negative + s (positive - negative)", "shift and scale"),
    "WanPipeline": ("step", "negative + s (positive - negative)", "mean and deviation"),
    "LTXPipeline": ("step", "negative + s (positive - negative)", "mean and deviation"),
}


def scaffold(source: str, into: Path, **options: str) -> Scaffold:
    return new_model("served", source, target="sglang-diffusion", force=True, into=into, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("pipeline", first(3, READ))
def test_a_pipeline_is_read(pipeline: str, tmp_path: Path) -> None:
    made = scaffold(pipeline, tmp_path)
    decided = {decision.what: decision for decision in made.plan.decisions}
    assert tuple(decided[what].choice for what in ("step", "guidance", "latents")) == READ[pipeline]
    assert all(decided[what].evidence.startswith("diffusers/") for what in ("step", "guidance", "latents"))


@pytest.mark.parametrize("pipeline", first(2, CLASSES.values()))
def test_nothing_is_left_to_a_person(pipeline: str, tmp_path: Path) -> None:
    made = scaffold(pipeline, tmp_path)
    assert not made.plan.todo
    assert made.plan.decisions[0].choice in ("modular", "native")


@pytest.mark.parametrize("pipeline", first(2, CLASSES.values()))
def test_files_are_valid_and_formatted(pipeline: str, tmp_path: Path) -> None:
    scaffold(pipeline, tmp_path)
    for file in (tmp_path / "served").glob("*.py"):
        text = file.read_text(encoding="utf-8")
        ast.parse(text)
        assert format_python(text, file.name) == text


def test_a_pipeline_outside_diffusers_brings_its_file_and_is_imported_from_it(tmp_path: Path) -> None:
    code = Path(str(find_library("diffusers").root), "pipelines/flux/pipeline_flux.py").read_text(encoding="utf-8")
    code = code.replace("from ...", "from diffusers.").replace("from ..", "from diffusers.pipelines.")
    code = code.replace("from .pipeline_output", "from diffusers.pipelines.flux.pipeline_output")
    file = tmp_path / "mine.py"
    file.write_text(code.replace("FluxPipeline", "MinePipeline"), encoding="utf-8")
    for way in ("native", "hybrid", "whole"):
        scaffold(str(file), tmp_path, kind=way)
        package = tmp_path / "served"
        assert (package / "authors.py").read_text(encoding="utf-8") == file.read_text(encoding="utf-8")
        texts = "".join(one.read_text(encoding="utf-8") for one in package.glob("*.py") if one.stem != "authors")
        assert "from served.authors import " in texts
        assert "from mine import" not in texts
    scaffold("FluxPipeline", tmp_path / "other")
    assert not (tmp_path / "other" / "served" / "authors.py").exists()


def test_encoders_are_loaded_from_the_package_that_diffusers_saves_them_under(tmp_path: Path) -> None:
    loaded = {}
    for pipeline in ("GlmImagePipeline", "PRXPipeline", "FluxPipeline"):
        scaffold(pipeline, tmp_path)
        loaded[pipeline] = (tmp_path / "served" / "loaders.py").read_text(encoding="utf-8")
    assert 'expected_library = ("diffusers", "transformers", "glm_image")' in loaded["GlmImagePipeline"]
    assert 'expected_library = ("diffusers", "transformers", "prx")' in loaded["PRXPipeline"]  # which defines one
    assert 'expected_library = ("diffusers", "transformers")' in loaded["FluxPipeline"]


def test_a_pipeline_that_converts_no_tensors_is_served_from_arrays(tmp_path: Path) -> None:
    scaffold("LTXI2VLongMultiPromptPipeline", tmp_path)
    text = (tmp_path / "served" / "generation.py").read_text(encoding="utf-8")
    assert '"output_type": "np"' in text
    assert "frames.movedim(-1, -3)" in text


def test_every_argument_of_the_denoiser_is_a_field(tmp_path: Path) -> None:
    import inspect

    from diffusers import FluxTransformer2DModel

    scaffold("FluxPipeline", tmp_path)
    tree = ast.parse((tmp_path / "served" / "dit_config.py").read_text(encoding="utf-8"))
    fields = {
        node.target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    assert set(inspect.signature(FluxTransformer2DModel.__init__).parameters) - {"self"} <= fields


def test_defaults_are_those_of_the_call(tmp_path: Path) -> None:
    scaffold("FluxPipeline", tmp_path)
    text = (tmp_path / "served" / "sampling_params.py").read_text(encoding="utf-8")
    for line in (
        "num_inference_steps: int = 28",
        "guidance_scale: float = 3.5",
        "_default_height: ClassVar[int | None] = 1024",
    ):
        assert line in text


def test_what_it_made_is_found_again(tmp_path: Path) -> None:
    scaffold("SanaPipeline", tmp_path)
    found = get_target("sglang-diffusion").find(tmp_path)
    assert [(one.path.name, one.kind) for one in found] == [("served", Kind.pipeline)]


def test_another_targets_integration_is_not_its_own(tmp_path: Path) -> None:
    (tmp_path / "__init__.py").write_text("x = 1\n")
    assert get_target("sglang-diffusion").at(tmp_path) is None


@pytest.mark.parametrize("way", first(2, ["modular", "native", "hybrid", "whole", "pipeline"]))
def test_a_kind_may_be_the_way(way: str, tmp_path: Path) -> None:
    assert scaffold("SanaPipeline", tmp_path, kind=way).changes


def test_a_way_finds_its_target(tmp_path: Path) -> None:
    made = new_model("served", "SanaPipeline", force=True, into=tmp_path, kind="hybrid")
    assert any(change.path == "served/before_denoising.py" for change in made.changes)


def test_without_a_target_a_pipelines_denoiser_is_what_is_meant(tmp_path: Path) -> None:
    made = new_model("served", "SanaPipeline", force=True, into=tmp_path)
    assert any("transformer" in change.path for change in made.changes)


@pytest.mark.parametrize(
    ("source", "options", "said"),
    [
        ("FluxPipeline", {"kind": "modular"}, "SGLang's standard stages do not fit: FluxPipeline does not call"),
        ("SanaPipeline", {"kind": "nothing"}, "unknown kind 'nothing'"),
        ("SanaPipeline", {"kind": "llm"}, "as modular, native, hybrid, whole, not as 'llm'"),
        ("SanaTransformer2DModel", {}, "is of kind 'dit'"),
        ("Cosmos2_5_TransferPipeline", {}, "also runs controlnet"),
        ("CosmosTextToWorldPipeline", {}, "raises without cosmos_guardrail, which is not installed"),
        ("FluxImg2ImgPipeline", {"kind": "hybrid"}, "starts from image"),
        ("DiTPipeline", {}, "starts from class_labels"),
        ("LTX2Pipeline", {}, "needs audio_vae"),
        ("WanVideoToVideoPipeline", {}, "starts from video"),
        ("NoSuchPipeline", {}, "NoSuchPipeline"),
    ],
)
def test_what_cannot_be_made_is_refused(source: str, options: dict[str, str], said: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput) as caught:
        scaffold(source, tmp_path, **options)
    assert said in caught.value.message
    assert not list(tmp_path.iterdir())


def test_an_index_without_a_class_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model_index.json").write_text("{}")
    with pytest.raises(BadInput, match="_class_name"):
        scaffold(str(tmp_path), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_in_tree_parts_go_where_sglang_keeps_them(tmp_path: Path) -> None:
    package = checkout(tmp_path)
    made = scaffold("SanaPipeline", tmp_path, style="in-tree")
    places = {change.path.removeprefix("python/sglang/multimodal_gen/") for change in made.changes}
    assert {
        "runtime/pipelines/served.py", "configs/pipeline_configs/served.py", "configs/sample/served.py",
        "configs/models/dits/served.py", "runtime/models/dits/served.py",
        "runtime/pipelines_core/stages/model_specific_stages/served/prompts.py",
    } <= places  # fmt: skip
    text = (package / "configs/pipeline_configs/served.py").read_text(encoding="utf-8")
    assert "register_configs(" in text
    assert "from sglang.multimodal_gen.configs.models.dits.served import ServedDiTConfig" in text


def test_in_tree_a_pipeline_of_that_name_is_refused(tmp_path: Path) -> None:
    own = checkout(tmp_path) / "runtime/pipelines/sana.py"
    own.write_text("class P:\n    pipeline_name = 'SanaPipeline'\n\n\nEntryClass = P\n")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(BadInput, match=r"pipeline_name 'SanaPipeline' already, in sana\.py"):
        scaffold("SanaPipeline", tmp_path, style="in-tree")
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("broken", ["registry", "folder", "nothing"])
def test_in_tree_another_version_is_refused(broken: str, tmp_path: Path) -> None:
    if broken != "nothing":
        package = checkout(tmp_path)
        if broken == "registry":
            (package / "registry.py").write_text("register_configs = None\n")
        else:
            (package / "configs/sample").rmdir()
    with pytest.raises(BadInput, match=r"another version|not an SGLang checkout"):
        scaffold("SanaPipeline", tmp_path, style="in-tree")


def test_a_refusal_is_a_refusal(tmp_path: Path) -> None:
    with pytest.raises(Refusal):
        scaffold("WanVideoToVideoPipeline", tmp_path)


def checkout(root: Path) -> Path:
    """The folders of SGLang's package, with nothing in them."""
    from omni_kit.targets.sglang_diffusion.checkout import FOLDERS

    package = root / "python/sglang/multimodal_gen"
    for folder in FOLDERS.values():
        (package / folder).mkdir(parents=True)
    (package / "registry.py").write_text("def _discover_and_register_configs():\n    ...\n")
    return package


def test_what_has_an_environment_of_its_own_is_missed_by_who_asks_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from omni_kit import doctor

    monkeypatch.setattr(doctor, "imported", lambda modules: {})  # takes seconds, and is not what is asked here
    assert "sglang" in {component.name for component in doctor.examine("sglang-diffusion")}
    assert "sglang" not in {component.name for component in doctor.examine()}


def test_films_that_a_call_requires_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="WanAnimatePipeline starts from pose_video"):
        scaffold("WanAnimatePipeline", tmp_path)


def test_heads_without_an_argument_are_counted_by_the_axes_of_positions(tmp_path: Path) -> None:
    scaffold("Kandinsky5T2VPipeline", tmp_path)
    text = (tmp_path / "served/dit_config.py").read_text(encoding="utf-8")
    assert "self.num_attention_heads = self.model_dim // sum(self.axes_dims)" in text
    assert "TODO" not in text


def test_a_stage_passes_one_generator_alone(tmp_path: Path) -> None:
    scaffold("WanVACEPipeline", tmp_path)
    assert "batch.generator[0]" in "".join(one.read_text() for one in (tmp_path / "served").glob("*.py"))
