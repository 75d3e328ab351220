"""Latents that the authors make into tokens before they sample: which function does, and what else it makes."""

import ast
import builtins
import copy
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isqrt

from omni_kit.pysource.eval import Unsupported
from omni_kit.pysource.reads import literal
from omni_kit.pysource.signatures import defaults, passed, required, signature
from omni_kit.upstream.repositories.names import Defined
from omni_kit.upstream.repositories.reference import Reference
from omni_kit.upstream.repositories.sampler_step.flow import binds, flat, needed, reads
from omni_kit.upstream.repositories.sampler_step.loop_statements import calls_in
from omni_kit.upstream.repositories.sampling import NOISE, TEXT, Sampling
from omni_kit.upstream.repositories.sources import sources_of

MADE = "packed"
"""The variable that holds what the function returns."""
_REARRANGE, _EINOPS, _TORCH = "rearrange", "einops", "torch"
_PICTURE = re.compile(r"^(\w+) (\w+) \((\w+) (\w+)\) \((\w+) (\w+)\) -> (\w+) \((\w+) (\w+)\) (\([\w ]+\))$")
_ROWS = re.compile(r"\.shape\[0\] == 1\b|\.size\(0\) == 1\b")
_MOVES = frozenset({"to", "cuda", "type", "float", "contiguous"})


@dataclass(frozen=True)
class Packing:
    """A function that makes tokens of latents, with further arguments of the model.

    Attributes:
        made: the function.
        latents: its argument for latents [pictures, channels, rows, columns].
        text: its variable for embedded prompts, which it reads no more of than their shape; empty if it does not.
        pattern: from latents to tokens, as einops has it: "b c (h ph) (w pw) -> b (h w) (c ph pw)".
        side: how many rows, and how many columns, a token has.
        body: the statements that make the tokens and what else is returned of latents and `text`.
        tokens: the expression that is returned for tokens.
        returned: what else the model is passed -> the expression that is returned for it.
        called: the call with `noise`, `text` and the model's other conditions.
        parts: of what it returns, the expression in `MADE` for tokens, and for each of `returned`.
    """

    made: Defined
    latents: str
    text: str
    pattern: str
    side: int
    body: Sequence[ast.stmt]
    tokens: ast.expr
    returned: Mapping[str, ast.expr]
    called: str
    parts: Mapping[str, str]

    @property
    def unpacked(self) -> str:
        """The pattern from tokens to latents."""
        left, right = self.pattern.split(" -> ")
        return f"{right} -> {left}"

    @property
    def sizes(self) -> tuple[Mapping[str, int], tuple[str, str]]:
        """Return the names in the pattern that have a fixed size, and those of the counts of rows and of columns."""
        found = _PICTURE.match(self.pattern)
        assert found is not None
        counts = (found[8], found[9])
        return {name: self.side for name in found.groups()[2:6] if name not in counts}, counts


def packing_of(reference: Reference, sampling: Sampling, latents: str, conditions: Collection[str], text: str
               ) -> Packing | None:  # fmt: skip
    """Return the function that makes the tokens that a loop moves; None if no function alone does.

    Args:
        latents: the argument of the model that holds the tokens.
        conditions: its other arguments, which the loop is given.
        text: its argument for embedded prompts; empty without one.
    """
    wanted = _passed(sampling, [*dict.fromkeys(reference.forward)])
    for source in sources_of(reference):
        for node in source.tree.body:
            if isinstance(node, ast.FunctionDef) and (found := _packs(node)) is not None:
                reader = _Reader(Defined(source, node.name, node), node, *found, wanted, latents, conditions, text)
                try:
                    return reader.packing()
                except Unsupported:
                    continue
    return None


def _passed(sampling: Sampling, order: Sequence[str]) -> Mapping[str, str]:
    """Return which argument of the model receives each variable of a loop, by the names of its function."""
    alike = {node.targets[0].id: node.value.id for node in ast.walk(sampling.made) if isinstance(node, ast.Assign)
             and isinstance(node.targets[0], ast.Name) and isinstance(node.value, ast.Name)}  # fmt: skip
    found: dict[str, str] = {}
    for call in calls_in(sampling.loop):
        told = passed(call, order) if {one.arg for one in call.keywords} <= {*order, None} else {}
        for argument, value in told.items():
            if isinstance(value, ast.Name):
                found.setdefault(alike.get(value.id, value.id), argument)
    return found


def _packs(function: ast.FunctionDef) -> tuple[str, str, int] | None:
    """Return the argument of which a function makes tokens, the pattern and a token's side; None if it makes none."""
    given = {one.arg for one in function.args.args}
    for node in function.body:
        match node:
            case ast.Assign(targets=[ast.Name()], value=ast.Call(args=[ast.Name(id=name), pattern]) as call):
                text = literal(pattern)
                if name not in given or not ast.unparse(call.func).endswith(_REARRANGE) or not isinstance(text, str):
                    continue
                sizes = {literal(one.value) for one in call.keywords}
                side = sizes.pop() if len(sizes) == 1 else None
                if (found := _PICTURE.match(text)) is not None and type(side) is int:
                    named = {one.arg for one in call.keywords}
                    if [one in named for one in found.groups()[2:6]] in ([False, True] * 2, [True, False] * 2):
                        return name, text, side
    return None


@dataclass
class _Reader:
    """One function, while it is read."""

    made: Defined
    function: ast.FunctionDef
    latents: str
    pattern: str
    side: int
    wanted: Mapping[str, str]
    argument: str
    conditions: Collection[str]
    prompt: str

    def packing(self) -> Packing:
        """Return what the function makes.

        Raises:
            Unsupported: it makes it of more than latents and prompts.
        """
        body = [*_settled(self.function.body, self._nothing)]
        if not body or not isinstance(body[-1], ast.Return) or body[-1].value is None:
            raise Unsupported("returns nothing at its end")
        entries = {name: (place, value) for name, place, value in _entries(body[-1].value, MADE)}
        arguments = {self._argument(name, value): (place, value) for name, (place, value) in entries.items()}
        if self.argument not in arguments:
            raise Unsupported("returns no tokens")
        statements = [*flat(body[:-1], set())]
        encoded = dict(self._encoded(statements))
        prompts = {
            name: _variable(value) for name, (_, value) in arguments.items() if _variable(value) in {*encoded.values()}
        }
        kept = [one for one in statements if not binds(one) & {*encoded.values()} and not self._repeats(one)]
        ids = {name: value for name, (_, value) in arguments.items() if name in self.conditions and name not in prompts}
        tokens = arguments[self.argument][1]
        wanted = reads(tokens).union(*map(reads, ids.values()))
        body, live = needed(kept, wanted)
        functions = {name for name, one in self.made.source.imports.items() if one.module.startswith(_EINOPS)}
        texts = sorted(live - {self.latents, _TORCH, _EINOPS} - functions - {*dir(builtins)})
        if len(texts) > 1 or (texts and prompts.get(self.prompt) != texts[0]) or not ids:
            raise Unsupported(f"makes tokens of {', '.join(texts) or 'no position ids'}")
        parts = {self.argument: arguments[self.argument][0], **{name: arguments[name][0] for name in ids}}
        return Packing(
            self.made, self.latents, texts[0] if texts else "", self.pattern, self.side, body, tokens, ids,
            self._called(encoded, prompts), parts,
        )  # fmt: skip

    @property
    def _given(self) -> set[str]:
        return {one.arg for one in ast.walk(self.function.args) if isinstance(one, ast.arg)}

    @property
    def _nothing(self) -> set[str]:
        """The arguments that are None unless a caller passes them."""
        return {name for name, one in defaults(signature(self.function)).items() if literal(one) is None}

    def _argument(self, name: str, value: ast.expr) -> str:
        return self.argument if _variable(value) == self.latents else self.wanted.get(name, name)

    def _encoded(self, body: Sequence[ast.stmt]) -> Iterator[tuple[str, str]]:
        """Yield the arguments that embed prompts, each with the variable for what it returns."""
        for node in body:
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(func=ast.Name(id=encoder))):
                    if encoder in self._given:
                        yield encoder, name

    def _repeats(self, node: ast.stmt) -> bool:
        """Return whether a statement only makes a row for every prompt, which there is here."""
        if not isinstance(node, ast.If):
            return False
        test = ast.unparse(node.test)
        return bool(_ROWS.search(test)) or bool(reads(node.test) & self._given - {self.latents})

    def _called(self, encoded: Mapping[str, str], prompts: Mapping[str, str]) -> str:
        """Return the call with noise, and with encoders that return what there is."""
        known = {self.latents: NOISE}
        for encoder, variable in encoded.items():
            argument = next((name for name, one in prompts.items() if one == variable), "")
            if not argument:
                raise Unsupported(f"returns nothing of {encoder}")
            known[encoder] = f"lambda *_: {TEXT if argument == self.prompt else argument}"
        left = [name for name in required(signature(self.function)) if name not in known]
        if len(left) > 1:
            raise Unsupported(f"takes {', '.join(left)}")
        known |= dict.fromkeys(left, f'[""] * len({NOISE})')
        return f"{self.made.name}({', '.join(f'{name}={value}' for name, value in known.items())})"


def _variable(value: ast.expr) -> str:
    """Return the variable of an expression that only moves it to another device or type; empty for others."""
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in _MOVES:
        value = value.func.value
    return value.id if isinstance(value, ast.Name) else ""


def _entries(value: ast.expr, place: str) -> Iterator[tuple[str, str, ast.expr]]:
    """Yield what a function returns in a dictionary or in a tuple: its name, its place and its value."""
    if isinstance(value, ast.Dict):
        for key, one in zip(value.keys, value.values, strict=True):
            if isinstance(name := literal(key), str):
                yield name, f"{place}[{name!r}]", one
    elif isinstance(value, ast.Tuple):
        for number, one in enumerate(value.elts):
            yield from _entries(one, f"{place}[{number}]")
    elif name := _variable(value):
        yield name, place, value


def _settled(body: Sequence[ast.stmt], nothing: Collection[str]) -> Iterator[ast.stmt]:
    """Yield statements without the branches for arguments that are None."""
    for node in body:
        match node:
            case ast.If(test=ast.Compare(left=ast.Name(id=name), ops=[ast.Is() | ast.IsNot() as how],
                                         comparators=[ast.Constant(value=None)])) if name in nothing:  # fmt: skip
                yield from _settled(node.body if isinstance(how, ast.Is) else node.orelse, nothing)
            case _:
                yield copy.deepcopy(node)


def latents_shape(tokens: Sequence[int], channels: int) -> list[int]:
    """Return the shape of latents [samples, channels, rows, columns] for tokens [samples, count, width].

    Rows and columns of tokens are as near to each other as their count allows.
    """
    samples, count, width = tokens
    side = isqrt(width // channels)
    rows = next(one for one in range(isqrt(count), 0, -1) if count % one == 0)
    return [samples, channels, side * rows, side * (count // rows)]
