"""Every command's JSON is what its published schema says: nothing else, nothing missing, one shape for one name."""

import copy
import json
import shutil
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import typer

from omni_kit import doctor
from omni_kit.cli import app
from tests.conftest import Checkpoints, run_cli

ROOT = Path(__file__).parents[2]
SCHEMAS = {path.stem: json.loads(path.read_text()) for path in sorted((ROOT / "docs" / "schemas").glob("*.json"))}
OLMOE = ROOT / "reference_models" / "veomni" / "olmoe"


def closed(schema: Any) -> Any:
    """The schema with nothing in its objects but what it names: users must not rely on that, we have to."""
    if isinstance(schema, list):
        return [closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {key: closed(value) for key, value in schema.items()}
    if isinstance(inner.get("properties"), dict) and "additionalProperties" not in inner and "type" in inner:
        inner["additionalProperties"] = False
    return inner


def validate(answer: dict[str, Any]) -> None:
    command = answer["schema"].split("/")[1]
    assert SCHEMAS[command]["properties"]["schema"]["const"] == answer["schema"]
    jsonschema.validate(answer, closed(copy.deepcopy(SCHEMAS[command])), jsonschema.Draft202012Validator)


@pytest.mark.parametrize("command", SCHEMAS)
def test_it_is_a_schema(command: str) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMAS[command])
    assert {"schema", "ok"} <= set(SCHEMAS[command]["required"])


def test_every_command_has_one() -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    assert set(SCHEMAS) == {*commands, "error"}


@pytest.mark.parametrize(
    "arguments",
    [
        ("inspect", "olmoe"),
        ("inspect", "qwen3_vl"),
        ("inspect", "t5"),
        ("inspect", "WanTransformer3DModel"),
        ("inspect", "FluxPipeline"),
        ("check-layout", "FluxTransformer2DModel"),
        ("inspect", "no_such_model"),
        ("check-layout", "llama"),
        ("check-layout", "mixtral"),
        ("check-layout", "no/such/place"),
        ("reference", "list"),
        ("reference", "show", "olmoe"),
        ("reference", "show", "olmoe", "README.md"),
        ("rules", "list"),
        ("rules", "explain", "VEO204"),
        ("skills", "list"),
        ("skills", "check"),
        ("skills", "check", "no/such/place"),
        ("skills", "check", str(ROOT / "tests" / "fixtures" / "skills")),
        ("skills", "update", "--dir", "no/such/place"),
        ("patchgen", "list", "--root", str(OLMOE), "--all"),
        ("patchgen", "check", str(OLMOE / "olmoe_gpu_patch_gen_config.py")),
        ("patchgen", "run", "no/such/config.py"),
        ("patchgen", "upgrade", str(OLMOE), "--from", "5.9.0", "--dry-run"),
        pytest.param(("upgrade", str(OLMOE), "--from", "5.9.0", "--dry-run"), marks=pytest.mark.sweep),
        ("upgrade", str(OLMOE)),
        ("check", str(OLMOE)),
        ("check", "no/such/model"),
        ("new-model",),
        ("parity",),
        ("verify",),
        ("verify", "no/such/place"),
        ("verify", "--card", "no/such/card"),
    ],
    ids=" ".join,
)
def test_what_needs_nothing(arguments: tuple[str, ...]) -> None:
    validate(run_cli(*arguments)[1])


def test_what_writes(checkpoint: Checkpoints, tmp_path: Path) -> None:
    source = checkpoint("olmoe")
    validate(run_cli("check-layout", str(source))[1])
    validate(run_cli("convert", str(source), str(tmp_path / "canonical"), "--to", "canonical")[1])
    made = ("new-model", "m", "--from", str(source), "--target", "veomni", "--into", str(tmp_path))
    for more in (("--dry-run",), ("--diff",), ()):
        code, answer = run_cli(*made, *more)
        validate(answer)
        assert code == 0
    validate(run_cli("update", str(tmp_path / "m"), "--diff")[1])
    config = tmp_path / "m" / "m_gpu_patch_gen_config.py"
    config.write_text(config.read_text() + "\n# another line\n")
    code, dry = run_cli("patchgen", "run", str(config), "--dry-run")
    validate(dry)
    assert (code, "written" in json.dumps(dry["configs"])) == (0, False)
    validate(run_cli("patchgen", "run", str(config))[1])
    (tmp_path / "m" / "parallel_plan.py").write_text("# mine\n")
    code, refused = run_cli(*made[:3], "mixtral", *made[4:])
    validate(refused)
    assert (code, refused["ok"]) == (1, False)
    validate(run_cli("reference", "copy", "olmoe", "--into", str(tmp_path / "examples"))[1])
    for command in ("add", "update", "remove"):
        validate(run_cli("skills", command, "--dir", str(tmp_path / "skills"))[1])


@pytest.mark.parametrize(
    ("source", "more", "reason"),
    [
        ("t5", (), "is an encoder-decoder"),
        ("bert", (), "ties cls.predictions.decoder.bias"),
        ("mllama", (), "by none of get_image_features"),
        ("olmoe", ("--kind", "llm"), "of kind 'moe', not 'llm'"),
    ],
)
def test_a_refusal_is_exit_1_with_the_reason(source: str, more: tuple[str, ...], reason: str, tmp_path: Path) -> None:
    code, answer = run_cli("new-model", "m", "--from", source, "--target", "veomni", "--into", str(tmp_path), *more)
    validate(answer)
    assert (code, answer["schema"], answer["files"]) == (1, "omni-kit/new-model/1", [])
    assert reason in answer["notes"][0]
    assert not list(tmp_path.iterdir())


def test_findings_and_drift(tmp_path: Path) -> None:
    shutil.copytree(OLMOE, tmp_path / "olmoe")
    generated = tmp_path / "olmoe" / "generated" / "patched_modeling_olmoe_gpu.py"
    generated.write_text(generated.read_text().replace("attention_mask=", "mask=", 1))
    code, answer = run_cli("check", str(tmp_path / "olmoe"))
    validate(answer)
    assert code == 1
    import transformers

    library = str(Path(transformers.__file__).parent)
    validate(run_cli("patchgen", "drift", "--root", str(tmp_path), "--from", library, "--to", library)[1])


def test_parity_and_doctor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "imported", lambda modules: {})  # which takes seconds
    shutil.copytree(OLMOE, tmp_path / "olmoe")
    generated = tmp_path / "olmoe" / "generated" / "patched_modeling_olmoe_gpu.py"
    text = generated.read_text()
    generated.write_text(text.replace("return self.weight * hidden_states", "return self.weight + hidden_states"))
    code, answer = run_cli("parity", str(tmp_path / "olmoe"), "--levels", "import,forward,modules")
    validate(answer)
    assert (code, answer["first_divergence"] is None) == (1, False)
    validate(run_cli("doctor", "--target", "veomni")[1])
    validate(run_cli("doctor", "--target", "nonsense")[1])
