"""The effect of a name_map on one identifier."""

import re
from collections.abc import Mapping


def mapped(name: str, name_map: Mapping[str, str]) -> str:
    """Return an identifier under a name_map: a key counts where it is the whole name or its first words.

    "Qwen3VL" is in Qwen3VL, Qwen3VLModel, Qwen3VL_x and _Qwen3VLFake, and not in MyQwen3VLModel; "Norm" is in
    NormOutput and not in Normaliser. The longest key wins.
    """
    lead = name[: len(name) - len(name.lstrip("_"))]
    core = name[len(lead) :]
    for old in sorted(name_map, key=len, reverse=True):
        bare = old if core.startswith(old) else None
        if name == old:
            return name_map[old]
        if bare and _ends_a_word(core, len(bare)):
            return lead + name_map[old] + core[len(bare) :]
    return name


def _ends_a_word(name: str, at: int) -> bool:
    rest = name[at:]
    return (
        not rest
        or rest[0] == "_"
        or bool(re.match(r"[A-Z]", rest))
        or (rest[0].isdigit() and not name[at - 1].isdigit())
    )
