"""What a newer upstream means for the patches."""

from pathlib import Path
from textwrap import dedent

import pytest

from omni_kit.errors import BadInput
from omni_kit.patchgen import drift_report, run_config
from omni_kit.patchgen.drift import RANKS, copied_lines, write_targets
from omni_kit.patchgen.header import code_hash, read_header
from omni_kit.patchgen.merge import merge

THEN = """
    def deco(f):
        return f

    class C:
        def same(self):
            return 1

        def body(self, x):
            y = x + 1
            return y

        def copied(self, x):
            first = x.old_call()
            second = 2
            return first + second

        def signature(self, x):
            return x

        def async_now(self):
            return 1

        def default(self, x=1):
            return x

        @deco
        def decorated(self):
            return 1

        def cosmetic(self):
            # one comment
            return 1

        def gone(self, values):
            total = sum(values)
            return total / len(values)

    class Old:
        def m(self):
            return 1
"""
NOW = """
    def deco(f):
        return f

    class C:
        def same(self):
            return 1

        def body(self, x):
            z = x + 1
            return z

        def copied(self, x):
            first = x.new_call()
            second = 2
            return first + second

        def signature(self, x, mask=None):
            return x

        async def async_now(self):
            return 1

        def default(self, x=2):
            return x

        def decorated(self):
            return 1

        def cosmetic(self):
            # another comment
            return 1

        def moved(self, values):
            total = sum(values)
            return total / len(values)

        def injected(self):
            return 0
"""
CONFIG = """
from patchgen import PatchConfig

config = PatchConfig("lib.mod", "after.py")
for name in ("same", "async_now", "default", "decorated", "cosmetic", "gone", "signature"):
    scope = {}


@config.override_method("C.copied")
def copied(self, x):
    if x.fused:
        return x.fused_call()
    first = x.old_call()
    second = 2
    return first + second


@config.override_method("C.body")
def body(self, x):
    return x


@config.override_method("Old.m")
def old(self):
    return 2


@config.override_method("C.injected", inject=True)
def injected(self):
    return 3
"""


def method(name: str, arguments: str = "self") -> str:
    return f"\n\n@config.override_method('C.{name}')\ndef {name}({arguments}):\n    return 'patched'\n"


@pytest.fixture
def versions(tmp_path: Path) -> tuple[Path, Path, Path]:
    """The older and the newer library, and a config."""
    for version, text in (("then", THEN), ("now", NOW)):
        place = tmp_path / version / "lib"
        place.mkdir(parents=True)
        (place / "__init__.py").write_text(f"__version__ = '{version}'\n")
        (place / "mod.py").write_text(dedent(text))
    config = tmp_path / "configs" / "c_patch_gen_config.py"
    config.parent.mkdir()
    names = ["same", "async_now", "decorated", "cosmetic"]
    text = CONFIG + "".join(map(method, names)) + method("default", "self, x=1") + method("gone", "self, values")
    config.write_text(text + method("signature", "self, x"))
    return tmp_path / "then", tmp_path / "now", config


def test_each_target_gets_its_status(versions: tuple[Path, Path, Path]) -> None:
    before, after, config = versions
    report = drift_report([config], before, after, "lib")
    found = {t.target: (t.status, t.rank) for t in report.targets}
    assert found == {
        "C.same": ("unchanged", "unchanged"),
        "C.body": ("body-changed", "body"),
        "C.copied": ("body-changed", "copied-lines"),
        "C.signature": ("signature-changed", "signature"),
        "C.async_now": ("signature-changed", "signature"),
        "C.default": ("signature-changed", "signature"),
        "C.decorated": ("decorators-changed", "decorators"),
        "C.cosmetic": ("unchanged", "cosmetic"),
        "C.gone": ("vanished", "vanished"),
        "Old.m": ("vanished", "vanished"),
        "C.injected": ("signature-changed", "signature"),
    }
    assert not report.ok


def test_details_say_what_changed(versions: tuple[Path, Path, Path]) -> None:
    details = {t.target: t.detail for t in drift_report([versions[2]], versions[0], versions[1], "lib").targets}
    assert details["C.signature"] == "with new mask"
    assert details["C.default"] == "other default of x"
    assert "C.moved" in details["C.gone"]
    assert "class Old is gone" in details["Old.m"]
    assert "deco" in details["C.decorated"]
    assert "upstream has a method of that name now" in details["C.injected"]


def test_worst_comes_first(versions: tuple[Path, Path, Path]) -> None:
    ranks = [t.rank for t in drift_report([versions[2]], versions[0], versions[1], "lib").targets]
    assert ranks == sorted(ranks, key=RANKS.index)
    assert ranks[0] == "vanished"
    assert ranks[-1] == "unchanged"


def test_a_clean_merge_is_proposed(versions: tuple[Path, Path, Path]) -> None:
    targets = {t.target: t for t in drift_report([versions[2]], versions[0], versions[1], "lib").targets}
    copied = targets["C.copied"]
    assert copied.copied == 1
    assert copied.proposed is not None
    assert "new_call" in copied.proposed
    assert "fused_call" in copied.proposed
    assert "old_call" not in copied.proposed
    assert targets["C.body"].proposed is None
    assert targets["C.body"].conflicts == 1
    assert "<<<<<<< patch" in targets["C.body"].merged


def test_three_versions_are_written(versions: tuple[Path, Path, Path], tmp_path: Path) -> None:
    report = drift_report([versions[2]], versions[0], versions[1], "lib")
    write_targets(report, tmp_path / "views")
    place = tmp_path / "views" / "c_patch_gen_config"
    assert "old_call" in (place / "C.copied" / "then.py").read_text()
    assert "new_call" in (place / "C.copied" / "now.py").read_text()
    assert "new_call" in (place / "C.copied" / "proposed.py").read_text()
    assert "=======" in (place / "C.body" / "merge.txt").read_text()
    assert not (place / "C.same").exists()


def test_the_same_version_twice_is_ok(versions: tuple[Path, Path, Path]) -> None:
    report = drift_report([versions[2]], versions[0], versions[0], "lib")
    assert report.ok
    assert set(report.counts()) == {"unchanged"}


def test_a_module_that_is_gone(versions: tuple[Path, Path, Path]) -> None:
    before, after, config = versions
    (after / "lib" / "mod.py").unlink()
    report = drift_report([config], before, after, "lib")
    assert {t.status for t in report.targets} == {"vanished"}


def test_hashes_of_the_generated_file_tell_without_the_old_version(
    versions: tuple[Path, Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    before, after, config = versions
    monkeypatch.syspath_prepend(str(before))
    assert run_config(config).status == "written"
    report = drift_report([config], None, after, "lib")
    found = {t.target: t.status for t in report.targets}
    assert found["C.same"] == "unchanged"
    assert found["C.copied"] == "body-changed"
    assert found["C.decorated"] == "decorators-changed"
    assert found["C.gone"] == "vanished"
    assert drift_report([config], None, before, "lib").ok


@pytest.mark.parametrize(("then", "now", "rank"), [
    ("", "    @staticmethod\n", "decorators"),
    ("    @staticmethod\n", "", "decorators"),
    ("    @staticmethod\n", "    # a remark\n    @staticmethod\n", "cosmetic"),
])  # fmt: skip
def test_decorators_inside_a_class_are_decorators(then: str, now: str, rank: str, tmp_path: Path) -> None:
    for version, decorator in (("then", then), ("now", now)):
        (tmp_path / version / "lib").mkdir(parents=True)
        (tmp_path / version / "lib" / "__init__.py").touch()
        (tmp_path / version / "lib" / "mod.py").write_text(f"class C:\n{decorator}    def m(x):\n        return 1\n")
    config = tmp_path / "c_patch_gen_config.py"
    config.write_text(
        "from omni_kit.patchgen import PatchConfig\n\nconfig = PatchConfig('lib.mod', 'after.py')\n\n\n"
        "@config.replace_class('C')\nclass C:\n    def m(x):\n        return 2\n"
    )
    (found,) = drift_report([config], tmp_path / "then", tmp_path / "now", "lib").targets
    assert found.rank == rank


def test_a_file_without_hashes_is_said(versions: tuple[Path, Path, Path]) -> None:
    report = drift_report([versions[2]], None, versions[1], "lib")
    assert not report.ok
    assert "has no hashes" in report.failed[0][1]


def test_nothing_to_compare_is_no_pass(versions: tuple[Path, Path, Path]) -> None:
    with pytest.raises(BadInput):
        drift_report([], versions[0], versions[1], "lib")
    with pytest.raises(BadInput):
        drift_report([versions[2]], versions[0], versions[1] / "nowhere", "lib")


def test_hash_is_of_the_code_not_of_its_place() -> None:
    assert code_hash("def f():\n    pass\n") == code_hash("    def f():  \n        pass\n\n")
    assert code_hash("def f():\n    pass\n") != code_hash("def f():\n    return\n")
    assert read_header("# not ours\nx = 1\n") == {}


def test_copied_lines_count_what_the_patch_still_has() -> None:
    assert copied_lines("a = 1\nb = 2\n", "a = 1\nb = 3\n", "    b = 2\n    a = 1\n") == 1
    assert copied_lines("a = 1\n)\n", "b = 1\n", ")\n") == 0


@pytest.mark.parametrize(
    ("base", "ours", "theirs", "merged", "conflicts"),
    [
        ("abc", "abc", "abc", "abc", 0),
        ("abc", "axc", "abc", "axc", 0),
        ("abc", "abc", "abx", "abx", 0),
        ("abc", "xabc", "abcy", "xabcy", 0),
        ("abc", "ac", "abc", "ac", 0),
        ("abc", "axc", "axc", "axc", 0),
        ("", "a", "", "a", 0),
        ("abcde", "aXcde", "abcdY", "aXcdY", 0),
        ("abc", "axbc", "ayc", "axyc", 0),
        ("abc", "abxc", "ayc", "ayxc", 0),
    ],
)
def test_merge(base: str, ours: str, theirs: str, merged: str, conflicts: int) -> None:
    result = merge(list(base), list(ours), list(theirs))
    assert "".join(result.lines) == merged
    assert result.conflicts == conflicts


def test_merge_shows_both_sides_of_a_conflict() -> None:
    result = merge(["a", "b", "c"], ["a", "x", "c"], ["a", "y", "c"])
    assert not result.clean
    assert list(result.lines) == [
        "a", "<<<<<<< patch", "x", "||||||| upstream then", "b", "=======", "y", ">>>>>>> upstream now", "c",
    ]  # fmt: skip
