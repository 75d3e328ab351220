"""VEO427: what other integrations have, too, is said as they say it."""

import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from omni_checkers.engine.rule import Example, Finding, Findings, Rule, Severity
from omni_checkers.symbolic.arrangement import same_values
from omni_checkers.symbolic.differences import Difference
from omni_checkers.symbolic.lines import Line, names_read
from omni_checkers.veomni.facts.cousins import Function, Kin, own_helpers, upstream_lines
from omni_checkers.veomni.facts.echoes import Echo
from omni_checkers.veomni.facts.generated import PatchConfigFile
from omni_checkers.veomni.facts.slips import changes_a_value
from omni_kit.pysource.library import Library

_COUSIN = """\
from veomni.models.loader import MODELING_REGISTRY


@MODELING_REGISTRY.register("cousin")
def register_cousin_modeling(architecture):
    raise NotImplementedError
"""
_SPLIT = """\
def cut_for_this_rank(hidden, lengths, rank, size):
    padding = -hidden.shape[0] % size
    {padded}
    share = hidden.shape[0] // size
    first = rank * share
    part = hidden[first : {last}]
    counts = lengths.clone()
    counts[-1] += padding
    return part, counts
"""
_PADDED = "hidden = torch.cat([hidden, hidden.new_zeros(padding, hidden.shape[1])])"
# Of the other's lines: where less is kept, what is missing may belong to what was written anew.
_NEAR = 0.8
# One was copied from the other, and hardly changed.
_SAME = 0.9
_CONFIG = re.compile(r"\bconfig\.(\w+)")


def _both(last: str) -> Example:
    """Two plugins that cut a sequence alike, but for where a part ends."""
    right = f"import torch\n\n\n{_SPLIT.format(padded=_PADDED, last='first + share')}"
    ours = f"import torch\n\n\n{_SPLIT.format(padded=_PADDED, last=last)}"
    return {"../cousin/__init__.py": _COUSIN, "../cousin/sharing.py": right, "sharing.py": ours}


class CousinsSayTheSame(Rule):
    """What several integrations say in almost the same words, this one says as they do.

    A function is compared with those of other integrations that share most of its lines: those of VeOmni, and for a
    plugin those beside it. A finding is a line that differs from theirs by one small thing, and that neither upstream's
    own files of this model nor any of the others have; or a line that changes a value and that most of them have. In
    functions that are otherwise different, a line is compared with what others have between the same lines.

    Why: sequence parallelism, collators and converters have no upstream to be compared with. They are copied from one
    integration to the next, and a slip in them shows on several ranks only.

    Fine when: this model needs it otherwise; say why in an ignore comment.
    """

    id = "VEO427"
    name = "cousins-say-the-same"
    severity = Severity.warning
    target = "veomni"
    obligations = ("VEO-PG-39",)
    failure_modes = ("sp-sharding-set-wrong", "cu-seqlens-padding")
    BAD = (_both(last="first + size"),)
    GOOD = (_both(last="first + share"),)

    def check(
        self,
        echoes: list[Echo],
        patch_configs: list[PatchConfigFile],
        transformers: Library,
        kin: list[Kin] | None = None,
    ) -> Findings:
        told = set[tuple[Path, int]]()
        for one in kin or []:
            path = one.function.file
            for line, other, there, what in _altered(one, patch_configs, transformers):
                told.add((path, line.number))
                yield Finding(f"{one.function.name}: {what} ({_place(other, there)})", path, line.number)
            for other, there in _left_out(one):
                message = (
                    f"{one.function.name} leaves out what its like do: {there.text[:100]} ({_place(other, there)})"
                )
                yield Finding(message, path, one.function.node.lineno)
        for echo in echoes:
            place = (echo.function.file, echo.line.number)
            if place not in told and _is_meant_alike(echo, patch_configs, transformers):
                where = _place(echo.other, echo.there)
                yield Finding(f"{echo.function.name}: {echo.difference.what} ({where})", *place)


def _is_meant_alike(echo: Echo, configs: list[PatchConfigFile], transformers: Library) -> bool:
    """Whether what differs changes a value, and neither upstream nor another config explains it."""
    if not _is_slip(echo.line, echo.there, echo.difference):
        return False
    upstream = upstream_lines(configs, transformers)
    return echo.line.code not in upstream and not _other_config(echo.line, echo.there, upstream)


def _place(function: Function, line: Line) -> str:
    return f"{function.file.parent.name}/{function.file.name}, line {line.number}"


def _altered(
    one: Kin, configs: list[PatchConfigFile], transformers: Library
) -> Iterator[tuple[Line, Function, Line, str]]:
    """Lines that no cousin has, with the first cousin that says otherwise, and how."""
    for number in sorted(found := _by_line(one)):
        here, other, there, what = found[number]
        upstream = upstream_lines(configs, transformers)
        if here.code not in upstream and not _other_config(here, there, upstream):
            yield here, other, there, what


def _by_line(one: Kin) -> dict[int, tuple[Line, Function, Line, str]]:
    found: dict[int, tuple[Line, Function, Line, str]] = {}
    for other, copy in one.cousins:
        for here, there, differences in copy.altered():
            alone = not any(here.code in cousin.lines for cousin, _ in one.cousins)
            slip = copy.beside_the_same(here, there) and _is_slip(here, there, differences[0])
            if alone and len(differences) == 1 and slip:
                found.setdefault(here.number, (here, other, there, differences[0].what))
        for here, there in copy.rewritten() if copy.likeness >= _SAME else ():
            if not same_values(here.plain, there.plain):
                found.setdefault(here.number, (here, other, there, f"'{here.text}' in the place of '{there.text}'"))
        for here, there in copy.discarded():
            what = f"what '{here.text}' gives is thrown away, and '{there.text}' keeps it"
            found.setdefault(here.number, (here, other, there, what))
        for here, there in copy.exchanged():
            what = f"'{here.text}' is done before '{there.text}', which reads or sets the same"
            found.setdefault(here.number, (here, other, there, what))
    return found


def _is_slip(here: Line, there: Line, difference: Difference) -> bool:
    """Whether a difference changes what is computed: no copy more or less, no text, no argument of another callee."""
    return difference.call is None and not difference.about_text and not same_values(here.plain, there.plain)


def _other_config(here: Line, there: Line, upstream: frozenset[str]) -> bool:
    """Whether two lines read settings of other names, and the cousin's is none of this model's."""
    ours, theirs = _CONFIG.findall(here.text), _CONFIG.findall(there.text)
    same = _CONFIG.sub("config", here.text) == _CONFIG.sub("config", there.text)
    return same and any(name not in upstream for mine, name in zip(ours, theirs, strict=True) if mine != name)


def _left_out(one: Kin) -> Iterator[tuple[Function, Line]]:
    """Lines that change a value, and that most of the cousins have which are alike almost throughout.

    A line that calls a function of the cousin's file, which this one has not, is about another matter.
    """
    near = [(other, copy) for other, copy in one.cousins if copy.likeness >= _NEAR]
    lost: dict[str, tuple[Function, Line]] = {}
    for other, copy in near:
        foreign = own_helpers(one.function, other)
        for there in chain(chain.from_iterable(copy.left_out()), copy.unset()):
            if changes_a_value(copy, there) and not foreign & names_read(there.node):
                lost.setdefault(there.code, (other, there))
    for code, (other, there) in lost.items():
        if 2 * sum(code in cousin.lines for cousin, _ in near) > len(near):
            yield other, there
