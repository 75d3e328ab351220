"""Calls of samplers that are methods of the authors' classes."""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace

from omni_kit.pysource.source import SourceFile
from omni_kit.upstream.repositories.processes.call_arguments import (
    DENOISER,
    EACH,
    FEATURES,
    GUIDED,
    LENGTH,
    MODEL,
    ROWS,
    SCALE,
    SHAPE,
    Told,
    arguments_told,
    is_counted,
    pairs_to_guide,
    way_of,
)
from omni_kit.upstream.repositories.processes.class_members import compared_with_none, every_method, plain_arguments
from omni_kit.upstream.repositories.processes.constructions import construction
from omni_kit.upstream.repositories.processes.holders import holders
from omni_kit.upstream.repositories.processes.sampler_call import AuthorsCall, call_of
from omni_kit.upstream.repositories.processes.sampler_entries import (
    cleans,
    flags_passed,
    held_by,
    is_entry,
    is_other,
    loops,
    numbers_passed,
)
from omni_kit.upstream.repositories.reference import Reference
from omni_kit.upstream.repositories.sampler_names import is_named
from omni_kit.upstream.repositories.sampler_step.loop_statements import goes_over_data
from omni_kit.upstream.repositories.sampler_step.members import of_self
from omni_kit.upstream.repositories.sampler_step.stateless import asking_of, asks


def of_class(
    reference: Reference, source: SourceFile, cls: ast.ClassDef, sources: Sequence[SourceFile]
) -> Iterator[tuple[int, AuthorsCall]]:
    """Yield the calls of the methods of a class that seem to sample, each with how many arguments were made up.

    Args:
        sources: the authors' files, the nearest to the model first.
    """
    methods, holder = every_method(source, cls), holders(reference).get(cls)
    asking = asking_of(methods, holder.attributes if holder is not None else frozenset())
    may = [one for one in methods.values()
           if is_entry(one) or _steps(one, asking) or _is_meant(reference, cls, one)]  # fmt: skip
    entries = [one for one in may if not cleans(one) and loops(one, methods)
               and not any(_is_property(each) for each in one.decorator_list)]  # fmt: skip
    if not entries:
        return
    models = holder.arguments if holder is not None else ()
    makes = holder is not None and not models  # and is given no model, whatever its arguments are called
    ways = construction(reference, source, cls, sources, models, [one.name for one in entries], makes=makes)
    made, assumed = ways.told, ways.assumed
    held = [*dict.fromkeys([*held_by(methods), *sorted(holder.attributes if holder is not None else ())])]
    named = {
        entry.name: {of_self(node) for node in ast.walk(entry) if isinstance(node, ast.Attribute)} for entry in entries
    }
    for entry in entries:
        inner = any(entry.name in names for name, names in named.items() if name != entry.name)
        own = plain_arguments(entry)[1:]
        takes = any(MODEL.match(one.arg) for one, _ in own)
        flags, pairs = flags_passed(sources, entry), pairs_to_guide(methods.values(), own)
        way, null = way_of(methods.values()), compared_with_none(entry)
        for told in arguments_told(own, MODEL if takes else None, way=way, parts=flags, guiding=pairs, null=null):
            name = "" if entry.name in ("__call__", "forward") else f".{entry.name}"
            for one in made:
                if (takes or (one.model and not makes)) and not (one.trained and is_counted(told.text)):
                    both = ((_of_each(one.text, told), told.text), (_of_each(one.guided, told), told.guided))
                    calls = [f"{ways.prepared(f'{cls.name}({first})', one)}{name}({second})" for first, second in both]
                    call = call_of(source, entry, cls.name, calls, told, one)
                    call = replace(call, parts=ways.imports, trained=one.trained, usual=one.usual, inner=inner)
                    scales = [f"{each}={value}" for each, value in numbers_passed(sources, entry, pairs).items()]
                    guides = {one.partition("=")[0]: one for one in (*call.guides, *scales)}
                    guides |= {each: f"{each}={value}" for each, value in ways.guides.items() if each in guides}
                    call = replace(call, guides=tuple(guides.values()))
                    call = replace(call, assumed=assumed, defined=ways.defined, differ=ways.differ)
                    yield from ((one.cost + told.cost + more, each) for more, each in enumerate(_turned(call)))
            whole = made if not takes and held and (makes or not any(one.model for one in made)) else ()
            for one in whole:
                if one.trained and is_counted(told.text):
                    continue
                scales, calls = _kept_scales(methods), []
                for value, text in (("0.0", told.text), (SCALE, told.guided)):
                    kept = ", ".join(f"{each!r}: {value}" for each in scales)
                    more = "".join(f", {each}" for each in (f"kept={{{kept}}}" if kept else "", one.text) if each)
                    object_ = ways.prepared(f"around({cls.name}, {held!r}, {DENOISER}{more})", one)
                    calls.append(f"{object_}{name or '.' + entry.name}({text})")
                call = call_of(source, entry, cls.name, calls, told)
                call = replace(call, trained=one.trained, usual=one.usual, inner=inner)
                yield from ((9 + told.cost + more, each) for more, each in enumerate(_turned(call)))


def _of_each(made: str, told: Told) -> str:
    """Return a constructor's arguments, with the shape of one sample where a method is passed how many there are."""
    return made.replace(SHAPE, EACH) if ROWS in told.said.values() else made


def _steps(method: ast.FunctionDef, asking: Set[str]) -> bool:
    """Return whether a method has a loop over steps that calls what surely is the model."""
    loops = (one for one in ast.walk(method) if isinstance(one, ast.For) and not goes_over_data(one))
    return not is_other(method) and any(asks(one, asking) for one in loops)


def _is_meant(reference: Reference, cls: ast.ClassDef, method: ast.FunctionDef) -> bool:
    """Return whether a user names a method."""
    return bool(reference.loop) and is_named(f"{cls.name}.{method.name}", reference.loop)


def _turned(call: AuthorsCall) -> Iterator[AuthorsCall]:
    """Yield a call; and, where it is passed a length, with channels as the last axis of latents."""
    yield call
    if LENGTH in call.called and re.search(r"len\w*=|horizon=", call.called):
        turn = {LENGTH: FEATURES, FEATURES: LENGTH}
        plain, guided = (re.sub("|".join(map(re.escape, turn)), lambda one: turn[one[0]], text)
                         for text in (call.called, call.guided))  # fmt: skip
        yield replace(call, called=plain, guided=guided)


def _is_property(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("property", "classmethod")


def _kept_scales(methods: Mapping[str, ast.FunctionDef]) -> list[str]:
    nodes = (node for one in methods.values() for node in ast.walk(one) if isinstance(node, ast.Attribute))
    return [name for name in sorted({of_self(node) for node in nodes}) if name and GUIDED.search(name)]
