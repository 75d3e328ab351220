"""Shared subjects: a scaffolded plugin, VeOmni's own directories, and copies of both to break."""

import ast
import importlib.util
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from omni_checkers import Finding, Report, check
from omni_kit.patchgen import run_config
from omni_kit.pysource import source
from omni_kit.pysource.source import read_text
from omni_kit.scaffold import new_model

Edits = Mapping[str, str | tuple[str, str] | None]
Subject = Callable[..., Path]
_FOLDERS = {"transformers", "diffusers"}  # of models
_SKIPPED = shutil.ignore_patterns("__pycache__")


@pytest.fixture(scope="session")
def veomni_models() -> Path:
    """The directory of VeOmni's own model directories."""
    spec = importlib.util.find_spec("veomni")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "models" / "transformers"


def home_of(models: Path, name: str) -> Path:
    """The directory of one of VeOmni's own models, of a language model or a diffusion model."""
    found = next((folder / name for folder in (models, models.parent / "diffusers") if (folder / name).is_dir()), None)
    assert found is not None, f"VeOmni has no model {name}"
    return found


@pytest.fixture(scope="session")
def olmoe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plugin as new-model and patchgen make it; not to be changed."""
    root = tmp_path_factory.mktemp("plugins")
    new_model("olmoe", "olmoe", target="veomni", into=root)
    assert run_config(root / "olmoe" / "olmoe_gpu_patch_gen_config.py").status == "written"
    return root / "olmoe"


@pytest.fixture
def subject(olmoe: Path, veomni_models: Path, tmp_path: Path) -> Subject:
    """Copies a model with files replaced.

    Each edit names a file of the model: a text replaces it, a pair replaces its first text by its second, None deletes
    the file.
    "olmoe" is the scaffolded plugin; any other name is VeOmni's own, inside a package of the same name.
    """

    def copy(name: str = "olmoe", edits: Edits | None = None) -> Path:
        plugin = name == "olmoe"
        real = olmoe if plugin else home_of(veomni_models, name)
        place = tmp_path if plugin else tmp_path / "veomni" / "models" / real.parent.name
        shutil.copytree(real, place / name, ignore=_SKIPPED)
        if not plugin:
            _surround(place, real.parent)
        for path, change in (edits or {}).items():
            _edit(place / name / path, change)
        return place / name

    return copy


def _surround(place: Path, models: Path) -> None:
    """Makes a checkout around one model: everything of VeOmni but the other models, by links, and the aggregate."""
    for level, real in ((place.parents[1], models.parents[1]), (place.parent, models.parent), (place, models)):
        for entry in real.iterdir():
            model = (real == models and entry.is_dir()) or (
                real == models.parent and entry.name in _FOLDERS - {models.name}
            )
            if not (level / entry.name).exists() and not model and entry.name != "__pycache__":
                (level / entry.name).symlink_to(entry)
    (place / "__init__.py").unlink()
    shutil.copy(models / "__init__.py", place / "__init__.py")


def _edit(file: Path, change: str | tuple[str, str] | None) -> None:
    if change is None:
        file.unlink()
    elif isinstance(change, str):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(change, encoding="utf-8")
    else:
        text = file.read_text(encoding="utf-8")
        assert change[0] in text, f"{file.name} has no {change[0]!r}: this would plant nothing"
        file.write_text(text.replace(*change), encoding="utf-8")


def asked(request: pytest.FixtureRequest) -> list[tuple[str, int]]:
    """Return the tests of this file that take the fixture which asks, each by its name and its `number`."""
    tests = [one for one in request.session.items if isinstance(one, pytest.Function) and one.path == request.path]
    takers = [one for one in tests if request.fixturename in one.fixturenames]
    numbers = [(one.originalname, one.callspec.params["number"]) for one in takers]
    return [(name, number) for name, number in numbers if isinstance(number, int)]


def found(path: Path, *rules: str) -> list[Finding]:
    """The findings of some rules, all without any, on one model."""
    return check([path], select=rules).findings


def status(path: Path, rule: str) -> str:
    """What one rule made of a model: its status, and the reason where it is not applicable."""
    return status_in(check([path], select=[rule]), rule)


def status_in(report: Report, rule: str) -> str:
    """The same, of a report."""
    result = next(result for result in report.results if result.rule == rule)
    return f"{result.status}: {result.reason}" if result.reason else result.status


@pytest.fixture(autouse=True)
def parsed_once(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of the same text at the same place of two tests have one tree: most of each subject is as it was."""
    base = tmp_path_factory.getbasetemp()
    monkeypatch.setattr(source, "_parsed", lambda path, mtime_ns: _parsed(path, mtime_ns, base))


_PARSED = source._parsed
_trees: dict[tuple[tuple[str, ...], str], tuple[str, ast.Module]] = {}


def _parsed(path: Path, mtime_ns: int, base: Path) -> tuple[str, ast.Module]:
    if not path.is_relative_to(base):
        return _PARSED(path, mtime_ns)
    key = path.relative_to(base).parts[1:], read_text(path)
    if key not in _trees:
        if len(_trees) == 128:
            _trees.clear()
        _trees[key] = _PARSED(path, mtime_ns)
    return _trees[key]
