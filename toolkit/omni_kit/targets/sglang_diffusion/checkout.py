"""SGLang's package on disk: its root, its conventions, and the pipelines that it has itself."""

from dataclasses import dataclass
from pathlib import Path

from omni_kit.errors import BadInput
from omni_kit.files import files_matching
from omni_kit.targets.sglang_diffusion.pipeline_dir import PIPELINES, STAGES, pipelines_in

_INNER = ("python/sglang/multimodal_gen", "sglang/multimodal_gen")
# Where each part of an integration goes; a checkout that lacks one of these folders is of another version.
FOLDERS = {
    "pipeline": PIPELINES, "pipeline_config": "configs/pipeline_configs", "sampling_params": "configs/sample",
    "dit_config": "configs/models/dits", "vae_config": "configs/models/vaes", "dit": "runtime/models/dits",
    "stages": STAGES,
}  # fmt: skip
_PACKAGE = "multimodal_gen"
_DISCOVERY = "_discover_and_register_configs"  # calls the module-level register() of each pipeline's config


@dataclass(frozen=True)
class Checkout:
    """SGLang, installed or checked out.

    Attributes:
        package: the directory `sglang/multimodal_gen`.
        inner: the same, relative to the root.
    """

    package: Path
    inner: str


def find_checkout(root: Path) -> Checkout | None:
    """Return the checkout whose root is `root`; None if there is none."""
    found = (Checkout(root / inner, inner) for inner in _INNER if (root / inner / "registry.py").is_file())
    return next(found, None)


def checkout_around(path: Path) -> Checkout | None:
    """SGLang's package that `path` is the root of, holds, or is in, through links; None if there is none."""
    path = path.resolve()
    for folder in (path, *path.parents):
        if folder.name == _PACKAGE and (folder / "registry.py").is_file():
            return Checkout(folder, _PACKAGE)
    holding = (path / inner for inner in (*_INNER, _PACKAGE))
    found = next((package.resolve() for package in holding if (package / "registry.py").is_file()), None)
    return Checkout(found, _PACKAGE) if found is not None else None


def checkout_at(root: Path) -> Checkout:
    """Return the checkout at `root`, of a version whose conventions are known.

    Raises:
        BadInput: there is none, or it registers models otherwise.
    """
    found = find_checkout(root)
    if found is None:
        raise BadInput(f"{root} is not an SGLang checkout", "pass its root with --into")
    absent = [folder for folder in FOLDERS.values() if not (found.package / folder).is_dir()]
    known = f"def {_DISCOVERY}" in (found.package / "registry.py").read_text(encoding="utf-8")
    if absent or not known:
        what = f"no {absent[0]}" if absent else f"no {_DISCOVERY} in registry.py"
        raise BadInput(
            f"{root} is a checkout of another version of SGLang: it has {what}", "take 0.5.23, or --style plugin"
        )
    return found


def pipeline_places(checkout: Checkout) -> dict[str, tuple[Path, int]]:
    """Return the pipelines of a checkout: name -> file and line."""
    files = files_matching(checkout.package / PIPELINES, "**/*.py")
    return {name: (file, line) for file in files for _, name, line in _read(file)}


def _read(file: Path) -> list[tuple[str, str, int]]:
    try:
        return list(pipelines_in(file))
    except BadInput:  # not ours to mend
        return []
