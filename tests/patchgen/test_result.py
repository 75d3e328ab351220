"""How far a config came is told by the stage of its result, and its properties say the same."""

from pathlib import Path

from omni_kit.patchgen import ConfigResult, check_configs, draft_configs, finish, list_configs, run_config
from omni_kit.patchgen.result import Draft, Listed, Loaded, Orphan, Product, Rejected, UnreadableConfig
from tests.patchgen.conftest import World

UPSTREAM = """
    def f():
        return 1
"""
PATCH = """
    @config.replace_function("f")
    def f():
        return 2
"""


def drafted(path: Path) -> ConfigResult:
    (result,) = draft_configs([path])
    return result


def test_a_draft_becomes_a_product(world: World) -> None:
    result = drafted(world(UPSTREAM, PATCH))
    assert isinstance(result.stage, Draft)
    assert (result.status, result.diff) == ("ok", "")
    finish([result])
    assert isinstance(result.stage, Product)
    assert "return 2" in result.text
    assert "+    return 2" in result.diff
    product = result.stage
    finish([result])
    assert result.stage is product


def test_what_has_errors_is_rejected_and_keeps_what_was_generated(world: World) -> None:
    result = drafted(world(UPSTREAM, PATCH.replace('"f"', '"g"')))
    assert isinstance(result.stage, Rejected)
    assert not result.ok
    assert result.text == ""
    assert result.generated is not None
    assert [applied.status for applied in result.patches] == ["missing-target"]


def test_a_draft_that_does_not_compile_is_rejected(world: World) -> None:
    result = drafted(world(UPSTREAM, 'config.add_post_import_block("return")'))
    finish([result])
    assert isinstance(result.stage, Rejected)
    assert (result.status, result.text, result.diff) == ("error", "", "")
    assert "invalid-python" in {found.code for found in result.diagnostics}


def test_a_config_that_fails_is_unread(world: World) -> None:
    result = run_config(world(UPSTREAM, "undefined_name"))
    assert result.stage == UnreadableConfig()
    assert (result.output, result.source_module, result.target_file) == (None, "", "")


def test_a_config_without_its_source_is_loaded_only(world: World) -> None:
    path = world(UPSTREAM, PATCH)
    (path.parent / "upstream_module.py").unlink()
    result = run_config(path)
    assert type(result.stage) is Loaded
    assert (result.status, result.output) == ("error", path.parent / "generated" / "after.py")
    assert result.generated is None


def test_a_listed_config_tells_its_targets(world: World) -> None:
    (result,) = list_configs(world(UPSTREAM, PATCH).parent)
    assert isinstance(result.stage, Listed)
    assert result.listed == [("function_replacement", "f")]
    assert result.patches == []


def test_an_orphan_is_a_file_alone(world: World) -> None:
    path = world(UPSTREAM, PATCH)
    run_config(path)
    written = path.parent / "generated" / "after.py"
    left = written.with_name("left.py")
    left.write_text(written.read_text(encoding="utf-8"), encoding="utf-8")
    orphan = check_configs([path])[-1]
    assert orphan.stage == Orphan(left)
    assert (orphan.config, orphan.path, orphan.output, orphan.target_file) == ("", None, left, "left.py")
