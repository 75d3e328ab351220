"""Which directories hold a pipeline: broken files of others are in nobody's way."""

import shutil
from pathlib import Path

import pytest

from omni_kit.errors import BadInput
from omni_kit.resources import resource_dir
from omni_kit.targets.sglang_diffusion.finding import at, find

FLUX = resource_dir("reference_models") / "sglang_diffusion" / "flux_t2i"


@pytest.mark.parametrize("broken", [b"def (", b"\xff\xfe EntryClass", b"EntryClass = (\n"])
def test_a_broken_file_hides_no_pipeline(broken: bytes, tmp_path: Path) -> None:
    shutil.copytree(FLUX, tmp_path / "flux_t2i", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "flux_t2i" / "aaa.py").write_bytes(broken)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "__init__.py").write_bytes(broken)

    assert [one.path.name for one in find(tmp_path)] == ["flux_t2i"]
    assert at(tmp_path / "other") is None


def test_a_folder_without_any_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(BadInput):
        find(tmp_path)


PIPELINES = "multimodal_gen/runtime/pipelines"


def sglang(root: Path) -> Path:
    """SGLang as it is installed: two pipelines in one file, one in a folder, and a module without any."""
    files = {
        "multimodal_gen/registry.py": "",
        "multimodal_gen/__init__.py": "",
        f"{PIPELINES}/__init__.py": "",
        f"{PIPELINES}/wan.py": "class A:\n    pipeline_name = 'WanA'\n\n\nclass B:\n    pipeline_name = 'WanB'\n\n\n"
        "EntryClass = [A, B]\n",
        f"{PIPELINES}/flux/image.py": "class F:\n    pipeline_name = 'Flux'\n\n\nEntryClass = F\n",
        f"{PIPELINES}/shared.py": "class S:\n    pipeline_name = 'Shared'\n",
    }
    for name, text in files.items():
        (root / "sglang" / name).parent.mkdir(parents=True, exist_ok=True)
        (root / "sglang" / name).write_text(text)
    return root / "sglang"


@pytest.mark.parametrize("part", ["", "sglang", "sglang/multimodal_gen", f"sglang/{PIPELINES}"])
def test_every_pipeline_of_an_installed_sglang_is_found(part: str, tmp_path: Path) -> None:
    sglang(tmp_path)
    found = sorted(one.path.name for one in find(tmp_path / part))
    assert found == ["image.py::Flux", "wan.py::WanA", "wan.py::WanB"]


def test_links_to_sglang_are_followed(tmp_path: Path) -> None:
    package = sglang(tmp_path / "real")
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sglang").symlink_to(package)
    assert len(find(tmp_path / "site")) == len(find(tmp_path / "site" / "sglang")) == 3


def test_a_part_of_sglang_has_its_own_pipelines_alone(tmp_path: Path) -> None:
    found = find(sglang(tmp_path).parent / "sglang" / PIPELINES / "flux")
    assert [one.path.name for one in found] == ["image.py::Flux"]
    assert [one.path.name for one in find(tmp_path / "sglang" / PIPELINES / "wan.py")] == [
        "wan.py::WanA",
        "wan.py::WanB",
    ]


def test_a_folder_of_sglang_without_pipelines_is_one_line(tmp_path: Path) -> None:
    (sglang(tmp_path) / "multimodal_gen/configs").mkdir()
    with pytest.raises(BadInput):
        find(tmp_path / "sglang/multimodal_gen/configs")
