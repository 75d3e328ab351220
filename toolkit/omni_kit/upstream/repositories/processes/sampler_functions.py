"""Calls of samplers that are functions of the authors'."""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from omni_kit.pysource.source import SourceFile
from omni_kit.upstream.repositories.names import Defined, resolve
from omni_kit.upstream.repositories.processes.call_arguments import (
    DENOISER,
    MADE_WITH,
    MODEL,
    STEPS,
    TRAINED,
    arguments_told,
    is_counted,
)
from omni_kit.upstream.repositories.processes.class_members import every_method, plain_arguments
from omni_kit.upstream.repositories.processes.constructions import construction
from omni_kit.upstream.repositories.processes.sampler_call import AuthorsCall, call_of
from omni_kit.upstream.repositories.processes.sampler_entries import cleans, flags_passed
from omni_kit.upstream.repositories.processes.settings_arguments import settings_arguments
from omni_kit.upstream.repositories.processes.wrappers import Wrapper
from omni_kit.upstream.repositories.reference import Reference

_OF_AUTOENCODERS = frozenset({"decode", "encode", "to", "eval"})
"""Methods of objects for which a stand-in does."""
_GIVEN_BETAS, _ALONG = re.compile(r"^(b|betas?)$"), re.compile(r"^(seq|time_?steps|time_?seq)$")


@dataclass
class _Parts:
    """Arguments of a function that are objects, settings or betas: their expressions, and what is known of them."""

    plain: dict[str, str] = field(default_factory=dict)
    guided: dict[str, str] = field(default_factory=dict)
    imports: list[tuple[str, str]] = field(default_factory=list)
    trained: int = 0
    assumed: tuple[str, ...] = ()
    guides: tuple[str, ...] = ()
    adapts: tuple[str, ...] = ()

    def add(self, name: str, plain: str, guided: str = "") -> None:
        """Add the expression for an argument."""
        self.plain[name], self.guided[name] = plain, guided or plain


def of_function(
    reference: Reference, source: SourceFile, function: ast.FunctionDef, sources: Sequence[SourceFile],
    wrappers: Sequence[Wrapper],
) -> Iterator[tuple[int, AuthorsCall]]:  # fmt: skip
    """Yield the calls of a function, with the model itself or with each of the objects that precondition it.

    Args:
        sources: the authors' files, the nearest to the model first.
    """
    own = plain_arguments(function)
    if not any(MODEL.match(one.arg) for one, _ in own):
        return
    kinds = dict(_objects(source, function))
    preconditioned = cleans(function) and not kinds
    for whole in (False, True):
        parts = _parts(reference, source, function, sources, kinds, whole=whole)
        if parts is None:
            continue
        pairs = zip(*(arguments_told(own, parts=each) for each in (parts.plain, parts.guided)), strict=True)
        for told, guided in pairs:
            if parts.trained and any(is_counted(text) for name, text in told.said.items() if name not in parts.plain):
                continue
            texts = [f"{function.name}({text})" for text in (told.text, guided.guided)]
            call = call_of(source, function, function.name, texts, told)
            call = replace(
                call, parts=tuple(parts.imports), trained=parts.trained, assumed=parts.assumed,
                guides=(*call.guides, *parts.guides), adapts=(*call.adapts, *parts.adapts),
            )  # fmt: skip
            yield from ((told.cost, one) for one in (_around(call, wrappers) if preconditioned else [call]))


def _around(call: AuthorsCall, wrappers: Sequence[Wrapper]) -> Iterator[AuthorsCall]:
    """Yield a call with each of the objects that precondition the model."""
    names = tuple(one.name for one in wrappers)
    for one in wrappers:
        plain, guided = (text.replace(f"={DENOISER}", f"={one.around(DENOISER)}") for text in
                         (call.called, call.guided))  # fmt: skip
        yield replace(
            call, called=plain, guided=guided, wrapper=one.name, wrappers=names, parts=((one.module, one.name),)
        )


def _objects(source: SourceFile, function: ast.FunctionDef) -> Iterator[tuple[str, Defined]]:
    """Yield the arguments that are an object of a class in the same file, or of one that it imports, as its methods
    that are called say.
    """
    named = (*source.classes, *source.imports)
    for one, default in plain_arguments(function):
        nodes = [node.func for node in ast.walk(function) if isinstance(node, ast.Call)]
        called = {node.attr for node in nodes if isinstance(node, ast.Attribute) and ast.unparse(node.value) == one.arg}
        if default is not None or called <= _OF_AUTOENCODERS or MODEL.match(one.arg):
            continue
        meant = [found for name in named if isinstance(found := resolve(source, name), Defined)]
        kinds = {each.name: each for each in meant if isinstance(each.node, ast.ClassDef)
                 and called <= every_method(each.source, each.node).keys()}  # fmt: skip
        if len(kinds) == 1:
            yield one.arg, next(iter(kinds.values()))


def _parts(
    reference: Reference, source: SourceFile, function: ast.FunctionDef, sources: Sequence[SourceFile],
    kinds: Mapping[str, Defined], *, whole: bool,
) -> _Parts | None:  # fmt: skip
    """Return what a function is passed for objects, settings and betas; None if it goes another number of steps.

    Args:
        kinds: the classes of objects, by argument.
        whole: it goes all steps of training.
    """
    own, parts = plain_arguments(function), _Parts()
    betas = next((one.arg for one, _ in own if _GIVEN_BETAS.match(one.arg)), "")
    along = next((one.arg for one, _ in own if betas and _ALONG.match(one.arg)), "")
    if along:
        parts.add(betas, f"torch.linspace(0.0001, 0.02, {STEPS})")
        parts.add(along, f"range({STEPS})")
        parts.trained, parts.assumed = TRAINED, (f"{betas} from 0.0001 to 0.02",)
    for name, kind in kinds.items():
        assert isinstance(kind.node, ast.ClassDef)
        ways = construction(reference, kind.source, kind.node, sources)
        told = next((one for one in ways.told if bool(one.trained) == whole), None)
        given = f", {told.text}" if told is not None and told.text and MADE_WITH not in told.text else ""
        parts.add(name, f"around({kind.name}, (), None{given})")
        parts.imports += [(kind.source.module, kind.name), *ways.imports]
        parts.trained = parts.trained or (told.trained if told is not None and given else 0)
        parts.assumed += ways.assumed if given else ()
    for name, text in flags_passed((source, *sources), function).items():
        parts.add(name, text)
    for one in settings_arguments(reference.repository, (source, *sources), function):
        told = one.told(whole=whole) if one.name not in parts.plain and not MODEL.match(one.name) else None
        if told is not None:
            parts.add(one.name, one.expression(told.said), one.expression(told.scaled))
            parts.trained = told.trained or parts.trained  # that of a config
            parts.guides, parts.adapts = (*parts.guides, *told.guides), (*parts.adapts, *told.adapts)
    return parts if bool(parts.trained) == whole else None
