"""The factor by which authors divide latents before their autoencoder, which is one of diffusers, decodes them."""

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from omni_kit.pysource.eval import UNKNOWN
from omni_kit.pysource.nodes import calls
from omni_kit.pysource.reads import literal
from omni_kit.pysource.source import SourceFile, dotted
from omni_kit.upstream.repositories.reference import Reference
from omni_kit.upstream.repositories.sources import distance, source_at, sources_of

USUAL = 0.18215
"""Default of `scaling_factor` of diffusers' AutoencoderKL, that of the autoencoders of Stable Diffusion 1 and 2."""
_KIND = "AutoencoderKL"
_AUTOENCODER = re.compile(r"(^|[._])(vae|ae|autoencoder|first_stage_model)\b")
_DECODES = re.compile(r"vae|auto_?encoder|first_stage|vq_?(gan|model)|vocoder|codec", re.IGNORECASE)
_SETTING, _SHIFT = re.compile(r"(^|\.)scaling_factor$"), re.compile(r"(^|\.)shift_factor$")


@dataclass(frozen=True)
class Decoding:
    """The way in which authors decode latents.

    Attributes:
        where: file:line.
        factor: by which they divide latents; None for that of the autoencoder's own config.
    """

    where: str
    factor: float | None


def decoding(reference: Reference, where: str) -> Decoding | None:
    """Return how authors decode, in the nearest of their files that does with diffusers' AutoencoderKL.

    None is returned without such a file, and where it decodes in several ways, or in one that cannot be analysed.

    Args:
        where: the sampler, as file:line.
    """
    own = source_at(reference, where) if where else None
    for source in sorted(sources_of(reference), key=lambda one: (one is not own, distance(reference, one.path))):
        if _KIND in source.text and (found := [*_decodings(source)]):
            ways = {factor for _, factor in found}
            factor = ways.pop()
            return None if ways or factor is UNKNOWN else Decoding(source.where(found[0][0]), factor)
    return None


def decodes(reference: Reference) -> bool:
    """Return whether any file of the authors speaks of an autoencoder or a vocoder."""
    return any(_DECODES.search(source.text) for source in sources_of(reference))


def _decodings(source: SourceFile) -> Iterator[tuple[ast.Call, Any]]:
    """Yield the calls that decode, and the factors of their latents: UNKNOWN for one that cannot be analysed."""
    if not any(one.name == _KIND and one.module.startswith("diffusers") for one in source.imports.values()):
        return
    scopes = [one for one in ast.walk(source.tree) if isinstance(one, ast.FunctionDef)]
    for call in calls(source.tree):
        if isinstance(call.func, ast.Attribute) and call.func.attr == "decode" and call.args:
            around = [one for one in scopes if any(node is call for node in ast.walk(one))]
            if _AUTOENCODER.search(ast.unparse(call.func.value)):
                yield call, _divided(call.args[0], [*around[-1:], source.tree])


def _divided(value: ast.expr, scopes: Sequence[ast.AST], deep: int = 3) -> Any:
    """Return the factor that a value is divided by; UNKNOWN if nothing says it, or it is changed in another way."""
    match value:
        case ast.Call(func=ast.Attribute(value=inner)) | ast.Subscript(value=inner):
            return _divided(inner, scopes, deep)
        case ast.BinOp(op=ast.Div(), left=ast.Name() | ast.Subscript() | ast.Call(), right=factor):
            return _factor(factor, scopes)
        case ast.BinOp(op=ast.Mult(), left=ast.BinOp(op=ast.Div(), left=ast.Constant(value=1), right=factor)):
            return _factor(factor, scopes)
        case ast.BinOp(op=ast.Add(), left=ast.BinOp() as scaled, right=shift) if _SHIFT.search(dotted(shift) or ""):
            return found if (found := _divided(scaled, scopes, deep)) is None else UNKNOWN
        case ast.Name(id=name) if deep:
            values = [one for one in _assigned(scopes[0], name) if one is not value]
            ways = {_divided(one, scopes, deep - 1) for one in values if isinstance(one, ast.BinOp)}
            return ways.pop() if len(ways) == 1 else UNKNOWN
    return UNKNOWN


def _factor(value: ast.expr, scopes: Sequence[ast.AST]) -> Any:
    """Return a number that is written there or assigned to a name; None for the setting of an autoencoder."""
    if isinstance(value, ast.Attribute) and _SETTING.search(dotted(value) or ""):
        return None
    named = [value]
    if isinstance(value, ast.Name):
        named = next((found for at in scopes if (found := _assigned(at, value.id))), [])
    numbers = [float(number) for one in named if isinstance(number := literal(one), int | float)]
    return numbers[0] if len(numbers) == len(named) == 1 else UNKNOWN


def _assigned(scope: ast.AST, name: str) -> list[ast.expr]:
    """Return the values that a name gets in a scope, those of the scopes within it among them."""
    return [one.value for one in ast.walk(scope) if isinstance(one, ast.Assign)
            and any(isinstance(target, ast.Name) and target.id == name for target in one.targets)]  # fmt: skip
