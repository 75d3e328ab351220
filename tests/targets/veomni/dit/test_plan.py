"""What new-model writes for a diffusion transformer, against the class of diffusers."""

import ast
import contextlib
import importlib.util
import inspect
import json
import random
import runpy
import shutil
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import diffusers
import pytest
import torch
import yaml
from PIL import Image

from omni_checkers import check
from omni_kit.errors import BadInput, OmniKitError, Refusal
from omni_kit.parity.candidate import find_candidate
from omni_kit.pysource.library import find_library
from omni_kit.scaffold import new_model
from omni_kit.targets.protocol import Request
from omni_kit.targets.sides import Ability
from omni_kit.targets.veomni.dit.plan import make_plan
from omni_kit.upstream.diffusers.classes import transformer_names
from omni_kit.upstream.subject import open_source
from tests.conftest import first

SOURCE = "SD3Transformer2DModel"
NAMES = transformer_names(find_library("diffusers"))


def test_kernels_that_were_measured_are_written_into_the_training(tmp_path: Path) -> None:
    kernels = {"attn_implementation": "sdpa", "model.model_config.compile_blocks": "true"}
    new_model("fast", SOURCE, target="veomni", into=tmp_path, kernels=kernels)
    files = {name: yaml.safe_load((tmp_path / f"fast/{name}.yaml").read_text()) for name in ("train", "train_lora")}
    assert {name: one["model"].get("model_config") for name, one in files.items()} == {
        "train": {"compile_blocks": True}, "train_lora": None
    }  # fmt: skip
    assert {one["model"]["ops_implementation"]["attn_implementation"] for one in files.values()} == {"sdpa"}


def test_an_attention_that_a_wrapper_does_not_register_is_left_out_and_said(tmp_path: Path) -> None:
    kernels = {"attn_implementation": "torch_varlen"}
    made = new_model("fast", "WanTransformer3DModel", target="veomni", into=tmp_path, kernels=kernels)
    model = yaml.safe_load((tmp_path / "fast/train.yaml").read_text())["model"]
    assert model["ops_implementation"] == {"attn_implementation": "flash_attention_2"}
    assert "model_config" not in model
    assert any("torch_varlen was measured" in one.reason for one in made.plan.decisions)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plugin of a class without a plan."""
    place = tmp_path_factory.mktemp("plugin")
    new_model("mine", SOURCE, target="veomni", into=place)
    return place / "mine"


def config_of(package: Path, name: str) -> Any:
    """The generated module of a config, imported from its file: it needs no VeOmni."""
    file = package / f"{name}_transformer" / f"configuration_{name}_transformer.py"
    spec = importlib.util.spec_from_file_location(f"configuration_{name}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return next(value for key, value in vars(module).items() if key.endswith("TransformerConfig"))


SAMPLE = {"WanTransformer3DModel", "OmniGenTransformer2DModel", "T5FilmDecoder"}


@pytest.mark.parametrize("name", [
    name if name in SAMPLE else pytest.param(name, marks=pytest.mark.sweep) for name in NAMES
])  # fmt: skip
def test_a_config_has_its_constructors_arguments_and_defaults(name: str, tmp_path: Path) -> None:
    new_model("mine", name, target="veomni", into=tmp_path)
    real = list(inspect.signature(getattr(diffusers, name).__init__).parameters.values())[1:]

    given = config_of(tmp_path / "mine", "mine")().to_diffuser_dict()

    assert list(given) == [one.name for one in real]
    assert given == {one.name: None if one.default is one.empty else one.default for one in real}


def test_a_config_names_upstreams_class_and_no_dtype(written: Path) -> None:
    values = config_of(written, "mine")(dtype="bfloat16").to_dict()

    assert (values["_class_name"], values["_diffusers_version"]) == (SOURCE, diffusers.__version__)
    assert "dtype" not in values


def test_what_trainers_export_of_a_config_is_diffusers_own(written: Path, tmp_path: Path) -> None:
    config = config_of(written, "mine")(num_layers=3)
    config.save_pretrained(tmp_path / "ours")
    diffusers.SD3Transformer2DModel.from_config({**config.to_diffuser_dict(), "num_layers": 3}).save_config(
        tmp_path / "theirs"
    )

    ours, theirs = ((tmp_path / who / "config.json").read_bytes() for who in ("ours", "theirs"))

    assert ours == theirs


def test_exported_weights_get_the_names_that_diffusers_looks_for(written: Path, tmp_path: Path) -> None:
    index = {"metadata": {}, "weight_map": {"a": "model-00001-of-00001.safetensors"}}
    (tmp_path / "model-00001-of-00001.safetensors").write_bytes(b"weights")
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")

    config_of(written, "mine")().save_pretrained(tmp_path)

    renamed = json.loads((tmp_path / "diffusion_pytorch_model.safetensors.index.json").read_text(encoding="utf-8"))
    assert renamed["weight_map"] == {"a": "diffusion_pytorch_model-00001-of-00001.safetensors"}
    assert (tmp_path / "diffusion_pytorch_model-00001-of-00001.safetensors").read_bytes() == b"weights"
    assert not list(tmp_path.glob("model*"))


@pytest.mark.parametrize(
    ("source", "key", "count"),
    first(1, [("WanPipeline", "frames", 3), ("CogView4Pipeline", "image", 1), ("QwenImageEditPipeline", "images", 2)]),
)
def test_the_maker_of_data_writes_rows_that_the_preprocessor_reads(
    source: str, key: str, count: int, tmp_path: Path
) -> None:
    new_model("mine", source, target="veomni", into=tmp_path)
    made = tmp_path / "data.jsonl"
    options = ["--samples", "2", "--size", "16", *(["--frames", "3"] if key == "frames" else [])]
    with patch.object(sys, "argv", ["make_data", str(made), *options]):
        runpy.run_path(str(tmp_path / "mine" / "make_data.py"), run_name="__main__")

    rows = [json.loads(line) for line in made.read_text(encoding="utf-8").splitlines()]

    assert len(rows) == 2
    images = [one for row in rows for one in ([row[key]] if key == "image" else row[key])]
    assert len(images) == 2 * count
    preprocessor = (tmp_path / "mine" / "mine_condition" / "data.py").read_text(encoding="utf-8")
    assert f'row["{key}"]' in preprocessor
    assert {Image.open(one).size for one in images} == {(16, 16)}


def test_a_pipeline_that_is_given_is_what_the_training_file_names(tmp_path: Path) -> None:
    pipeline = tmp_path / "some" / "pipeline"
    (pipeline / "transformer").mkdir(parents=True)
    index = {"_class_name": "CogView4Pipeline", "transformer": ["diffusers", "CogView4Transformer2DModel"]}
    (pipeline / "model_index.json").write_text(json.dumps(index), encoding="utf-8")
    (pipeline / "transformer" / "config.json").write_text(
        json.dumps({"_class_name": "CogView4Transformer2DModel"}), encoding="utf-8"
    )

    new_model("mine", str(pipeline), target="veomni", into=tmp_path)

    model = yaml.safe_load((tmp_path / "mine" / "train.yaml").read_text(encoding="utf-8"))["model"]
    assert model["model_path"] == f"{pipeline}/transformer"
    assert model["condition_model_path"] == str(pipeline)


def test_values_that_transformers_rewrites_stay_as_they_are(tmp_path: Path) -> None:
    new_model("mine", "OmniGenTransformer2DModel", target="veomni", into=tmp_path)
    scaling = {"long_factor": [1.5], "short_factor": [1.0]}

    config = config_of(tmp_path / "mine", "mine")(rope_scaling=scaling)

    assert config.to_diffuser_dict()["rope_scaling"] == {"long_factor": [1.5], "short_factor": [1.0]}


def test_written_twice_nothing_changes(written: Path) -> None:
    again = new_model("mine", SOURCE, target="veomni", into=written.parent)

    assert not again.refused
    assert {change.action for change in again.changes} == {"unchanged"}


def test_the_training_file_says_what_the_trainer_knows(written: Path) -> None:
    values = yaml.safe_load((written / "train.yaml").read_text(encoding="utf-8"))
    model = json.loads((written / "configs" / "mine.json").read_text(encoding="utf-8"))

    assert values["train"]["accelerator"]["fsdp_config"]["fsdp_mode"] == "fsdp2"
    assert (values["data"]["data_type"], values["data"]["text_keys"]) == ("diffusion", "prompt")
    assert values["data"]["source_name"] == "mine"
    assert values["model"]["config_path"] == "./mine/configs/mine.json"
    assert model["_class_name"] == model["model_type"] == SOURCE
    assert model["condition_model_type"] == f"{SOURCE}Condition"


@pytest.mark.parametrize(("name", "says"), first(2, [
    ("WanTransformer3DModel", ""),
    ("SD3Transformer2DModel", "no _cp_plan"),
    ("HeliosTransformer3DModel", "receive the whole sequence's length (original_context_length)"),
    ("LTX2VideoTransformer3DModel", "not that of its siblings: audio_rope"),
]))  # fmt: skip
def test_sequences_are_shared_by_a_plan_that_can_hold_and_else_not_at_all(name: str, says: str, tmp_path: Path) -> None:
    scaffold = new_model("mine", name, target="veomni", into=tmp_path)
    (sharing,) = [one for one in scaffold.plan.decisions if one.what == "sequence parallelism"]
    there = (tmp_path / "mine" / "mine_transformer" / "sequence_parallel.py").is_file()

    assert there == (sharing.choice == "patch") == (not says)
    assert says in sharing.reason


def test_a_class_without_a_pipeline_says_what_is_left_to_do(tmp_path: Path) -> None:
    scaffold = new_model("mine", "WanAnimateTransformer3DModel", target="veomni", into=tmp_path, dry_run=True)

    assert ["get_condition" in todo.what for todo in scaffold.plan.todo] == [True]


def helper(package: Path, name: str, **names: Any) -> Any:
    """A function of what new-model writes for conditions, without VeOmni, which the whole module imports."""
    text = (package / f"{package.name}_condition" / f"modeling_{package.name}_condition.py").read_text(encoding="utf-8")
    (found,) = (node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef) and node.name == name)
    assert text.count(f"{name}(") > text.count(f"def {name}(")
    names |= {"torch": torch}
    exec(ast.unparse(found), names)
    return names[name]


def test_objects_that_a_pipeline_passes_are_not_among_the_conditions(written: Path) -> None:
    """GlmImage's pipeline passes a cache, which no data set can hold."""
    is_data = helper(written, "_is_data")
    assert all(map(is_data, (torch.ones(1), 3, [torch.ones(1), None], {"scale": 1.0})))
    assert not any(map(is_data, (None, {}, object(), [object()], {"cache": object()})))


def test_latents_are_laid_out_as_the_pipeline_draws_them(written: Path) -> None:
    """Kandinsky5 draws channels last, CogVideoX frames before channels, and others what the autoencoder makes."""
    laid_out = helper(written, "_laid_out")
    picture, film = torch.rand(1, 6, 8, 12), torch.rand(1, 6, 3, 8, 12)

    assert laid_out(picture, (1, 1, 8, 12, 6)).equal(picture.permute(0, 2, 3, 1)[:, None])
    assert laid_out(film, (1, 3, 8, 12, 6)).equal(film.permute(0, 2, 3, 4, 1))
    assert laid_out(film, (1, 3, 6, 8, 12)).equal(film.transpose(1, 2))
    assert laid_out(film, (1, 6, 3, 8, 12)).equal(film)
    assert laid_out(picture, (1, 6, 1, 8, 12)).equal(picture[:, :, None])
    assert laid_out(picture, (1, 24, 24)).equal(picture.reshape(1, 24, 24)), "packed"


def test_what_a_pipeline_draws_itself_goes_with_the_sample_and_leaves_other_chance_alone(written: Path) -> None:
    """GlmImage's encoder samples codes: resumed trainings and stored conditions must have the same."""
    seeded = helper(written, "_seeded", contextlib=contextlib, zlib=zlib)

    def drawn(prompt: str) -> float:
        with seeded(prompt, torch.device("cpu")):
            return float(torch.rand(1))

    before = torch.get_rng_state()
    assert drawn("a cat") == drawn("a cat") != drawn("a dog")
    assert torch.get_rng_state().equal(before)


@pytest.mark.parametrize(("name", "pictures"), first(1, [("ChronoEditTransformer3DModel", ["image"]), (SOURCE, None)]))
def test_conditions_pass_the_pictures_that_a_pipeline_requires(
    name: str, pictures: list[str] | None, tmp_path: Path
) -> None:
    new_model("mine", name, target="veomni", into=tmp_path)
    written = (tmp_path / "mine" / "mine_condition" / "modeling_mine_condition.py").read_text(encoding="utf-8")
    tree = ast.parse(written)
    found = [ast.literal_eval(one.value) for one in tree.body
             if isinstance(one, ast.Assign) and ast.unparse(one.targets[0]) == "_PICTURES"]  # fmt: skip

    assert found == ([pictures] if pictures else [])


def test_the_last_picture_of_a_sample_is_the_target_where_a_pipeline_starts_from_others(tmp_path: Path) -> None:
    new_model("mine", "QwenImageEditPipeline", target="veomni", into=tmp_path)
    written = (tmp_path / "mine" / "mine_condition" / "modeling_mine_condition.py").read_text(encoding="utf-8")
    needed = [one for one in ast.parse(written).body if getattr(one, "name", "") == "_parts"]
    space: dict[str, Any] = {"_PICTURES": ["image"]}
    exec(compile(ast.Module(needed, []), "parts", "exec"), space)

    assert space["_parts"](["before", "after"], None) == ("after", ["before"])
    with pytest.raises(ValueError, match="starts from 1 pictures"):
        space["_parts"](["after"], None)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The folders of a VeOmni checkout, with a diffusion model of its own."""
    for folder in ("transformers", "diffusers/wan"):
        (tmp_path / "veomni" / "models" / folder).mkdir(parents=True)
    for package in ("veomni", "veomni/models", "veomni/models/transformers"):
        (tmp_path / package / "__init__.py").write_text("", encoding="utf-8")
    models = tmp_path / "veomni/models/diffusers"
    (models / "__init__.py").write_text('from . import wan\n\n__all__ = ["wan"]\n', encoding="utf-8")
    (models / "wan/__init__.py").write_text(
        "from ...loader import MODELING_REGISTRY\nMODELING_REGISTRY.register('WanTransformer3DModel')\n",
        encoding="utf-8",
    )
    return tmp_path


def test_in_tree_the_aggregate_imports_it(checkout: Path) -> None:
    new_model("mine", SOURCE, target="veomni", into=checkout, style="in-tree")

    aggregate = (checkout / "veomni/models/diffusers/__init__.py").read_text(encoding="utf-8")
    assert "from . import mine, wan" in aggregate or "from . import wan, mine" in aggregate
    assert '"mine"' in aggregate
    assert (checkout / "configs/dit/mine.yaml").is_file()
    launcher = (checkout / "veomni/models/diffusers/mine/train.py").read_text(encoding="utf-8")
    assert "-m veomni.models.diffusers.mine.train configs/dit/mine.yaml" in launcher
    assert "import veomni.models.diffusers.mine.mine_condition.data" in launcher


def test_its_training_file_has_no_argument_that_the_trainer_lacks(checkout: Path) -> None:
    package = find_library("veomni").root
    for name in ("arguments/arguments_types.py", "trainer/dit_trainer.py"):
        (checkout / "veomni" / name).parent.mkdir()
        shutil.copy(package / name, checkout / "veomni" / name)
    new_model("mine", SOURCE, target="veomni", into=checkout, style="in-tree")
    found = [checkout / "veomni/models/diffusers/mine"]
    file = checkout / "configs/dit/mine.yaml"

    assert check(found, select=["VEO804"]).findings == []
    file.write_text(file.read_text(encoding="utf-8").replace("mm_configs:", "media:"), encoding="utf-8")
    assert [one.message for one in check(found, select=["VEO804"]).findings] == ["VeOmni has no argument 'data.media'"]


def test_what_can_be_trained_has_a_launcher_data_and_a_training_file(checkout: Path) -> None:
    new_model("mine", SOURCE, target="veomni", into=checkout, style="in-tree")
    found = checkout / "veomni/models/diffusers/mine"

    assert Ability.train in find_candidate(found).offers
    (checkout / "configs/dit/mine.yaml").unlink()
    assert Ability.train not in find_candidate(found).offers
    assert (checkout / "configs/model_configs/mine/mine.json").is_file()
    assert (checkout / "tests/models/test_mine_parity.py").is_file()


def test_in_tree_a_class_that_is_registered_already_is_refused(checkout: Path) -> None:
    with pytest.raises(Refusal, match="diffusers/wan of this checkout registers 'WanTransformer3DModel'"):
        new_model("mine", "WanTransformer3DModel", target="veomni", into=checkout, style="in-tree")


def test_what_is_no_diffusion_transformer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput):
        new_model("mine", "AutoencoderKLWan", target="veomni", into=tmp_path)
    assert not any(tmp_path.iterdir())


@pytest.fixture(autouse=True)
def _no_generated_modules() -> Iterator[None]:
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.startswith("configuration_"):
            del sys.modules[name]


VALUES: list[Any] = [
    None, 0, -1, 3, 1.5, True, "", "x", [], [1], [1, 2, 2], [0, 0, 0], {}, {"a": 1}, [[1]], [None], 10**9, ["x"],
]  # fmt: skip


@pytest.mark.sweep
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_whatever_a_config_says_there_is_a_plan_or_one_line(seed: int, tmp_path: Path) -> None:
    """A traceback would end the test."""
    chance, outcomes = random.Random(seed), set()
    for _ in range(40 if seed == 0 else 400):
        name = chance.choice(NAMES)
        arguments = list(inspect.signature(getattr(diffusers, name).__init__).parameters)[1:]
        chosen = chance.sample(arguments, min(len(arguments), chance.randint(1, 4)))
        values = {"_class_name": name, **{key: chance.choice(VALUES) for key in chosen}}
        (tmp_path / "config.json").write_text(json.dumps(values), encoding="utf-8")
        try:
            make_plan(open_source(str(tmp_path)), Request("mine", tmp_path))
            outcomes.add("planned")
        except OmniKitError as error:
            outcomes.add("refused" if "\n" not in error.message else error.message)
    assert outcomes == {"planned", "refused"}


@pytest.mark.parametrize(("name", "lost"), first(1, [
    ("ChromaTransformer2DModel", "attention_mask"),  # diffusers 0.37 forgets it where blocks are checkpointed
    ("FluxTransformer2DModel", ""),
]))  # fmt: skip
def test_what_upstream_would_train_as_another_model_is_not_checkpointed(name: str, lost: str, tmp_path: Path) -> None:
    scaffold = new_model("mine", name, target="veomni", into=tmp_path)

    values = yaml.safe_load((tmp_path / "mine" / "train.yaml").read_text(encoding="utf-8"))

    assert values["train"]["gradient_checkpointing"]["enable"] is not bool(lost)
    said = [one.reason for one in scaffold.plan.decisions if one.what == "gradient checkpointing"]
    assert [lost in one for one in said] == ([True] if lost else [])
