"""Calls of the authors' own samplers with a denoiser of one's choice, derived from signatures alone.

A sampler is a class that takes the model in its constructor, keeps it as an attribute, or passes it to a method; or a
function that takes it. Its other arguments are recognised by name. Whether a call samples is shown by running it.
"""

import ast
import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from omni_kit.pysource.source import dotted
from omni_kit.upstream.repositories.processes.call_arguments import is_counted
from omni_kit.upstream.repositories.processes.sampler_call import AuthorsCall
from omni_kit.upstream.repositories.processes.sampler_classes import of_class
from omni_kit.upstream.repositories.processes.sampler_entries import is_entry, loops_by_names
from omni_kit.upstream.repositories.processes.sampler_functions import of_function
from omni_kit.upstream.repositories.processes.wrappers import wrappers_of
from omni_kit.upstream.repositories.published import options_of
from omni_kit.upstream.repositories.reference import Reference
from omni_kit.upstream.repositories.sampler_names import is_named
from omni_kit.upstream.repositories.sources import distance, sources_of

_MOST = 24


def authors_calls(reference: Reference) -> list[AuthorsCall]:
    """Return the calls of the samplers nearest to a class, those with the fewest invented arguments first.

    Those that run all steps of training by default come before those that are passed another number, and those that
    know no other number come after them.
    """
    found: list[tuple[int, AuthorsCall]] = []
    sources = [*sources_of(reference)]
    wrappers = wrappers_of(reference, sources)
    for source in sources:
        far = 0 if source is reference.cls.source else 1 + distance(reference, source.path)
        for node in source.tree.body:
            if isinstance(node, ast.ClassDef) and node is not reference.cls.node:
                calls = of_class(reference, source, node, sources)
            elif isinstance(node, ast.FunctionDef) and _is_entry(reference, node) and loops_by_names(source, node):
                calls = of_function(reference, source, node, sources, wrappers)
            else:
                continue
            told = ((cost, replace(call, far=far)) for cost, call in calls)
            found += [(cost, call) for cost, call in told if is_counted(call.called) or _is_meant(reference, call)]
        if len(found) > 2 * _MOST:
            break
    order = sorted(found, key=lambda each: (each[1].far, each[1].inner, each[0]))
    kinds = [[one for _, one in order if kind(one)][:_MOST] for kind in _KINDS]
    return [one for kind in kinds for one in kind]


def _is_meant(reference: Reference, call: AuthorsCall) -> bool:
    """Return whether a user names a sampler."""
    return bool(reference.loop) and is_named(call.full_name, reference.loop)


def _is_entry(reference: Reference, function: ast.FunctionDef) -> bool:
    """Return whether a function may sample, by its name or because a user names it."""
    return is_entry(function) or (bool(reference.loop) and is_named(function.name, reference.loop.rpartition(".")[2]))


_KINDS: tuple[Callable[[AuthorsCall], bool], ...] = (
    lambda one: one.usual,
    lambda one: not one.trained,
    lambda one: bool(one.trained) and not one.usual,
)


def chosen(reference: Reference, calls: Sequence[AuthorsCall]) -> str:
    """Return the function of several samplers that the authors' command line chooses by default, as `ddpm_steps` by
    `--sample_type ddpm`; else the only one that other files of theirs call; empty without one.
    """
    words = {one.function: {*one.function.split("_")} for one in calls}
    sources = [*sources_of(reference)] if len(words) > 1 else []
    for source in (one for one in sources if "argument" in one.text):
        for option, value in options_of(source).items():
            named = [one for one in words if isinstance(value, str) and value in words[one]]
            if len(named) == 1 and re.search(r"sampl|method|solver", option):
                return named[0]
    own = {one.module for one in calls}
    nodes = (node for source in sources if source.module not in own for node in ast.walk(source.tree))
    used = {name for node in nodes if isinstance(node, ast.Attribute | ast.Name)
            and (name := (dotted(node) or "").rpartition(".")[2]) in words}  # fmt: skip
    return used.pop() if len(used) == 1 else ""
