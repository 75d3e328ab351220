"""The gate, the list, `[tool.patchgen]`, and the excludes that --fix adds."""

import shutil
from pathlib import Path

import pytest

from omni_kit.errors import BadInput
from omni_kit.patchgen import check_config, check_configs, list_configs, run_config
from omni_kit.patchgen.excludes import add_excludes, with_excludes
from omni_kit.patchgen.project import find_configs, find_project
from tests.patchgen.conftest import FIXTURES, VEOMNI_CONFIGS, World, package_dir

UPSTREAM = "class C:\n    def m(self):\n        return 1\n"
CONFIG = "@config.override_method('C.m')\ndef m(self):\n    return 2\n"


def codes(path: Path) -> list[str]:
    return [d.code for d in check_config(path).diagnostics]


def test_fresh_output_is_ok(world: World) -> None:
    path = world(UPSTREAM, CONFIG)
    run_config(path, diff=True)
    assert check_config(path).status == "ok"


def test_missing_output_is_stale(world: World) -> None:
    path = world(UPSTREAM, CONFIG)
    assert check_config(path).status == "stale"
    assert codes(path) == ["not-generated"]


@pytest.mark.parametrize("what", ["output", "config", "upstream", "diff"])
def test_every_change_makes_it_stale(what: str, world: World, tmp_path: Path) -> None:
    path = world(UPSTREAM, CONFIG)
    output = run_config(path, diff=True).output
    assert output is not None
    if what == "output":
        output.write_text(output.read_text() + "\nX = 1\n")
    elif what == "config":
        path.write_text(path.read_text().replace("return 2", "return 3"))
    elif what == "upstream":
        (tmp_path / "upstream_module.py").write_text(UPSTREAM.replace("return 1", "return 11"))
    else:
        output.with_suffix(".diff").write_text("")
    assert check_config(path).status == "stale"
    assert codes(path)[-1] == "stale"


@pytest.mark.parametrize("what", ["description", "header", "ending"])
def test_comments_and_layout_make_nothing_stale(what: str, world: World) -> None:
    path = world(UPSTREAM, CONFIG)
    output = run_config(path, diff=True).output
    assert output is not None
    if what == "description":
        path.write_text(path.read_text().replace("'C.m')", "'C.m', description='other words')"))
    elif what == "header":
        output.write_text(output.read_text().replace("#  Patches applied:", "#  All patches:"))
        output.with_suffix(".diff").unlink()
    else:
        output.write_bytes(output.read_bytes().replace(b"\n", b"\r\n"))
        output.with_suffix(".diff").unlink()
    result = check_config(path)
    assert (result.status, codes(path)) == ("ok", [])
    assert "comments or layout of after.py changed" in result.notes[-1]
    run_config(path)
    assert not check_config(path).notes


def test_a_renamed_directory_makes_nothing_stale(tmp_path: Path) -> None:
    renamed = shutil.copytree(Path(__file__).parents[2] / "reference_models" / "veomni" / "olmoe", tmp_path / "renamed")
    (result,) = check_configs([renamed / "olmoe_gpu_patch_gen_config.py"])
    assert result.status == "ok"
    assert "comments or layout" in result.notes[-1]


def test_a_stale_file_names_its_place_and_the_version(world: World, tmp_path: Path) -> None:
    path = world(UPSTREAM, CONFIG)
    output = run_config(path).output
    assert output is not None
    path.write_text(path.read_text().replace("return 2", "return 3"))
    line = output.read_text().splitlines().index("        return 2") + 1
    (found,) = check_config(path).diagnostics
    assert found.message.startswith(f"after.py:{line}: C is not what {path.name} generates from upstream_module ")
    assert str(tmp_path / "upstream_module.py") in found.message


def test_fix_writes_what_is_stale(world: World) -> None:
    path = world(UPSTREAM, CONFIG)
    assert check_configs([path], fix=True)[0].status == "written"
    assert check_config(path).status == "ok"


def test_siblings_outputs_are_no_orphans(world: World) -> None:
    first = world(UPSTREAM, CONFIG)
    second = world(UPSTREAM, "", name="second_patch_gen_config.py")
    second.write_text(second.read_text().replace("after.py", "second.py"))
    run_config(first)
    run_config(second)
    assert [r.status for r in check_configs([first])] == ["ok"]
    second.unlink()
    assert [r.status for r in check_configs([first])] == ["ok", "orphan"]


def test_orphans_below_the_root_are_found_without_a_config(world: World, tmp_path: Path) -> None:
    path = world(UPSTREAM, CONFIG)
    output = run_config(path).output
    assert output is not None
    lost = tmp_path / "lost" / "generated" / "patched_modeling_lost.py"
    lost.parent.mkdir(parents=True)
    lost.write_text(output.read_text())
    (lost.parent / "handwritten.py").write_text("X = 1\n")
    results = check_configs([path], root=tmp_path)
    assert [(r.status, r.target_file) for r in results][1:] == [("orphan", "patched_modeling_lost.py")]


def test_list_loads_and_generates_nothing(world: World, tmp_path: Path) -> None:
    world(UPSTREAM, CONFIG)
    (tmp_path / "broken_patch_gen_config.py").write_text("import json.nowhere\n")
    listed = list_configs(tmp_path)
    assert [(r.status, r.target_file) for r in listed] == [("error", ""), ("ok", "after.py")]
    assert listed[1].listed == [("method_override", "C.m")]
    assert not (tmp_path / "generated").exists()


def test_list_of_veomni() -> None:
    listed = list_configs(package_dir("veomni"))
    assert len(listed) == len(VEOMNI_CONFIGS)
    assert all(r.status == "ok" for r in listed)


def test_project_settings_hold(world: World, tmp_path: Path) -> None:
    models = tmp_path / "src" / "mine" / "models"
    models.mkdir(parents=True)
    (tmp_path / "src" / "mine" / "upstream_module.py").write_text(UPSTREAM)
    (tmp_path / "pyproject.toml").write_text(
        "[tool.patchgen]\nsearch_root = 'src/mine/models'\npackage_prefix = 'mine.models'\nstrict = true\n"
    )
    config = models / "c_patch_gen_config.py"
    config.write_text(
        "from patchgen import PatchConfig\nconfig = PatchConfig('mine.upstream_module', 'after.py')\n"
        "@config.override_method('C.m')\ndef m(self):\n    return 1\n"
    )
    project = find_project(models)
    assert project is not None
    assert project.search_root == models
    assert project.import_root == tmp_path / "src"
    assert find_configs(project.search_root) == [config]
    assert [d.code for d in run_config(config).diagnostics if d.severity == "error"] == ["no-change"]


@pytest.mark.parametrize(
    "table", ["patchgen = 3", "patchgen = {search_root = 4}", "patchgen = {strict = 'yes'}", "patchgen ="]
)
def test_a_wrong_table_is_said(table: str, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(f"[tool]\n{table}\n")
    with pytest.raises(BadInput):
        find_project(tmp_path)


def test_no_table_is_no_project(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.other]\n")
    assert find_project(tmp_path) is None


def test_search_does_not_enter_hidden_places(tmp_path: Path) -> None:
    for place in (".venv", "a", "__pycache__"):
        (tmp_path / place).mkdir()
        (tmp_path / place / "x_patch_gen_config.py").write_text("")
    assert find_configs(tmp_path) == [tmp_path / "a" / "x_patch_gen_config.py"]
    with pytest.raises(BadInput):
        find_configs(tmp_path / "nowhere")


def test_project_rules_of_ruff_do_not_reach_the_result(world: World, tmp_path: Path) -> None:
    path = world("import os\n" + UPSTREAM, CONFIG)
    plain = run_config(path).text
    (tmp_path / "ruff.toml").write_text(
        "line-length = 119\n[lint]\nselect = ['ALL']\nunfixable = ['F401']\nignore = ['F401', 'I']\n"
        "[lint.per-file-ignores]\n'*' = ['F401']\n[lint.isort]\nlines-after-imports = 2\n"
    )
    assert run_config(path, write=False).text == plain
    assert "import os" not in plain


def test_project_style_of_ruff_is_followed(world: World, tmp_path: Path) -> None:
    path = world(UPSTREAM, "@config.override_method('C.m')\ndef m(self):\n    return 'x'\n")
    (tmp_path / "ruff.toml").write_text("[format]\nquote-style = 'single'\n")
    assert "return 'x'" in run_config(path).text


def test_fix_adds_the_dead_to_the_excludes(tmp_path: Path) -> None:
    for name in ("before.py", "dead_helper_fires.py"):
        (tmp_path / name).write_text((FIXTURES / "diagnostics" / name).read_text())
    config = tmp_path / "dead_helper_fires.py"
    notes = add_excludes(run_config(config, write=False))
    assert "talker_noise" in notes[0]
    assert 'config.exclude_from_output("Talker", "talker_noise")' in config.read_text()
    assert "dead-helper" not in [d.code for d in run_config(config).diagnostics]
    assert add_excludes(run_config(config)) == []


def test_excludes_are_added_in_the_style_of_the_call() -> None:
    before = 'config.exclude_from_output(\n    # why\n    "A",\n    "B",\n)\n'
    assert (
        with_excludes(before, ["C", "A"]) == 'config.exclude_from_output(\n    # why\n    "A",\n    "B",\n    "C",\n)\n'
    )
    assert with_excludes("x = 1\n", ["C"]) == "x = 1\n"


@pytest.mark.parametrize(
    "line", ["@(open('planted', 'w').write('x') and 0)\ndef f(): ...", "9**9**9**9", "while True: pass"]
)
def test_the_gate_runs_nothing_and_names_the_line(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    head = "from omni_kit.patchgen import PatchConfig\nconfig = PatchConfig('json', 'x.py')\n"
    path = tmp_path / "a_patch_gen_config.py"
    path.write_text(f"{head}{line}\n", encoding="utf-8")
    made = tmp_path / "generated" / "x.py"
    made.parent.mkdir()
    made.write_text("#  AUTO-GENERATED FILE - DO NOT EDIT DIRECTLY\n", encoding="utf-8")
    (result,) = check_configs([path], root=tmp_path)  # what it makes is not known, so nothing is an orphan
    (found,) = result.diagnostics
    assert (found.id, found.code, found.path) == ("PGN602", "unreadable", path.name)
    assert found.line in {3, 4}
    assert not (tmp_path / "planted").exists()
