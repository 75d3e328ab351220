"""Finds integrations: what a directory is, and what is below it."""

from collections.abc import Sequence
from pathlib import Path

from omni_kit.errors import BadInput
from omni_kit.targets.diffusers.model_dir import find_model_dir
from omni_kit.targets.diffusers.modular.package import find_package
from omni_kit.targets.diffusers.transformer.drawing import find_drawing
from omni_kit.targets.folders import integrations_below
from omni_kit.targets.protocol import Integration
from omni_kit.upstream.diffusers.package import package_parts, package_root, part_files
from omni_kit.upstream.kinds import Kind

_DEPTH = 2


def at(path: Path) -> Integration | None:
    """Return the integration whose own directory `path` is; None if it is none."""
    try:
        found = find_model_dir(path)
    except BadInput:
        return _modular_at(path) or _drawing_at(path)
    return Integration(found.path, lambda: Kind.dit)


def _modular_at(path: Path) -> Integration | None:
    try:
        return Integration(find_package(path).path, lambda: Kind.modular)
    except BadInput:
        return None


def _drawing_at(path: Path) -> Integration | None:
    try:
        return Integration(find_drawing(path).file, lambda: Kind.pipeline)
    except (BadInput, OSError, SyntaxError, UnicodeDecodeError):
        return None


def find(path: Path) -> Sequence[Integration]:
    """Integrations at `path`: itself, those in a folder, or every part of a diffusers, installed or a checkout.

    Of the parts only pipelines with a model of their own can be compared.

    Raises:
        BadInput: there is none; what `path` itself lacks.
    """
    if (own := at(path)) is not None:
        return [own]
    root = package_root(path)
    if root is not None:
        found = [Integration(part, lambda: Kind.dit) for part in _parts(root, path)]
    else:
        found = list(integrations_below(path, _DEPTH, at))
    if not found and path.is_file():
        find_drawing(path)
    elif not found:
        find_model_dir(path)
    return found


def _parts(root: Path, path: Path) -> list[Path]:
    """Return the parts of a package at or below a path; all of them for a checkout, and for a file the one that it is
    in.
    """
    parts = package_parts(root)
    below = [part for part in parts if root.is_relative_to(path) or part.is_relative_to(path)]
    return below or [part for part in parts if path in part_files(root, part)]
