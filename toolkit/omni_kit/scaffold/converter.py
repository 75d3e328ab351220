"""The converter alone, for a checkpoint whose integration exists already."""

import keyword
from pathlib import Path

from omni_kit.errors import BadInput
from omni_kit.files import write_atomic
from omni_kit.layout import LayoutVerdict
from omni_kit.scaffold.render import render_file
from omni_kit.targets import get_target


def write_converter(verdict: LayoutVerdict, path: Path, target: str = "veomni") -> str:
    """Writes a target's converter module for the layout of a checkpoint; returns what was done, in one line.

    The names in it follow the file: `olmoe_converter.py` defines `create_olmoe_converter_checkpoint_tensor_converter`.

    Raises:
        BadInput: the layout has no canonical form, the file name is no module name, or the file exists and differs.
    """
    name = path.stem
    if not name.isidentifier() or keyword.iskeyword(name) or path.suffix != ".py":
        raise BadInput(f"{path} is no Python module name", "give a name such as my_model.py")
    if verdict.model is None:
        raise BadInput("a converter needs to know the model", "give --model-type, or --config FILE")
    made = get_target(target).converter(name, str(path), verdict)
    if isinstance(made, str):
        return f"no converter was written: {made}"
    text = render_file(made, target, "")
    if path.exists() and path.read_text(encoding="utf-8") != text:
        raise BadInput(f"{path} exists and differs", "remove it, or give another name")
    write_atomic(path, text)
    return f"wrote {path}"
