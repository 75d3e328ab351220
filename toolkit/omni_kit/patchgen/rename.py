"""name_map: a patch written for one family of classes, used for another. Identifiers change, nothing else does."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from omni_kit.patchgen.fragment import Fragment


@dataclass
class Renaming:
    """The result of a name_map: `renamed` old to new identifiers, `unused` keys, and `passed_over` identifiers that
    contain a key inside a word."""

    fragment: Fragment
    renamed: dict[str, str] = field(default_factory=dict)
    unused: tuple[str, ...] = ()
    passed_over: tuple[str, ...] = ()


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
