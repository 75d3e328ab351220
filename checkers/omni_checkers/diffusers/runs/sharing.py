"""`python -m omni_checkers.diffusers.runs.sharing`: which plan shares out the tokens of models, found by runs.

stdin is one JSON object, {"paths": [...]}; the answer, path -> [the plan as it stands in a class, why there is none],
is written to the file that the first argument names.
"""

import json
import sys
import textwrap
from pathlib import Path

from omni_kit.errors import OmniKitError
from omni_kit.files import format_python


def main() -> None:
    """Reads the request from stdin and writes the answer to the file that the first argument names."""
    paths = json.load(sys.stdin)["paths"]
    Path(sys.argv[1]).write_text(json.dumps({path: _found(Path(path)) for path in paths}), encoding="utf-8")


def _found(path: Path) -> tuple[str, str]:
    # Reading the rules imports this module, and must not import torch.
    from omni_kit.targets.diffusers.runtime.sharing import derive

    try:
        return _formatted(derive(path)), ""
    except OmniKitError as error:
        return "", error.message


def _formatted(plan: str) -> str:
    """As it stands in a class, at the depth of a file's top level."""
    text = format_python(f"class _:\n{textwrap.indent(plan, '    ')}\n", "plan.py")
    return textwrap.dedent(text.partition("\n")[2]).rstrip("\n")


if __name__ == "__main__":
    main()
