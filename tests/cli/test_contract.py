"""The command-line contract: fields, exit codes, errors; and what importing the CLI costs."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from omni_kit.cli import main
from omni_kit.resources import resource_dir
from tests.conftest import Checkpoints, first, run_cli, sampled

FIELDS = {
    "inspect": {
        "model_type", "library", "library_version", "architectures", "kind", "traits", "components", "experts",
        "nearest_reference", "targets",
    },
    "check-layout": {"model_type", "recipe", "subtrees", "verdict", "converter", "keys", "findings"},
    "new-model": {"files", "decisions", "todo", "next"},
    "skills": {"skills"},
    "doctor": {"components"},
    "convert": {"tensors", "bytes", "shards", "peak_rss_bytes", "seconds", "verified", "resumed"},
    "patchgen": {"configs"},
    "check": {"findings", "checked", "suppressed", "baseline"},
    "rules": {"rules"},
    "parity": {"levels", "not_run", "first_divergence", "prove"},
}  # fmt: skip
REFERENCE = str(resource_dir("reference_models") / "veomni" / "olmoe")


def arguments(command: str, checkpoint: Path, tmp_path: Path) -> list[str]:
    return {
        "convert": ["convert", str(checkpoint), str(tmp_path / "out"), "--to", "canonical"],
        "patchgen": ["patchgen", "check", f"{REFERENCE}/olmoe_gpu_patch_gen_config.py"],
        "check": ["check", REFERENCE],
        "rules": ["rules", "list"],
        "parity": ["parity", REFERENCE, "--levels", "keys"],
        "inspect": ["inspect", "olmoe"],
        "check-layout": ["check-layout", str(checkpoint)],
        "new-model": ["new-model", "olmoe", "--from", str(checkpoint), "--into", str(tmp_path)],
        "skills": ["skills", "list"],
        "doctor": ["doctor"],
    }[command]


INNER = {
    "convert": ("tensors", {"read", "written", "passed_through", "converted"}),
    "patchgen": (
        "configs",
        {"config", "source_module", "target_file", "output", "status", "patches", "diagnostics", "seconds"},
    ),
    "check": ("checked", {"models", "files", "rules"}),
    "rules": (
        "rules",
        {"id", "name", "severity", "target", "kinds", "level", "summary", "obligations", "fixable", "since", "status"},
    ),
    "parity": ("levels", {"level", "status", "reason", "max_abs", "max_rel", "tolerance", "seconds"}),
    "doctor": ("components", {"name", "version", "needed_by", "status", "fix"}),
    "new-model": ("files", {"path", "action"}),
}


@pytest.mark.parametrize("command", sampled(FIELDS, *FIELDS.keys() - {"parity", "doctor"}))
def test_json_fields(command: str, checkpoint: Checkpoints, tmp_path: Path) -> None:
    """The fields of the contract, and those of what lies in its first list."""
    code, data = run_cli(*arguments(command, checkpoint("olmoe"), tmp_path))
    assert code == 0
    assert data["schema"] == f"omni-kit/{command}/1"
    assert data["ok"] is True
    assert FIELDS[command] <= data.keys()
    if command in INNER:
        field, names = INNER[command]
        found = data[field]
        assert names <= (found[0] if isinstance(found, list) else found).keys()


def test_every_inner_field_is_of_a_command() -> None:
    assert INNER.keys() <= FIELDS.keys()


def test_check_layout_inner_fields(checkpoint: Checkpoints) -> None:
    _, data = run_cli("check-layout", str(checkpoint("olmoe")))
    assert data["recipe"].keys() >= {"resolved_from", "alias_of", "shadowed_alias", "operations", "library_version"}
    assert data["keys"].keys() >= {"total", "expert", "mapped", "unmapped", "missing", "ignored"}
    tree = data["subtrees"][0]
    assert tree["prefix"] == "model.layers.*.mlp.experts"
    assert tree["layers"] == [0, 1, 2]
    assert (tree["disk"], tree["memory"], tree["converter"]) == ("per-expert", "canonical", "merge-concat")
    assert tree["names"] == {"gate": "gate_proj.weight", "up": "up_proj.weight", "down": "down_proj.weight"}
    assert tree.keys() >= {"role", "num_experts", "dtype", "quantized", "ambiguous", "evidence"}


@pytest.mark.parametrize("command", [
    pytest.param(c, marks=pytest.mark.sweep if c == "parity" else ()) for c in FIELDS if c != "doctor"
])  # fmt: skip
def test_human_output(
    command: str, checkpoint: Checkpoints, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments(command, checkpoint("olmoe"), tmp_path)) == 0
    captured = capsys.readouterr()
    assert len(captured.out.splitlines()) >= (1 if command == "check" else 3)
    assert max(len(line) for line in captured.out.splitlines()) <= 200


BAD = [
    (["inspect", "nonsense"], 2),
    (["check-layout", "olmoe", "--against-model"], 2),
    (["new-model", "my-model", "--from", "olmoe"], 2),
    (["new-model", "m", "--from", "olmoe", "--style", "sideways"], 2),
    (["new-model", "m", "--from", "olmoe", "--target", "nowhere"], 2),
    (["new-model", "m"], 2),
    (["inspect", "olmoe", "--transformers", "/nonexistent"], 2),
    (["no-such-command"], 2),
    (["inspect", "--no-such-option"], 2),
    (["doctor", "--target", "nowhere"], 2),
    (["rules", "list", "--target", "nowhere"], 2),
    (["parity"], 2),
    (["parity", ".", "--device", "tpu"], 2),
    (["check", ".", "--level", "deep"], 2),
    (["check-layout", "olmoe", "--assume", "sideways"], 2),
    (["verify", ".", "--card", "."], 2),
    (["patchgen", "drift", "--library", "no_such_library"], 3),
]


@pytest.mark.parametrize(("given", "code"), BAD)
def test_bad_input_is_one_line(given: list[str], code: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(given) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    lines = captured.err.splitlines()
    assert lines[0].startswith("error: ")
    assert all(line.startswith(("error:", "hint:")) for line in lines)
    assert "Value error" not in captured.err


@pytest.mark.parametrize(("given", "code"), BAD)
def test_bad_input_in_json(given: list[str], code: int) -> None:
    got, data = run_cli(*given)
    assert got == code
    assert data.keys() == {"schema", "ok", "error", "hint"}
    assert (data["schema"], data["ok"]) == ("omni-kit/error/1", False)


def test_verify_ends_at_once_without_its_weights(tmp_path: Path) -> None:
    code, data = run_cli("verify", str(tmp_path), "--weights", "no/such/checkpoint")
    assert code == 2
    assert data["error"].startswith("no/such/checkpoint does not exist")


def test_findings_exit_one(checkpoint: Checkpoints, tmp_path: Path) -> None:
    config = json.loads((checkpoint("olmoe") / "config.json").read_text()) | {"num_experts": 7}
    (tmp_path / "config.json").write_text(json.dumps(config))
    code, data = run_cli("check-layout", str(checkpoint("olmoe")), "--config", str(tmp_path / "config.json"))
    assert code == 1
    assert data["ok"] is False
    assert data["findings"][0]["code"] == "incomplete-experts"


def test_refusal_exits_one_and_says_why(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "README.md").write_text("mine")
    code, data = run_cli("new-model", "m", "--from", "olmoe", "--into", str(tmp_path))
    assert code == 1
    assert "README.md exists with different content" in data["notes"][0]
    assert data["refused"] == data["notes"][0]


@pytest.mark.parametrize("bodies", first(1, [{"odd": "lamp(x)"}, {"sound": "self.out(x)"}]))
def test_written_files_with_an_undefined_name_are_told_from_a_refusal(bodies: dict[str, str], tmp_path: Path) -> None:
    net = "    def forward(self, x, t):\n        return {}\n"
    for name, body in bodies.items():
        made = "import torch\n\n\nclass Net(torch.nn.Module):\n    def __init__(self, dim=8):\n"
        made += "        super().__init__()\n        self.out = torch.nn.Linear(dim, dim)\n\n"
        (tmp_path / name).mkdir()
        (tmp_path / name / "m.py").write_text(made + net.format(body))
        given = ("--from", f"{tmp_path / name / 'm.py'}::Net", "--target", "diffusers", "--into", str(tmp_path / "out"))
        code, data = run_cli("new-model", f"net_{name}", *given)
        assert data["refused"] is None
        assert any("(F821)" in one["what"] for one in data["todo"]) == (name == "odd")
        assert (code, data["ok"]) == (1, False)  # either pipeline raises
        assert {one["rule"] for one in data["findings"] if one["severity"] == "error"} == {"DFU215"}
        assert all(one["marked"] for one in data["findings"] if one["rule"] == "DFU215")


def test_another_transformers(tmp_path: Path) -> None:
    """The unpacked version is the one that is read."""
    import shutil

    import transformers

    root = tmp_path / "transformers"
    source = Path(transformers.__file__).parent
    for name in ("__init__.py", "configuration_utils.py", "conversion_mapping.py"):
        root.mkdir(exist_ok=True)
        shutil.copy(source / name, root)
    for folder in ("llama", "auto"):
        shutil.copytree(source / "models" / folder, root / "models" / folder)
    (root / "__init__.py").write_text('__version__ = "99.0.0"\n')
    code, data = run_cli("inspect", "llama", "--transformers", str(tmp_path))
    assert (code, data["library_version"]) == (0, "99.0.0")
    assert run_cli("inspect", "qwen3", "--transformers", str(tmp_path))[0] == 2


def imported_by(code: str) -> list[str]:
    heavy = ("torch", "transformers", "diffusers", "veomni", "libcst", "numpy")
    script = f"{code}\nimport sys; print([m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    result: Any = eval(done.stdout.splitlines()[-1])
    return list(result)


def test_help_imports_nothing_heavy() -> None:
    assert imported_by("from omni_kit.cli import main; main(['--help'])") == []


@pytest.mark.parametrize(
    "given",
    sampled(
        [["inspect", "olmoe"], ["skills", "list"], MADE := ["new-model", "m", "--from", "olmoe", "--dry-run"]], MADE
    ),
)
def test_commands_of_the_base_install_import_no_torch(given: list[str]) -> None:
    found = imported_by(f"from omni_kit.cli import main; main({given!r})")
    assert not {"torch", "transformers", "diffusers", "veomni"} & set(found)


@pytest.mark.parametrize(
    ("raised", "code", "words"),
    [
        (RuntimeError("a\nsurprise"), 3, "omni-kit failed: RuntimeError: a surprise"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_what_nobody_foresaw_is_one_line(
    raised: BaseException, code: int, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise raised

    monkeypatch.setenv("OMNI_KIT_CACHE", str(tmp_path))
    monkeypatch.setattr("omni_kit.inspection.inspect", fail)
    got, data = run_cli("inspect", "olmoe")
    assert (got, data["schema"], data["ok"], data["error"]) == (code, "omni-kit/error/1", False, words)
    if code == 3:
        assert str(tmp_path / "failure.log") in data["hint"]
        assert "Traceback (most recent call last)" in (tmp_path / "failure.log").read_text()


@pytest.mark.parametrize("given", [
    ["check", "models", "--baseline", "itself"], ["reference", "copy", "olmoe", "--into", "itself"],
    ["new-model", "m", "--from", "olmoe", "--target", "veomni", "--into", "itself"], ["update", "x" * 5000],
    ["inspect", "itself"], ["skills", "add", "--dir", "itself"],
])  # fmt: skip
def test_a_path_that_the_system_refuses_is_one_line(
    given: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("itself").symlink_to("itself")
    shutil.copytree(resource_dir("reference_models") / "veomni" / "olmoe", "models")
    assert main(given) == 2
    said = capsys.readouterr().err
    assert "omni-kit failed" not in said
    assert said.count("error:") == 1


def test_the_short_form_of_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-h"]) == main(["inspect", "-h"]) == 0
    assert "Usage: omni-kit inspect" in capsys.readouterr().out


def test_help_flows_and_shows_square_brackets(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--help"]) == main(["patchgen", "run", "--help"]) == 0
    shown = capsys.readouterr().out
    assert "[tool.patchgen]" in shown
    said = next(line for line in shown.splitlines() if "[tool.omni-kit.check]" in line)
    assert said.startswith(" baseline in"), "one line of the source begins no line of the terminal"


def test_every_command_has_help(capsys: pytest.CaptureFixture[str]) -> None:
    for command in (
        "inspect",
        "check-layout",
        "new-model",
        "convert",
        "patchgen",
        "check",
        "rules",
        "parity",
        "skills",
        "doctor",
        "demo",
    ):
        assert main([command, "--help"]) == 0
        assert "Usage: omni-kit " in capsys.readouterr().out
