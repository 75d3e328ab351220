"""The converter alone, for a checkpoint whose integration exists already."""

import keyword
from pathlib import Path
from typing import Protocol, cast

from omni_kit.errors import BadInput
from omni_kit.files import write_atomic
from omni_kit.layout import LayoutVerdict
from omni_kit.scaffold.render import render_file, templates_of
from omni_kit.targets.protocol import MakesConverters, Target
from omni_kit.targets.registry import targets


def write_converter(verdict: LayoutVerdict, path: Path) -> str:
    """Writes the converter module for the layout of a checkpoint; returns what was done, in one line.

    The names in it follow the file: `my_model.py` defines `create_my_model_checkpoint_tensor_converter`.

    Raises:
        BadInput: the layout has no canonical form, no target has converters, the file name is no module name, or the
            file exists and differs.
    """
    name = path.stem
    if not name.isidentifier() or keyword.iskeyword(name) or path.suffix != ".py":
        raise BadInput(f"{path} is no Python module name", "give a name such as my_model.py")
    if verdict.model is None:
        raise BadInput("a converter needs to know the model", "give --model-type, or --config FILE")
    target = _maker()
    made = target.converter(name, str(path), verdict)
    if isinstance(made, str):
        return f"no converter was written: {made}"
    text = render_file(made, templates_of(target))
    if path.exists() and path.read_text(encoding="utf-8") != text:
        raise BadInput(f"{path} exists and differs", "remove it, or give another name")
    write_atomic(path, text)
    return f"wrote {path}"


class _Maker(Target, MakesConverters, Protocol):
    """A target with converters."""


def _maker() -> _Maker:
    """The first target that converts checkpoints while it loads them."""
    for target in targets().values():
        if isinstance(target, MakesConverters):
            return cast(_Maker, target)
    raise BadInput("no target converts checkpoints while it loads them")
