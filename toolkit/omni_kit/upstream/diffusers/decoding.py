"""Processing of a pipeline between its last step and its autoencoder, and of the autoencoder's output."""

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from omni_kit.pysource.classes import ClassRef
from omni_kit.pysource.signatures import passed
from omni_kit.pysource.source import dotted
from omni_kit.upstream.diffusers.pipelines import Pipeline

_UNPACK = "_unpack"
_SWITCH = "return_dict"


@dataclass(frozen=True)
class Decoding:
    """The way of a pipeline's latents to its pictures.

    Attributes:
        unpack: the method that turns tokens into a grid; empty if latents are a grid already.
        arguments: of that method but for the latents: name -> expression in `__call__`.
        static: the method needs no pipeline.
        axes: of the tensors of mean and deviation, as the pipeline shapes them; 0 where it does not.
        first_frame: a picture is the first frame of what the autoencoder answers.
        decode_arguments: texts of the arguments of `decode` other than latents.
        where: file:line of the call of the autoencoder; empty if it is not seen.
    """

    unpack: str = ""
    arguments: Mapping[str, str] = field(default_factory=dict)
    static: bool = True
    axes: int = 0
    first_frame: bool = False
    decode_arguments: Sequence[str] = ()
    where: str = ""


def decoding_of(pipeline: Pipeline, autoencoder: str) -> Decoding:
    """Read `__call__` of a pipeline, and its class for how mean and deviation are shaped."""
    found = pipeline.cls.method("__call__")
    if found is None:
        return Decoding()
    home, function = found
    call = next(_calls(function, f"self.{autoencoder}.decode"), None)
    unpacked = next(_unpacking(function), None)
    unpack = dotted(unpacked.func).removeprefix("self.") if unpacked is not None and dotted(unpacked.func) else ""  # type: ignore[union-attr]
    method = pipeline.cls.method(unpack) if unpack else None
    return Decoding(
        unpack,
        _named_arguments(method[1], unpacked) if method is not None and unpacked is not None else {},
        method is not None and any(dotted(one) == "staticmethod" for one in method[1].decorator_list),
        _axes(pipeline.cls),
        any(_takes_first_frame(node) for node in ast.walk(function)),
        list(_besides(call)) if call is not None else (),
        home.source.where(call) if call is not None else "",
    )


def decodes_in_tiles_alone(autoencoder: ClassRef) -> bool:
    """Return whether an autoencoder raises unless its tiling is on: whoever calls it has to turn that on."""
    found = autoencoder.method("_decode")
    last = found[1].body[-1] if found is not None else None
    raised = last.exc.func if isinstance(last, ast.Raise) and isinstance(last.exc, ast.Call) else None
    return raised is not None and dotted(raised) == NotImplementedError.__name__


def _calls(function: ast.AST, name: str) -> Iterator[ast.Call]:
    calls = (node for node in ast.walk(function) if isinstance(node, ast.Call) and dotted(node.func) == name)
    yield from sorted(calls, key=lambda call: call.lineno)


def _unpacking(function: ast.FunctionDef) -> Iterator[ast.Call]:
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and (dotted(node.func) or "").startswith(f"self.{_UNPACK}"):
            yield node


def _named_arguments(method: ast.FunctionDef, call: ast.Call) -> dict[str, str]:
    """Return the arguments of a method's call by name, without the first one."""
    names = [one.arg for one in method.args.args if one.arg != "self"]
    given = passed(call, names)
    return {name: ast.unparse(value) for name, value in list(given.items())[1:]}


def _axes(cls: ClassRef) -> int:
    """Return the number of axes: the arguments of `.view(...)` on the autoencoder's mean."""
    for entry in cls.mro:
        if not isinstance(entry, ClassRef) or entry.source.path != cls.source.path:
            continue
        for node in ast.walk(entry.node):
            shaped = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "view"
            if shaped and "latents_mean" in ast.unparse(node.func.value):  # type: ignore[attr-defined]
                return len(node.args)  # type: ignore[attr-defined]
    return 0


def _takes_first_frame(node: ast.AST) -> bool:
    """`….decode(…)[0][:, :, 0]`."""
    if not (isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Tuple) and len(node.slice.elts) == 3):
        return False
    last = node.slice.elts[2]
    return ".decode(" in ast.unparse(node.value) and isinstance(last, ast.Constant) and last.value == 0


def _besides(call: ast.Call) -> Iterator[str]:
    yield from (ast.unparse(one) for one in call.args[1:])
    yield from (f"{one.arg}={ast.unparse(one.value)}" for one in call.keywords if one.arg != _SWITCH)
