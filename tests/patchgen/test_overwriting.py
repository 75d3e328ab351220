"""What may be replaced: what a patch generator wrote, in the place where it belongs, and nothing else."""

from pathlib import Path

import pytest

from omni_kit.patchgen import check_configs, run_config
from tests.conftest import run_cli
from tests.patchgen.conftest import World

UPSTREAM = "def f():\n    return 1\n"
PATCH = "@config.replace_function('f')\ndef f():\n    return 2\n"
MINE = "# written by hand\nX = 1\n"


@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("mine", [MINE, "", "\udcff\udcfe"])
def test_a_file_written_by_hand_stays(mine: str, given: bool, world: World, tmp_path: Path) -> None:
    config = world(UPSTREAM, PATCH)
    place = tmp_path / "out" if given else tmp_path / "generated"
    place.mkdir()
    (place / "after.py").write_bytes(mine.encode("utf-8", "surrogateescape"))
    where = ["-o", str(place)] if given else []
    for extra in ([], ["--dry-run"], ["--diff"]):
        code, answer = run_cli("patchgen", "run", str(config), *where, *extra)
        (result,) = answer["configs"]
        assert (code, result["status"], [d["code"] for d in result["diagnostics"]]) == (1, "error", ["foreign-file"])
    assert run_cli("patchgen", "check", str(config), *where, "--fix")[0] == 1
    assert [file.name for file in place.iterdir()] == ["after.py"]
    assert (place / "after.py").read_bytes() == mine.encode("utf-8", "surrogateescape")
    assert run_cli("patchgen", "run", str(config), *where, "--force")[1]["configs"][0]["status"] == "written"
    assert "return 2" in (place / "after.py").read_text(encoding="utf-8")


def test_a_generated_file_is_replaced_by_whichever_generator(world: World, tmp_path: Path) -> None:
    config = world(UPSTREAM, PATCH)
    output = tmp_path / "generated" / "after.py"
    assert run_config(config).status == "written"
    output.write_text(output.read_text(encoding="utf-8").replace("return 2", "return 3"), encoding="utf-8")
    assert run_config(config).status == "written"
    head = "# ====\n#  AUTO-GENERATED FILE - DO NOT EDIT DIRECTLY\n# ====\n#\n#  Source: upstream_module\n"
    output.write_text(head, encoding="utf-8")
    assert run_config(config).status == "written"


@pytest.mark.parametrize("link", ["file", "directory", "dangling"])
def test_a_link_that_leads_outside_is_not_followed(link: str, world: World, tmp_path: Path) -> None:
    config = world(UPSTREAM, PATCH)
    inner = tmp_path / "model" / config.name
    inner.parent.mkdir()
    config.rename(inner)
    outside = tmp_path / "elsewhere"
    outside.mkdir()
    if link == "directory":
        (inner.parent / "generated").symlink_to(outside)
    else:
        (inner.parent / "generated").mkdir()
        (inner.parent / "generated" / "after.py").symlink_to(outside / "after.py")
    if link == "file":
        (outside / "after.py").write_text(MINE, encoding="utf-8")
    (inner.parent / "upstream_module.py").write_text(UPSTREAM, encoding="utf-8")
    result = run_config(inner, force=True)
    assert [found.code for found in result.diagnostics] == ["foreign-file"]
    assert [file.read_text(encoding="utf-8") for file in outside.iterdir()] == ([MINE] if link == "file" else [])


def test_a_directory_in_the_way_is_said(world: World, tmp_path: Path) -> None:
    config = world(UPSTREAM, PATCH)
    (tmp_path / "generated" / "after.py").mkdir(parents=True)
    assert [found.code for found in run_config(config).diagnostics] == ["foreign-file"]


def test_what_run_leaves_check_accepts(world: World, tmp_path: Path) -> None:
    """A diff that lies there is kept up; line ends, which make no file stale, are written again."""
    config = world(UPSTREAM, PATCH)
    run_config(config, diff=True)
    config.write_text(config.read_text(encoding="utf-8").replace("return 2", "return 3"), encoding="utf-8")
    assert run_config(config).status == "written"
    assert "return 3" in (tmp_path / "generated" / "after.diff").read_text(encoding="utf-8")
    assert [result.status for result in check_configs([config], root=tmp_path)] == ["ok"]
    output = tmp_path / "generated" / "after.py"
    output.write_bytes(output.read_bytes().replace(b"\n", b"\r\n"))
    assert run_config(config).status == "written"
    assert b"\r" not in output.read_bytes()


def test_a_diff_of_somebody_else_stays(world: World, tmp_path: Path) -> None:
    config = world(UPSTREAM, PATCH)
    (tmp_path / "generated").mkdir()
    (tmp_path / "generated" / "after.diff").write_text("my notes\n", encoding="utf-8")
    assert run_config(config).status == "written"
    assert [result.status for result in check_configs([config], root=tmp_path)] == ["ok"]
    assert [found.code for found in run_config(config, diff=True).diagnostics] == ["foreign-file"]
    assert (tmp_path / "generated" / "after.diff").read_text(encoding="utf-8") == "my notes\n"


def test_run_takes_directories(world: World, tmp_path: Path) -> None:
    world(UPSTREAM, PATCH, "a_patch_gen_config.py")
    other = world(UPSTREAM, PATCH, "b_patch_gen_config.py")
    other.write_text(other.read_text(encoding="utf-8").replace("after.py", "other.py"), encoding="utf-8")
    code, answer = run_cli("patchgen", "run", str(tmp_path))
    assert (code, [result["status"] for result in answer["configs"]]) == (0, ["written", "written"])
    assert run_cli("patchgen", "check", str(tmp_path))[0] == 0
    (tmp_path / "empty").mkdir()
    code, answer = run_cli("patchgen", "run", str(tmp_path / "empty"))
    assert (code, answer["error"]) == (2, f"no patch config below {tmp_path / 'empty'}")
