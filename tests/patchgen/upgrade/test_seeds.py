"""Seeded changes of upstream: the right merged answer, or the right question."""

import ast
import shutil
from pathlib import Path

import pytest

from omni_kit.patchgen.upgrade.configs import upgrade_configs
from omni_kit.patchgen.upgrade.outcome import UpgradeResult
from tests.conftest import sampled
from tests.patchgen.conftest import FIXTURES
from tests.patchgen.upgrade.seeds import SEEDS, Seed


def plain(text: str) -> str:
    """A file without comments and layout; the order of imports aside."""
    tree = ast.parse(text)
    imports: list[ast.stmt] = [one for one in tree.body if isinstance(one, (ast.Import, ast.ImportFrom))]
    imports += [one for one in tree.body if "add_import(" in ast.unparse(one) and isinstance(one, ast.Expr)]
    tree.body = [one for one in tree.body if one not in imports]
    return "\n".join([*sorted(map(ast.unparse, imports)), ast.unparse(tree)])


def upgraded(seed: Seed, tmp_path: Path) -> tuple[UpgradeResult, str, str]:
    """The result, the config's text before, and its text after."""
    for side in ("old", "new"):
        shutil.copytree(FIXTURES / "seeds" / "small", tmp_path / side / "small")
    for old, new, file in seed.upstream:
        path = tmp_path / "new" / "small" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        assert old in text, old
        path.write_text(text.replace(old, new) if old else new, encoding="utf-8")
    config = tmp_path / "a_patch_gen_config.py"
    shutil.copyfile(FIXTURES / "seeds" / "plug" / config.name, config)
    before = config.read_text(encoding="utf-8")
    result = upgrade_configs([config], tmp_path / "old", tmp_path / "new", "small")
    return result, before, config.read_text(encoding="utf-8")


def answer(seed: Seed, before: str) -> str:
    """The config as it should be; without the patches that should go."""
    for old, new in seed.patch:
        assert old in before, old
        before = before.replace(old, new)
    tree = ast.parse(before)
    for target in seed.dropped:
        tree.body = [
            one
            for one in tree.body
            if f"'{target}'" not in "".join(map(ast.unparse, getattr(one, "decorator_list", ())))
        ]
    return ast.unparse(tree)


@pytest.mark.parametrize("seed", sampled(SEEDS, *SEEDS[::3]), ids=lambda seed: seed.name.replace(" ", "-"))
def test_seed(seed: Seed, tmp_path: Path) -> None:
    result, before, after = upgraded(seed, tmp_path)
    (config,) = result.configs
    assert not config.error, config.error
    assert {one.target for one in config.patches if one.status == "conflict"} == set(seed.conflict)
    assert {one.target for one in config.patches if one.status == "dropped"} == set(seed.dropped)
    if seed.name != "both change one line":
        assert plain(after) == plain(answer(seed, before))


def test_there_are_fifty() -> None:
    assert len(SEEDS) >= 50
