"""The function that converts a checkpoint of the authors, with the table of what is renamed and shared out."""

from collections.abc import Sequence
from pathlib import Path

from omni_kit.formatting import format_python
from omni_kit.targets.diffusers.porting.renaming import Row

_FUNCTION = '''
def {name}(checkpoint, {config}**kwargs):
    """Gives the authors' tensors the names of the model here; where one becomes several, its rows are shared out."""
    # A pattern of the authors' names -> the names here. What no pattern fits keeps its name.
    renamed = {{
{table}
    }}{groups}
    converted = {{}}
    for key, tensor in checkpoint.items():
        names, match = (key,), None
        for pattern, names_here in renamed.items():
            match = re.fullmatch(pattern, key)
            if match is not None:
                names = tuple(match.expand(name) for name in names_here)
                break
{parts}
        converted.update(zip(names, parts))
    return converted
'''
_IN_TURN = "        parts = tensor.chunk(len(names), dim=0) if len(names) > 1 else (tensor,)"
_GROUPS = """
    # A pattern -> how many groups of rows there are, and how many rows of each part are in one.
    groups = {{
{rows}
    }}"""
_IN_GROUPS = """        parts = (tensor,)
        if len(names) > 1:
            count, rows = groups.get(pattern, (1, -1))
            parts = [part.flatten(0, 1) for part in tensor.unflatten(0, (count, len(names), rows)).unbind(1)]"""


def conversion_of(name: str, rows: Sequence[Row], rules: Path | None = None) -> str:
    """Return the function's text, formatted by these rules; it takes the model's config where it needs numbers
    of it.
    """
    table = "\n".join(f'        r"{row.pattern}": ({_shown(row.names)},),' for row in rows)
    grouped = [row for row in rows if not row.in_turn]
    groups = "\n".join(f'        r"{row.pattern}": ({row.groups[0]}, {row.groups[1]}),' for row in grouped)
    text = _FUNCTION.format(
        name=name, table=table, groups=_GROUPS.format(rows=groups) if grouped else "",
        config="config, " if "config[" in groups else "", parts=_IN_GROUPS if grouped else _IN_TURN,
    )  # fmt: skip
    return format_python(text, "conversion.py", rules).strip("\n") + "\n"


def _shown(names: Sequence[str]) -> str:
    return ", ".join(f'r"{name}"' for name in names)
