"""Single modules for a model whose integration exists already: a converter, and an export."""

from pathlib import Path
from typing import Protocol, cast

from omni_kit.errors import BadInput
from omni_kit.files import identifier_of, write_atomic
from omni_kit.layout import LayoutVerdict
from omni_kit.scaffold.render import render, templates_of
from omni_kit.targets.protocol import MakesConverters, MakesExports, NewFile, Target
from omni_kit.targets.registry import find_integrations, targets


def write_converter(verdict: LayoutVerdict, path: Path) -> str:
    """Write the converter module for the layout of a checkpoint, and return a one-line summary.

    The names in it follow the file: `my-model 1.py` defines `create_my_model_1_checkpoint_tensor_converter`.

    Raises:
        BadInput: no converter can read the layout, no target has converters, or something else is there already.
    """
    if path.is_dir():
        raise BadInput(f"{path} is a directory", "pass the file to write")
    if verdict.model is None:
        raise BadInput("a converter needs to know the model", "pass --model-type or --config FILE")
    target = _maker()
    made = target.converter(identifier_of(path.stem), str(path), verdict)
    if isinstance(made, str):
        return f"no converter was written: {made}"
    return _written(made, target, path)


def write_export(integration: Path, path: Path) -> str:
    """Write the module that exports what an integration trains, and return a one-line summary.

    Raises:
        BadInput: no target exports this integration with a module, or something else is there already.
    """
    for target, found in find_integrations(integration):
        if isinstance(target, MakesExports):
            return _written(target.exporter(str(path), found), target, path)
    raise BadInput(f"no target has an export for {integration}")


def _written(made: NewFile, target: Target, path: Path) -> str:
    text = render([made], templates_of(target))[made.path]
    if path.exists() and path.read_bytes() != text.encode():
        raise BadInput(f"{path} exists and differs", "remove it, or give another name")
    write_atomic(path, text)
    return f"wrote {path}"


class _Maker(Target, MakesConverters, Protocol):
    """A target with converters."""


def _maker() -> _Maker:
    """Return the first target that converts checkpoints while it loads them."""
    for target in targets().values():
        if isinstance(target, MakesConverters):
            return cast(_Maker, target)
    raise BadInput("no target converts checkpoints while it loads them")
