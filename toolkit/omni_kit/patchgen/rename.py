"""name_map: a patch written for one family of classes, used for another. Identifiers change, nothing else does."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from omni_kit.patchgen.fragment import Fragment


@dataclass
class Renaming:
    """What a name_map did: `renamed` old to new identifiers, `unused` keys, and `passed_over` identifiers that hold a
    key where no word begins."""

    fragment: Fragment
    renamed: dict[str, str] = field(default_factory=dict)
    unused: tuple[str, ...] = ()
    passed_over: tuple[str, ...] = ()


def mapped(name: str, name_map: Mapping[str, str]) -> str:
    """An identifier under a name_map: a key counts where it is the whole name or its first words.

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


def rename(fragment: Fragment, name_map: Mapping[str, str] | None) -> Renaming:
    """`fragment` with the identifiers of its body renamed; strings, comments and its own name stay."""
    if not name_map:
        return Renaming(fragment)
    if not any(key in text for key in name_map for text in (fragment.text, *fragment.decorators)):
        return Renaming(fragment, unused=tuple(name_map))
    import libcst

    from omni_kit.patchgen.renamer import Renamer

    renamer = Renamer(name_map, fragment.name)
    module = libcst.parse_module(fragment.text).visit(renamer)
    decorated = [libcst.parse_module(f"{d}\ndef _(): ...\n").visit(renamer).code for d in fragment.decorators]
    changed = replace(
        fragment,
        text=module.code,
        decorators=tuple(text[: text.rindex("\ndef _")] for text in decorated),
    )
    used = {key for key in name_map if any(_has(key, old) for old in renamer.renamed)}
    return Renaming(
        changed,
        renamer.renamed,
        tuple(key for key in name_map if key not in used),
        tuple(sorted(n for n in renamer.kept if any(key in n for key in name_map))),
    )


def _has(key: str, name: str) -> bool:
    return name == key or name.lstrip("_").startswith(key)


def _ends_a_word(name: str, at: int) -> bool:
    rest = name[at:]
    return (
        not rest
        or rest[0] == "_"
        or bool(re.match(r"[A-Z]", rest))
        or (rest[0].isdigit() and not name[at - 1].isdigit())
    )
