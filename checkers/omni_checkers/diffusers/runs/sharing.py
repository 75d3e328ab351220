"""The plan that shards the tokens of a model, found by runs."""

import textwrap
from pathlib import Path

from omni_kit.errors import OmniKitError
from omni_kit.formatting import format_python


def found(path: str) -> tuple[str, str]:
    """Return the plan as it stands in a class, and why there is none."""
    # Reading the rules imports this module, and must not import torch.
    from omni_kit.targets.diffusers.runtime.sharing import derive

    try:
        return _formatted(derive(Path(path))), ""
    except OmniKitError as error:
        return "", error.message


def _formatted(plan: str) -> str:
    """Return the plan as in a class, at the depth of a file's top level."""
    text = format_python(f"class _:\n{textwrap.indent(plan, '    ')}\n", "plan.py")
    return textwrap.dedent(text.partition("\n")[2]).rstrip("\n")
