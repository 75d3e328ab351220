"""The README's table of levels, made from their declarations: `python -m tools.levels_table` writes it."""

import re
from pathlib import Path

from omni_kit.parity.levels import BY_NAME

README = Path(__file__).parents[1] / "README.md"
_STAR = r" \*"
PLACE = re.compile(r"(?<=<!-- levels -->\n).*?(?=<!-- /levels -->)", re.DOTALL)


def table() -> str:
    """One row a level: its name, starred where it runs by default, what it says, what both sides need."""
    rows = [
        f"| `{name}`{_STAR if level.default else ''} | {level.says} | {', '.join(sorted(level.needs)) or '–'} |"
        for name, level in BY_NAME.items()
    ]
    return "\n".join(["| level | a candidate that passes | needs |", "|---|---|---|", *rows]) + "\n"


if __name__ == "__main__":
    README.write_text(PLACE.sub(lambda _: table(), README.read_text(encoding="utf-8")), encoding="utf-8")
