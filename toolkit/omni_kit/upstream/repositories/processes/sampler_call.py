"""A call of the authors' own sampler with a denoiser of one's choice."""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from omni_kit.pysource.source import SourceFile
from omni_kit.upstream.repositories.processes.call_arguments import Told
from omni_kit.upstream.repositories.processes.class_members import plain_arguments
from omni_kit.upstream.repositories.processes.mixing import mixed_in
from omni_kit.upstream.repositories.processes.process import MIXED, Mixed


class Guidance(StrEnum):
    """Way of guidance: by `other + scale * (one - other)`; with `scale + 1`; in no call; by anything else."""

    usual = "usual"
    less = "less"
    unasked = "unasked"
    other = "other"


@dataclass(frozen=True)
class AuthorsCall:
    """A call of a sampler.

    Attributes:
        where: file:line.
        module, name: what it imports.
        function: what samples: that function, or a method of that class.
        called: the expression in DENOISER, BEGUN, STEPS, MADE_WITH and GIVEN, `around` and `torch`.
        draws: it draws its first noise itself.
        guides: the arguments by which the authors guide, as they have them by default.
        guided: the same call with `scale` for these; empty without any.
        less: their scale is one less than the usual one.
        scale: the usual scale of their guidance by default, where a run has shown that they guide; else None.
        levels: it is passed its levels, which its callers make.
        far: how many folders away the sampler is from the model's class.
        inner: another sampler of its class calls it.
        trained: how many steps the authors train with, where the sampler goes all of them; else 0.
        usual: it goes all of them by default, though a number of steps can be given.
        parts: what else it imports: module and name.
        wrapper: the class that holds the model while it samples; empty without one.
        wrappers: all such classes.
        adapts: the arguments by which the authors choose a solver that adapts its steps.
        off: the arguments by which they guide, and which are null by default.
        takes: the names of the function's arguments.
        assumed: values of arguments that nothing says, and that have an effect.
        defined: functions of the authors' that it calls: module and name.
        differ: configs that make the sampler otherwise.
        held: the lines that make what the expression calls, in `model`, `noise` and others.
        joined: the conditions that are passed in it to be joined with latents.
        mixed: the known values that the sampler may put back into its latents.
    """

    where: str
    module: str
    name: str
    function: str
    called: str
    draws: bool
    guides: tuple[str, ...] = ()
    guided: str = ""
    less: bool = False
    scale: float | None = None
    levels: bool = False
    far: int = 0
    inner: bool = False
    trained: int = 0
    usual: bool = False
    parts: tuple[tuple[str, str], ...] = ()
    wrapper: str = ""
    wrappers: tuple[str, ...] = ()
    adapts: tuple[str, ...] = ()
    off: tuple[str, ...] = ()
    takes: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    defined: tuple[tuple[str, str], ...] = ()
    differ: tuple[str, ...] = ()
    held: tuple[str, ...] = ()
    joined: tuple[str, ...] = ()
    mixed: Mixed | None = None

    @property
    def imports(self) -> tuple[str, ...]:
        """The lines that bring what `called` names."""
        named = ((self.module, self.name), *self.parts)
        made = [f"{name} = defined({module!r}, {name!r})" for module, name in self.defined]
        helper = ["from omni_kit.targets.references.authors_calls import defined"] if made else []
        return (*(f"from {module} import {name}" for module, name in named), *helper, *made)

    @property
    def full_name(self) -> str:
        """Its module, its class and its function."""
        return ".".join(dict.fromkeys((*self.module.split("."), self.name, self.function)))

    @property
    def todo(self) -> Iterator[str]:
        """Yield what the comparison leaves to a person."""
        if self.guides:
            yield f"compare the guidance with {', '.join(self.guides)} of {self.name} ({self.where})"
        if self.levels:
            yield f"compare the scheduler's levels with those that callers of {self.name} pass ({self.where})"
        if len(self.wrappers) > 1:
            others = ", ".join(one for one in self.wrappers if one != self.wrapper)
            yield f"compare the preconditioning with the checkpoint's: {self.wrapper} is taken, and not {others}"
        if self.assumed:
            assumed = ", ".join(self.assumed)
            yield f"set the scheduler as the authors make {self.name} ({self.where}): {assumed} is assumed"
        if self.differ:
            yield f"compare the scheduler with configs that make {self.name} otherwise: {', '.join(self.differ)}"
        if self.off:
            yield f"compare the guidance that {', '.join(self.off)} of {self.name} switches on ({self.where})"
        if self.adapts:
            yield f"compare with the authors' adaptive steps: {', '.join(self.adapts)} of {self.name} ({self.where})"


def call_of(
    source: SourceFile, node: ast.FunctionDef, name: str, called: Sequence[str], *told: Told
) -> AuthorsCall:  # fmt: skip
    """Return a call, given as it is and with a scale of guidance."""
    module = source.module
    guides = tuple(dict.fromkeys(each for one in told for each in one.guides))
    draws = not any(one.noise for one in told)
    inherited = node not in [*ast.walk(source.tree)]
    where = source.where(source.classes[name] if inherited and name in source.classes else node)
    plain, guided = called
    said, mixed = {each for one in told for each in one.said}, mixed_in(node)
    mixed = mixed if mixed is not None and not {mixed.known, mixed.mask} & said else None
    if mixed is not None:
        more = ", ".join(f"{each}={MIXED}[{each!r}]" for each in (mixed.known, mixed.mask))
        plain, guided = (f"{one[:-1]}{'' if one.endswith('()') else ', '}{more})" for one in (plain, guided))
    off = tuple(dict.fromkeys(each for one in told for each in one.off))
    levels, adapts = any(one.levels for one in told), tuple(each for one in told for each in one.adapts)
    return AuthorsCall(
        where, module, name, node.name, plain, draws, guides, guided if guided != plain else "", levels=levels,
        adapts=adapts, off=off, takes=tuple(one.arg for one, _ in plain_arguments(node)), mixed=mixed,
    )  # fmt: skip
