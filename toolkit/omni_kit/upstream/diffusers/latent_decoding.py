"""Check whether a pipeline does with its last latents what every pipeline does, unpack, scale and decode, or more."""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from omni_kit.pysource.source import dotted
from omni_kit.upstream.diffusers.defaults import Defaults
from omni_kit.upstream.diffusers.denoising import Denoising
from omni_kit.upstream.diffusers.looping import loop_of, shown

_CASTS = frozenset({"to", "float", "contiguous", "clone"})
_UNPACK, _PROCESSED = "_unpack", ("postprocess", "postprocess_video", "resize_and_crop_tensor")
_LATENTS, _TOLD = "latents", ("device", "dtype", "shape", "ndim")


@dataclass
class _End:
    """State of reading the statements after the loop."""

    denoising: Denoising
    defaults: Defaults
    held: set[str] = field(default_factory=lambda: {_LATENTS})
    odd: list[str] = field(default_factory=list)

    def block(self, body: Sequence[ast.stmt]) -> None:
        for node in body:
            if isinstance(node, ast.If):
                told = self.defaults.told(node.test)
                self.block(node.body if told is not False else [])
                self.block(node.orelse if told is not True else [])
            elif isinstance(node, (ast.With, ast.Try, ast.For)):
                self.block(node.body)
            elif isinstance(node, ast.Assign) and (self._holds(node.value) or self._replaces(node)):
                if not (self._holds(node.value) and self._usual(node.value)):
                    where = self.denoising.pipeline.cls.source.where(node)
                    self.odd.append(f"ends with {shown(node.value)} ({where})")
                self.held |= {
                    one.id for target in node.targets for one in ast.walk(target) if isinstance(one, ast.Name)
                }

    @staticmethod
    def _replaces(node: ast.Assign) -> bool:
        """Return whether latents become something else, such as the scheduler's own estimate of the last picture."""
        return any(isinstance(target, ast.Name) and target.id == _LATENTS for target in node.targets)

    def _holds(self, value: ast.expr) -> bool:
        """Return whether latents are in a value, and not only what they are made of."""
        told = {id(node.value) for node in ast.walk(value) if isinstance(node, ast.Attribute) and node.attr in _TOLD}
        names = (node for node in ast.walk(value) if isinstance(node, ast.Name) and node.id in self.held)
        return any(id(node) not in told for node in names)

    def _usual(self, value: ast.expr) -> bool:
        match value:
            case ast.Name():
                return value.id in self.held
            case ast.BinOp():
                return bool(self.denoising.scale.convention)
            case ast.Subscript(slice=ast.Constant(value=0)) | ast.Attribute():
                return self._usual(value.value)
            case ast.Subscript(slice=ast.Tuple()):  # the first frame of a picture
                return ".decode(" in ast.unparse(value)
            case ast.Call():
                return self._called(value)
        return False

    def _called(self, call: ast.Call) -> bool:
        name = dotted(call.func) or ""
        last = name.rpartition(".")[2] or getattr(call.func, "attr", "")
        if last in _CASTS and isinstance(call.func, ast.Attribute):
            return self._usual(call.func.value)
        if name == f"self.{self.denoising.autoencoder}.decode":
            return bool(call.args) and self._usual(call.args[0])
        if name.startswith(f"self.{_UNPACK}") or last in _PROCESSED:
            return True
        return name == f"self.{last}" and self._only_scales(last)

    def _only_scales(self, name: str) -> bool:
        """Return whether a method computes with latents and does not move them about."""
        found = self.denoising.pipeline.cls.method(name)
        values = (
            [node.value for node in ast.walk(found[1]) if isinstance(node, ast.Assign)] if found is not None else []
        )
        known = (isinstance(value, ast.BinOp) or _casts(value) for value in values)
        return bool(values) and bool(self.denoising.scale.convention) and all(known)


def unusual_ends(denoising: Denoising, scheduler: str) -> list[str]:
    """Return the unusual statements after a pipeline's loop, each in one line with its place.

    Args:
        scheduler: the class that steps.
    """
    found, loop = denoising.pipeline.cls.method("__call__"), loop_of(denoising)
    if found is None or loop is None:
        return []
    end = _End(denoising, Defaults(denoising.pipeline, scheduler))
    end.block(list(_after(found[1].body, loop)))
    return end.odd


def _after(body: Sequence[ast.stmt], loop: ast.For) -> Iterator[ast.stmt]:
    yield from (node for node in body if node.lineno > (loop.end_lineno or loop.lineno))


def _casts(value: ast.expr) -> bool:
    return (
        isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in {*_CASTS, "view"}
    )
