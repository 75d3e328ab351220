"""Values for a sampler's arguments that make its schedule: those of configs, else the usual ones."""

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from omni_kit.pysource.reads import literal
from omni_kit.pysource.source import SourceFile
from omni_kit.upstream.repositories.published import documented
from omni_kit.upstream.repositories.reference import Reference
from omni_kit.upstream.repositories.sampler_step.members import Given

IS_TRAINED = re.compile(
    r"^(num_|n_|total_|max_)?((diffusion|train(ing)?|noise)_)?time_?steps?$|^(num_|n_|total_)times$"
    r"|^(num_|n_|total_|max_)?(diffusion|train(ing)?|noise)_steps?$|^total_steps$|^(n_)?T$"
)
"""Names of the number of steps of training."""
_OF_SCHEDULE = re.compile(r"^betas?(_?(1|0|start|min|T|2|end|max|schedule))?$|^(noise_)?schedule$")
_FIRST, _LAST = re.compile(r"^betas?_?(1|0|start|min)$"), re.compile(r"^betas?_?(T|2|end|max)$")
_BOTH = re.compile(r"^(b|betas?)$")
_USUAL = (0.0001, 0.02)
_KINDS: tuple[tuple[re.Pattern[str], Any], ...] = ((_FIRST, _USUAL[0]), (_LAST, _USUAL[1]), (_BOTH, _USUAL))


@dataclass(frozen=True)
class ScheduleArguments:
    """Values for arguments without a default.

    Attributes:
        values: by name.
        made: expressions that depend on the number of steps, by name.
        assumed: what no config says, as `name=value`.
    """

    values: dict[str, Any] = field(default_factory=dict)
    made: dict[str, str] = field(default_factory=dict)
    assumed: tuple[str, ...] = ()


def schedule_arguments(
    reference: Reference, sources: Sequence[SourceFile], given: Sequence[Given], steps: str
) -> ScheduleArguments:
    """Return values for those of these arguments that have no default and make a schedule.

    Args:
        steps: the expression for the number of steps.
    """
    names = [one.arg for one, default in given if default is None and _OF_SCHEDULE.match(one.arg)]
    if not names:
        return ScheduleArguments()
    counted = any(IS_TRAINED.match(one.arg) for one, _ in given)
    values, made, assumed = dict[str, Any](), dict[str, str](), list[str]()
    for name in names:
        known = _said(reference, sources, name)
        if len(known) == 1 and not (_BOTH.match(name) and not counted):
            values[name] = known[0]
        elif _BOTH.match(name) and not counted:
            made[name] = f"torch.linspace({_USUAL[0]}, {_USUAL[1]}, {steps})"
            assumed.append(f"{name} from {_USUAL[0]} to {_USUAL[1]}")
        else:
            usual = [value for pattern, value in _KINDS if pattern.match(name)]
            values |= dict.fromkeys([name] if usual else [], *usual)
            assumed += [f"{name}={value}" for value in usual]
    return ScheduleArguments(values, made, tuple(assumed))


def _said(reference: Reference, sources: Sequence[SourceFile], name: str) -> list[Any]:
    """Return the values that configs have for a name: mappings in files, and those that code writes."""
    found = [values[name] for values, _ in documented(reference.repository, (name,)) if name in values]
    for source in (one for one in sources if f'"{name}"' in one.text or f"'{name}'" in one.text):
        for node in (one for one in ast.walk(source.tree) if isinstance(one, ast.Dict)):
            found += [literal(value) for key, value in zip(node.keys, node.values, strict=True)
                      if key is not None and literal(key) == name]  # fmt: skip
    plain = [one for one in found if isinstance(one, int | float | str | list | tuple) and not isinstance(one, bool)]
    return [one for at, one in enumerate(plain) if one not in plain[:at]]
