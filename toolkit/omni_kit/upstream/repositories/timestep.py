"""The argument of a forward that is the time of its latents: by its name, or by what the code computes with it."""

import ast
import re
from collections.abc import Callable, Iterator, Set

from omni_kit.pysource.classes import ClassRef
from omni_kit.pysource.signatures import passed, positional, required, signature
from omni_kit.pysource.source import SourceFile, dotted
from omni_kit.upstream.diffusers.signatures import Argument
from omni_kit.upstream.repositories.names import Defined, resolve
from omni_kit.upstream.repositories.reference import Reference

# What authors call the step at which a denoiser is called.
STEP = re.compile(
    r"^(t|ts|times?|time_?steps?|timesteps?_\w+|t_\w+|sigmas?|noise_?(level|label|scale)s?|log_?snr|gammas?|lambda_?"
    r"|(diffusion|denois\w+)_?(steps?|times?))$"
)

# Names that other things have, too.
_LIKELY = re.compile(
    r"^(steps?|tau|temb|time_(cond|emb)\w*|continuous_times?|c_noise|snr|noise_(var(iance)?|std)s?|alphas?_?(bar|cumprod))$"
)
# What is embedded as a time is, and is another thing: places, lengths and pitches.
_IS_OTHER = re.compile(r"pos|ids?$|coord|grid|freq|rope|ind(ex|ices)|mask|len|pitch|f0")
_EMBEDS = re.compile(r"time_?(step)?s?_?(emb|proj|mlp)|timestep|sinusoid|fourier|(noise|sigma)_?(level|emb)")
_WAVES = frozenset({"sin", "cos"})
_SAME = re.compile(
    r"^(long|float|double|half|int|type|to|view|reshape|expand|repeat|flatten|(un)?squeeze|contiguous|clone|detach"
    r"|log2?|sqrt|exp|div|mul|clamp)$"
)
_DEEPEST = 4
_NONE: frozenset[str] = frozenset()


def step_of(reference: Reference) -> tuple[str, str]:
    """Return the argument that is the time, and how it is known; two empty texts where there is none.

    A name that authors give it comes first. Without one it is an argument after the first one of which the code
    computes a logarithm, or sines and cosines, or that it passes to an embedding of times; else one that is a step by
    its name.
    """
    entries = [(name.rstrip("}").rpartition("{")[2], one) for name, one in reference.forward.items()]
    named = next((one for name, one in entries if STEP.match(name)), None)
    if named is not None:
        return named.name, _received(named)
    for name in [*reference.forward][1:]:
        if name.isidentifier() and not _IS_OTHER.search(name) and (how := _use(reference.cls, name)):
            return name, f"forward {how} '{name}' ({reference.forward[name].where})"
    likely = next((one for name, one in entries[1:] if _LIKELY.match(name)), None)
    return (likely.name, _received(likely)) if likely is not None else ("", "")


def _received(one: Argument) -> str:
    return f"forward receives the timestep as '{one.name}' ({one.where})"


def _use(cls: ClassRef, name: str) -> str:
    found = cls.method("forward")
    return _used(found[1], name, found[0].source, cls, _DEEPEST) if found is not None else ""


def _used(
    function: ast.FunctionDef, name: str, source: SourceFile, cls: ClassRef | None, deep: int, plain: Set[str] = _NONE
) -> str:
    """Return what a function does with an argument that is done with times alone; empty if it is nothing.

    Args:
        plain: other arguments, which the caller sets to fields and constants, such as a width.
    """
    own = _with_aliases(function, name, plain)
    nodes = [one for one in ast.walk(function) if isinstance(one, ast.Call)]
    for call in nodes:
        last = call.func.attr if isinstance(call.func, ast.Attribute) else dotted(call.func) or ""
        given = [*call.args, *(one.value for one in call.keywords)]
        operands = [*given, call.func.value] if isinstance(call.func, ast.Attribute) else given
        if not any(_is_of(one, own) for one in operands):
            continue
        if last in _WAVES:
            return "takes sines of"
        if last == "log":
            return "takes the logarithm of"
        if _EMBEDS.search(last.lower()) and given and _is_of(given[0], own):
            return f"passes to {last}"
        for inner, argument, place, owner, fixed in _called(call, own, function, source, cls) if deep else ():
            if not _IS_OTHER.search(argument) and (how := _used(inner, argument, place, owner, deep - 1, fixed)):
                return how
    return ""


def _with_aliases(function: ast.FunctionDef, name: str, plain: Set[str]) -> set[str]:
    """Return an argument and the variables that are computed from it, and from no other data that is required."""
    stores = [(target.id, one.value) for one in ast.walk(function) if isinstance(one, ast.Assign)
              for target in one.targets if isinstance(target, ast.Name)]  # fmt: skip
    others = _reached(
        {*required(signature(function))} - {name, "self", *plain},
        stores,
        lambda value, names: not names.isdisjoint(_read(value)),
    )
    return _reached(
        {name}, [(target, value) for target, value in stores if others.isdisjoint({target, *_read(value)})], _is_of
    )


def _reached(
    names: set[str], stores: list[tuple[str, ast.expr]], passes: Callable[[ast.expr, set[str]], bool]
) -> set[str]:
    """Return names, and the variables that get their value from one of them."""
    while more := {target for target, value in stores if passes(value, names)} - names:
        names = names | more
    return names


def _read(node: ast.expr) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}


def _is_of(node: ast.expr, own: set[str]) -> bool:
    """Return whether a value is a number's: of these names, cast, reshaped, scaled, or looked up in a table."""
    match node:
        case ast.Name(id=name):
            return name in own
        case ast.BinOp(left=left, right=right):
            return _is_of(left, own) or _is_of(right, own)
        case ast.UnaryOp(operand=inner) | ast.Starred(value=inner):
            return _is_of(inner, own)
        case ast.Subscript(value=inner, slice=at):
            return _is_of(inner, own) or _is_of(at, own)
        case ast.Call(func=ast.Attribute(value=inner, attr=attr), args=args) if _SAME.match(attr):
            return _is_of(inner, own) or any(_is_of(one, own) for one in args[:1])
    return False


def _called(
    call: ast.Call, own: set[str], function: ast.FunctionDef, source: SourceFile, cls: ClassRef | None
) -> Iterator[tuple[ast.FunctionDef, str, SourceFile, ClassRef | None, Set[str]]]:
    """Yield the authors' functions that a call may run, each with the argument that gets the time, its home, and the
    arguments that get no variable.
    """
    for inner, place, owner in _functions(call.func, function, source, cls):
        taken = positional(signature(inner))[1 if owner is not None else 0 :]
        given = passed(call, taken)
        fixed = {name for name, value in given.items() if not _read(value) - {"self"}}
        yield from ((inner, name, place, owner, fixed) for name, value in given.items() if _is_of(value, own))


def _functions(
    called: ast.expr, function: ast.FunctionDef, source: SourceFile, cls: ClassRef | None
) -> Iterator[tuple[ast.FunctionDef, SourceFile, ClassRef | None]]:
    while isinstance(called, ast.Subscript):  # one of a list of modules
        called = called.value
    name = dotted(called) or ""
    owner, _, attribute = name.rpartition(".")
    if owner == "self" and cls is not None:
        if (found := cls.method(attribute)) is not None:
            yield found[1], found[0].source, cls
            return
        for made in _classes_in(cls, attribute):
            if (forward := made.method("forward")) is not None:
                yield forward[1], forward[0].source, made
    elif name:
        meant = resolve(source, name)
        if isinstance(meant, Defined) and isinstance(meant.node, ast.FunctionDef):
            yield meant.node, meant.source, None


def _classes_in(cls: ClassRef, attribute: str) -> Iterator[ClassRef]:
    """Yield the authors' classes of which the constructor makes an attribute: alone, or in a sequence."""
    init = cls.method("__init__")
    stores = [one for one in ast.walk(init[1]) if isinstance(one, ast.Assign)] if init is not None else []
    for one in (one for one in stores if f"self.{attribute}" in map(dotted, one.targets)):
        for call in (node for node in ast.walk(one.value) if isinstance(node, ast.Call)):
            name = dotted(call.func)
            meant = resolve(init[0].source, name) if name and init is not None else None
            if isinstance(meant, Defined) and isinstance(meant.node, ast.ClassDef):
                yield ClassRef(meant.source, meant.node)
