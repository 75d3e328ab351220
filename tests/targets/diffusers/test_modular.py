"""Standard pipelines as modular ones: the blocks answer what the pipeline answers, and what upstream's twin does."""

import importlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from omni_checkers import check
from omni_kit.cli.app import app
from omni_kit.errors import BadInput, Refusal
from omni_kit.parity import run_parity
from omni_kit.parity.compare.tensors import FLOAT32_TOLERANCE
from omni_kit.parity.processes.workers import Sides
from omni_kit.pysource.library import find_library
from omni_kit.scaffold import new_model
from omni_kit.targets.protocol import TODO_MARK
from omni_kit.upstream.diffusers.guidance import Formula
from omni_kit.upstream.diffusers.guiders import guider_for
from tests.conftest import first

from .checkouts import copied_checkout

EXAMPLE = Path(__file__).parents[3] / "reference_models" / "diffusers" / "wan_t2v_blocks"
SCALE = 4.0
# Pipeline -> upstream's own blocks of it, whether these take a guider, and what else the pipeline is called with.
TWINS: dict[str, tuple[str, bool, dict[str, Any]]] = {
    "FluxPipeline": ("FluxAutoBlocks", False, {}),
    "WanPipeline": ("WanBlocks", True, {"guidance_scale": SCALE, "num_frames": 5}),
    "QwenImagePipeline": ("QwenImageAutoBlocks", True, {"true_cfg_scale": SCALE}),
}


class Case:
    """A pipeline, small; the package that was made of it, and a call."""

    def __init__(self, name: str, folder: Path) -> None:
        from omni_kit.targets.references.pipelines import read_pipeline
        from omni_kit.toys.pipelines import toy_pipeline

        self.blocks, self.guided, self.more = TWINS[name]
        self.package = f"blocks_of_{name.lower()}"
        self.made = new_model(self.package, name, target="diffusers", kind="modular", into=folder)
        self.standard = toy_pipeline(read_pipeline(name), lambda pipeline: pipeline(**self.given()))

    def given(self, **changed: Any) -> dict[str, Any]:
        import torch

        return {
            "prompt": "a cat on the mat", "negative_prompt": "red dog", "height": 64, "width": 64,
            "num_inference_steps": 3, "generator": torch.Generator().manual_seed(7), "output_type": "pt",
            **self.more, **changed,
        }  # fmt: skip

    def modular(self) -> Any:
        from omni_kit.targets.diffusers.modular.side import guide, modular_of

        module = importlib.import_module(self.package)
        made = next(one for name, one in vars(module).items() if name.endswith("ModularPipeline"))
        found = modular_of(made(), self.standard)
        guide(found, self.more, next((name for name in self.more if name.endswith("scale")), ""))
        return found

    def answers(self, pipeline: Any, **changed: Any) -> Any:
        """What a modular pipeline answers, of what it takes."""
        from omni_kit.targets.diffusers.modular.side import last_output

        given = {key: one for key, one in self.given(**changed).items() if key in pipeline.blocks.input_names}
        return pipeline(**given, output=last_output(pipeline))


@pytest.fixture(scope="module", params=first(2, TWINS))
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("plugins")
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    yield Case(request.param, folder)
    sys.path.remove(str(folder))


@pytest.mark.parametrize("kind", first(1, ["pt", "latent"]))
def test_pictures_and_latents_are_the_pipelines_own(case: Case, kind: str) -> None:
    import torch

    expected = case.standard(**case.given(output_type=kind), return_dict=False)[0]
    assert torch.equal(torch.as_tensor(case.answers(case.modular(), output_type=kind)), torch.as_tensor(expected))


def test_pictures_are_those_of_upstreams_twin(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    import diffusers
    import diffusers.modular_pipelines.wan.encoders as wan
    import torch

    from omni_kit.targets.diffusers.modular.side import modular_of

    if not hasattr(wan, "ftfy"):  # which it asks for, also where it is not installed
        monkeypatch.setattr(wan, "ftfy", SimpleNamespace(fix_text=str), raising=False)
    twin = modular_of(getattr(diffusers, case.blocks)().init_pipeline(), case.standard)
    if case.guided:
        twin.update_components(guider=diffusers.ClassifierFreeGuidance(guidance_scale=SCALE))
    ours, theirs = case.answers(case.modular()), case.answers(twin)
    torch.testing.assert_close(torch.as_tensor(ours), torch.as_tensor(theirs), rtol=0, atol=1e-6)


def test_callbacks_are_called_with_what_they_ask_for(case: Case) -> None:
    import torch

    def called(run: Callable[..., Any]) -> list[Any]:
        seen: list[Any] = []

        def callback(pipeline: Any, step: int, time: Any, values: dict[str, Any]) -> dict[str, Any]:
            seen.append(values["latents"].clone())
            return {"latents": values["latents"] * 0.5}

        run(callback_on_step_end=callback, callback_on_step_end_tensor_inputs=["latents", "prompt_embeds"])
        return seen

    expected = called(lambda **given: case.standard(**case.given(**given)))
    seen = called(lambda **given: case.answers(case.modular(), **given))
    assert len(seen) == 3
    assert all(torch.equal(one, other) for one, other in zip(seen, expected, strict=True))


def test_blocks_are_of_the_right_types_and_declare_what_crosses(case: Case) -> None:
    from diffusers.modular_pipelines import LoopSequentialPipelineBlocks, SequentialPipelineBlocks

    blocks = case.modular().blocks
    assert isinstance(blocks, SequentialPipelineBlocks)
    names = list(blocks.sub_blocks)
    assert names[:2] == ["input", "text_encoder"]
    assert names[-2:] == ["denoise", "decode"]
    assert {"set_timesteps", "prepare_latents", "prepare_conditions"} == set(names[2:-2])
    loop = blocks.sub_blocks["denoise"]
    assert isinstance(loop, LoopSequentialPipelineBlocks)
    assert list(loop.sub_blocks) == ["before_denoiser", "denoiser", "after_denoiser"]
    assert not any(one.sub_blocks for name, one in blocks.sub_blocks.items() if name != "denoise")
    assert "latents" in blocks.sub_blocks["prepare_latents"].intermediate_output_names
    assert "prompt_embeds" in blocks.sub_blocks["text_encoder"].intermediate_output_names
    said = [(one.choice, one.reason) for one in case.made.plan.decisions if one.what == "guidance"]
    if case.guided:
        assert [name for name, _ in said] == ["ClassifierFreeGuidance"]
        assert not case.made.plan.todo
        assert "guider" in case.modular().component_names
        assert not {name for name in case.more if name.endswith("scale")} & {*blocks.input_names}
    else:
        why = "it does more between the two denoiser calls than call and combine"
        assert [todo.what for todo in case.made.plan.todo] == [f"the pipeline's own guidance, not a guider's: {why}"]
        assert said == [("the pipeline's own", f"its statements are copied unchanged: {why}")]


def test_statements_are_copied_as_they_are(case: Case) -> None:
    """Nothing but `self` and names of the state is another; `locals` cannot be."""
    folder = case.made.root / case.package
    text = "\n".join(path.read_text(encoding="utf-8") for path in folder.glob("*.py"))
    assert "components.scheduler.step(" in text
    assert "self.transformer(" not in text
    assert "locals()" not in text


def copied(folder: Path, name: str, changed: tuple[tuple[str, str], ...]) -> Path:
    """The installed diffusers as a tree of links, one file of it edited."""
    root = folder / "diffusers"
    shutil.copytree(find_library("diffusers").root, root, copy_function=os.symlink,
                    ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))  # fmt: skip
    file = root / name
    text = file.read_text(encoding="utf-8")
    file.unlink()
    for old, new in changed:
        assert old in text
        text = text.replace(old, new)
    file.write_text(text, encoding="utf-8")
    return root


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sides]:
    with Sides(tmp_path_factory.mktemp("sides")) as both:
        yield both


@pytest.mark.sweep
def test_parity_runs_such_a_package(tmp_path: Path, sides: Sides) -> None:
    new_model("right_blocks", "QwenImagePipeline", target="diffusers", kind="modular", into=tmp_path)
    report = run_parity(tmp_path / "right_blocks", ("import", "stages"), sides=sides)
    assert report.ok, report.levels
    assert (report.level("stages").max_rel or 0.0) <= FLOAT32_TOLERANCE


@pytest.mark.sweep
def test_what_is_planted_in_the_example_is_located(sides: Sides) -> None:
    report = run_parity(EXAMPLE, ("import", "stages"), prove=True, sides=sides)
    assert report.ok, report.levels
    assert report.prove is not None
    assert {fault.kind for fault in report.prove.planted} == {
        "guidance-formula", "sigma-off-by-one", "prompt-and-negative-swapped", "latents-scale",
        "batch-expansion", "latents-scaling-left-out", "latents-scaling-turned", "latents-shift-left-out",
    }  # fmt: skip
    assert report.prove.detected == report.prove.located == report.prove.faults
    assert (report.level("stages").max_rel or 0.0) <= FLOAT32_TOLERANCE


@pytest.mark.sweep
@pytest.mark.parametrize("pipeline", [
    "CogView3PlusPipeline", *(pytest.param(one, marks=pytest.mark.sweep)
                              for one in ("SanaPipeline", "LTXPipeline", "MochiPipeline")),
])  # fmt: skip
def test_a_guider_takes_over_from_one_call_with_twice_the_batch(pipeline: str, tmp_path: Path, sides: Sides) -> None:
    package = f"halves_of_{pipeline.lower()}"
    made = new_model(package, pipeline, target="diffusers", kind="modular", into=tmp_path)
    assert [one.choice for one in made.plan.decisions if one.what == "guidance"] == ["ClassifierFreeGuidance"]
    text = "\n".join(path.read_text(encoding="utf-8") for path in (tmp_path / package).glob("*.py"))
    assert "latent_model_input = block_state.latents" in text
    assert ".chunk(2)" not in text
    report = run_parity(tmp_path / package, ("stages",), prove=pipeline.startswith("Sana"), sides=sides)
    assert report.ok, report.levels
    if report.prove is not None:
        assert {"guidance-formula", "prompt-and-negative-swapped"} <= {fault.kind for fault in report.prove.planted}
        assert report.prove.detected == report.prove.located == report.prove.faults


@pytest.mark.sweep
@pytest.mark.parametrize("pipeline", ["CogView4Pipeline", "Lumina2Pipeline"])
def test_a_guider_takes_over_from_a_branch_that_names_its_result(pipeline: str, tmp_path: Path, sides: Sides) -> None:
    """Both branches assign `noise_pred`: without guidance, the first answer."""
    package = f"named_by_{pipeline.lower()}"
    made = new_model(package, pipeline, target="diffusers", kind="modular", into=tmp_path)
    assert [one.choice for one in made.plan.decisions if one.what == "guidance"] == ["ClassifierFreeGuidance"]
    assert not made.plan.todo
    report = run_parity(tmp_path / package, ("stages",), sides=sides)
    assert report.ok, report.levels


ALONE = "else:\n                    noise_pred = noise_pred_cond"
GUIDES = "\n                # perform guidance\n"
COMBINES = "                    noise_pred = noise_pred_uncond + "


@pytest.mark.parametrize(("changed", "choice"), first(2, [
    (((GUIDES, f"                noise_pred_cond = noise_pred_cond[:, :2]\n{GUIDES}"),), "the pipeline's own"),
    (((GUIDES, f"                noise_pred_cond = noise_pred_cond[:, :2]\n{GUIDES}"),
      (COMBINES, f"                    noise_pred_uncond = noise_pred_uncond[:, :2]\n{COMBINES}")),
     "ClassifierFreeGuidance"),
    (((ALONE, f"{ALONE} * 2"),), "the pipeline's own"),
]))  # fmt: skip
def test_both_outputs_are_treated_alike(changed: tuple[tuple[str, str], ...], choice: str, tmp_path: Path) -> None:
    root = copied(tmp_path, "pipelines/cogview4/pipeline_cogview4.py", changed)
    made = new_model("named", "CogView4Pipeline", target="diffusers", kind="modular", into=tmp_path,
                     diffusers=root, dry_run=True)  # fmt: skip
    assert [one.choice for one in made.plan.decisions if one.what == "guidance"] == [choice]


JOINED = "prompt_embeds = torch.cat([negative_prompt_embeds, prompt_embeds], dim=0)"
HALVES = "noise_pred_uncond, noise_pred_text = noise_pred.chunk(2)"
TURNED = (JOINED, "prompt_embeds = torch.cat([prompt_embeds, negative_prompt_embeds], dim=0)")
OTHERWISE = (HALVES, "noise_pred_text, noise_pred_uncond = noise_pred.chunk(2)")


@pytest.mark.parametrize(("changed", "why"), first(2, [
    ((TURNED, OTHERWISE), ""),
    ((TURNED,), "its formula uses the halves in reverse order"),
    ((OTHERWISE,), "its formula uses the halves in reverse order"),
    (((JOINED, f"{JOINED}\n            prompt_embeds = -prompt_embeds"),), "it changes prompt_embeds after doubling"),
    (((JOINED, f"{JOINED}\n        count = prompt_embeds.shape[0]"),), "it also reads prompt_embeds"),
    ((("t.expand(latent_model_input.shape[0])", "t.expand(4 if self.do_classifier_free_guidance else 2)"),),
     "it does more in its guidance branch"),
]))  # fmt: skip
def test_halves_are_told_apart_by_their_order(changed: tuple[tuple[str, str], ...], why: str, tmp_path: Path) -> None:
    root = copied(tmp_path, "pipelines/cogview3/pipeline_cogview3plus.py", changed)
    given = {"target": "diffusers", "kind": "modular", "into": tmp_path, "diffusers": root, "dry_run": True}
    made = new_model("halves", "CogView3PlusPipeline", **given)  # type: ignore[arg-type]
    (said,) = [one for one in made.plan.decisions if one.what == "guidance"]
    assert said.choice == ("the pipeline's own" if why else "ClassifierFreeGuidance")
    assert why in said.reason


@pytest.mark.parametrize(("pipeline", "why"), first(2, [
    ("StableDiffusion3Pipeline", "it also doubles prepare_ip_adapter_image_embeds"),
    ("HunyuanDiTPipeline", "it changes prompt_embeds after doubling"),
    ("SanaControlNetPipeline", "it also reads prompt_attention_mask, which it doubles"),
    ("BriaFiboPipeline", "it doubles more than the denoiser's inputs: torch.cat([negative_prompt_layers[i], "),
    ("PRXPipeline", "halves could not be identified"),
    ("ZImagePipeline", "is not split right after the call"),
]))  # fmt: skip
def test_what_doubles_more_than_its_batch_stays_as_it_is(pipeline: str, why: str, tmp_path: Path) -> None:
    made = new_model("kept", pipeline, target="diffusers", kind="modular", into=tmp_path, dry_run=True)
    assert [one.choice for one in made.plan.decisions if one.what == "guidance"] == ["the pipeline's own"]
    assert [why in todo.what for todo in made.plan.todo if "not a guider's" in todo.what] == [True]


@pytest.mark.sweep
@pytest.mark.parametrize(("source", "right", "wrong"), [
    ("QwenImagePipeline", "comb_pred = guider_output.pred\n", "comb_pred = guider_output.pred_cond\n"),
    ("WanPipeline", "(guider_state)[0]", '(guider_state)["pred_cond"]'),
])  # fmt: skip
def test_a_wrong_statement_is_found(source: str, right: str, wrong: str, tmp_path: Path, sides: Sides) -> None:
    package = f"wrong_blocks_of_{source.lower()}"
    new_model(package, source, target="diffusers", kind="modular", into=tmp_path)
    file = tmp_path / package / "denoise.py"
    text = file.read_text(encoding="utf-8")
    assert text.count(right) == 1
    file.write_text(text.replace(right, wrong), encoding="utf-8")
    report = run_parity(tmp_path / package, ("stages",), sides=sides)
    assert not report.ok
    assert "guided" in next(level.reason for level in report.levels if level.level == "stages")


@pytest.mark.parametrize(("formula", "config"), [
    ("between", {}), ("beyond", {"use_original_formulation": True}), ("unread", None),
])  # fmt: skip
def test_a_guider_is_found_by_what_its_forward_computes(formula: str, config: dict[str, bool] | None) -> None:
    import diffusers
    import torch

    found = guider_for(find_library("diffusers"), Formula[formula])
    if config is None:
        assert found is None
        return
    assert found is not None
    assert (found.name, found.config) == ("ClassifierFreeGuidance", config)
    one, other = torch.tensor([0.5]), torch.tensor([-0.25])
    answer = getattr(diffusers, found.name)(guidance_scale=3.0, **found.config).forward(one, other)["pred"]
    assert answer.item() == (other if formula == "between" else one).item() + 3.0 * 0.75


@pytest.mark.parametrize(("source", "said"), [
    ("FluxTransformer2DModel", "is of diffusers"),
    ("StableDiffusionXLPipeline", "which is not a transformer"),
    ("FluxPriorReduxPipeline", "has no denoiser"),
])  # fmt: skip
def test_what_cannot_be_divided_is_refused_in_one_line(source: str, said: str, tmp_path: Path) -> None:
    with pytest.raises((Refusal, BadInput)) as caught:
        new_model("one", source, target="diffusers", kind="modular", into=tmp_path)
    assert said in caught.value.message
    assert "\n" not in caught.value.message
    assert not list(tmp_path.iterdir())


def test_what_is_no_checkout_and_a_repository_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="is not a checkout of diffusers"):
        new_model("one", "WanPipeline", target="diffusers", kind="modular", style="in-tree", into=tmp_path)
    lumen = Path(__file__).parents[3] / "reference_models" / "diffusers" / "_upstream" / "lumen"
    with pytest.raises(Refusal, match="as standard, both, not as 'modular'"):
        new_model("one", f"{lumen}::Lumen", target="diffusers", kind="modular", into=tmp_path)
    with pytest.raises(BadInput, match="is not a checkout of diffusers"):
        new_model("one", f"{lumen}::Lumen", target="diffusers", kind="both", style="in-tree", into=tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.sweep
def test_in_a_checkout_it_can_be_imported_and_tested_at_once(tmp_path: Path) -> None:
    root = copied_checkout(tmp_path / "checkout")
    tests = root / "tests" / "modular_pipelines"
    (tests / "test_modular_pipelines_common.py").write_text("class ModularPipelineTesterMixin:\n    pass\n")
    given = {"target": "diffusers", "kind": "modular", "style": "in-tree", "into": root}
    made = new_model("qwen_blocks", "QwenImagePipeline", **given)  # type: ignore[arg-type]
    assert not made.refused
    again = new_model("qwen_blocks", "QwenImagePipeline", dry_run=True, **given)  # type: ignore[arg-type]
    assert {change.action for change in again.changes} == {"unchanged"}
    environment = {**os.environ, "PYTHONPATH": str(root / "src")}
    asked = (
        "from diffusers import QwenBlocksModularPipeline as P, QwenBlocksBlocks as B;"
        "from diffusers.utils.dummy_torch_and_transformers_objects import QwenBlocksModularPipeline as D;"
        "from diffusers.modular_pipelines.modular_pipeline import MODULAR_PIPELINE_MAPPING as M;"
        "print(P.__module__, type(P().blocks) is B, P is D, M['qwen_blocks']())"
    )
    run = [sys.executable, "-c", asked]
    done = subprocess.run(run, capture_output=True, text=True, check=False, env=environment)
    wanted = ["diffusers.modular_pipelines.qwen_blocks.modular_pipeline", "True", "False", "QwenBlocksModularPipeline"]
    assert done.stdout.split() == wanted, done.stderr[-2000:]
    run = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/modular_pipelines/qwen_blocks"]
    done = subprocess.run(run, cwd=root, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout[-3000:]
    assert "3 passed" in done.stdout
    home = root / "src" / "diffusers" / "modular_pipelines" / "qwen_blocks"
    report = check([home], target="diffusers")
    assert [one.message for one in report.findings if one.path.is_relative_to(home)] == []
    parity = run_parity(home, ("stages",))
    assert parity.ok, parity.levels
    lines = (root / "docs" / "source" / "en" / "_toctree.yml").read_text(encoding="utf-8").splitlines()
    assert "    title: QwenBlocksModularPipeline" in lines


def test_a_pipeline_without_a_kind_goes_where_it_went(tmp_path: Path) -> None:
    """A class of a transformer is still taken by one target; a pipeline's way of that name, too."""
    made = new_model("one", "FluxTransformer2DModel", into=tmp_path, dry_run=True)
    assert any("flux" in change.path or "one" in change.path for change in made.changes)
    served = new_model("two", "WanPipeline", kind="modular", into=tmp_path, force=True, dry_run=True)
    assert not any("modular_pipeline" in change.path for change in served.changes)


def test_a_round_that_ends_in_its_middle_stays_whole(tmp_path: Path) -> None:
    made = new_model("one", "HeliosPipeline", target="diffusers", kind="modular", into=tmp_path)
    text = (tmp_path / "one" / "denoise.py").read_text(encoding="utf-8")
    assert f"{TODO_MARK}: not divided: a round assigns" in text
    assert "loop_step" not in text
    assert any("not divided" in todo.what for todo in made.plan.todo)


def test_the_option_stands_in_the_place_of_a_kind(tmp_path: Path) -> None:
    """And beside a target: other frameworks have ways of that name."""
    command = ["new-model", "one", "--from", "WanPipeline", "--into", str(tmp_path), "--dry-run"]
    runner = CliRunner()
    for pipeline in ("modular", "both"):
        ran = runner.invoke(app, [*command, "--target", "diffusers", "--pipeline", pipeline, "--format", "json"])
        assert ran.exit_code == 0, ran.output
        assert "one/denoise.py" in ran.output
    standard = runner.invoke(app, [*command, "--target", "diffusers", "--pipeline", "standard", "--format", "json"])
    assert standard.exit_code == 1
    for wrong in ([], ["--target", "diffusers", "--kind", "modular"]):
        found = runner.invoke(app, [*command, *wrong, "--pipeline", "modular"])
        assert isinstance(found.exception, BadInput) or found.exit_code == 2
