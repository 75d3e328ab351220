"""Shared subjects: VeOmni's own models, plugins copied from them, and one pair of processes for all."""

import importlib.util
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

Edits = Mapping[str, Sequence[tuple[str, str]]]
Plant = Callable[..., Path]

MODELING = "generated/patched_modeling_qwen3_moe_gpu.py"
CONVERTER = "checkpoint_tensor_converter.py"


@pytest.fixture(scope="session", autouse=True)
def cache() -> Iterator[Path]:
    """The user's cache, in which failed runs are kept: not that of whoever runs the tests.

    It does not lie where later tests write: their directories would be closed to candidates that already run.
    """
    with tempfile.TemporaryDirectory(prefix="omni-kit-cache-") as place, pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMNI_KIT_CACHE", place)
        yield Path(place)


@pytest.fixture(scope="session")
def veomni_models() -> Path:
    """The directory of VeOmni's own model directories."""
    spec = importlib.util.find_spec("veomni")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "models" / "transformers"


@pytest.fixture(scope="session")
def denoisers(veomni_models: Path) -> Path:
    """The directory of VeOmni's diffusion models."""
    return veomni_models.parent / "diffusers"


@pytest.fixture(scope="session")
def plant(veomni_models: Path, tmp_path_factory: pytest.TempPathFactory) -> Plant:
    """Copies one of VeOmni's models into a plugin package of the given name, with texts replaced."""
    root = tmp_path_factory.mktemp("plugins")

    def make(name: str, edits: Edits, model: str = "qwen3_moe") -> Path:
        for file in sorted((veomni_models / model).rglob("*.py")):
            relative = file.relative_to(veomni_models / model)
            text = _absolute(file.read_text(encoding="utf-8"), depth=len(relative.parts))
            if relative.as_posix() == "__init__.py":
                text = _register_by_assignment(text)
            for old, new in edits.get(relative.as_posix(), ()):
                assert old in text, f"{relative} has no {old!r}: this test would plant nothing"
                text = text.replace(old, new)
            target = root / name / relative
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
        (root / name / "generated" / "__init__.py").touch()
        return root / name

    return make


def _absolute(text: str, depth: int) -> str:
    """Relative imports that leave the package become absolute: it now lies outside VeOmni."""
    package = ["veomni", "models", "transformers"]

    def rewrite(match: re.Match[str]) -> str:
        up = len(match[1]) - depth
        if up <= 0:
            return match[0]
        parents = package[: len(package) - up + 1]
        return f"from {'.'.join([*parents, *filter(None, [match[2]])])} import"

    return re.sub(r"from (\.+)([\w.]*) import", rewrite, text)


def _register_by_assignment(text: str) -> str:
    """What VeOmni registers is put in its place, not beside it."""
    registered = re.compile(r'@MODELING_REGISTRY\.register\("(\w+)"\)\ndef (\w+)')
    keys = registered.findall(text)
    assert keys
    return registered.sub(r"def \2", text) + "".join(
        f'\n\nMODELING_REGISTRY["{key}"] = {function}\n' for key, function in keys
    )
