"""Methods of a pipeline that make tokens of latents, and latents of tokens, as the authors do."""

import ast
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import libcst as cst

from omni_kit.targets.diffusers.porting.rearranging import WithoutEinops
from omni_kit.upstream.repositories.packing import MADE, Packing
from omni_kit.upstream.repositories.recorded import NEGATIVE
from omni_kit.upstream.repositories.sampler_step.flow import Substituted
from omni_kit.upstream.repositories.sampling import AGAINST, NOISE, TEXT

_EINOPS = ("rearrange", "repeat", "reduce")
_WHOLE, _LOOP, _OTHER = "sample", "denoised", "other"


@dataclass(frozen=True)
class Packed:
    """Methods of a pipeline that makes tokens, and the transformer's other arguments.

    Attributes:
        side: how many rows, and how many columns, of latents a token has.
        arguments: what `pack_latents` is given, of the pipeline's variables.
        ids: further arguments of the transformer: by the authors' name, and by the one here.
        pack, unpack: the bodies of both methods.
        takes: the arguments of `pack_latents`.
        twice: the transformer is passed others with the negative prompt.
    """

    side: int
    arguments: str
    ids: Mapping[str, str]
    pack: str
    unpack: str
    takes: str
    twice: bool


def packed(packing: Packing, names: Mapping[str, str], conditions: Mapping[str, bool]) -> Packed | None:
    """Return the methods of a packing; None if something in it cannot be written with torch alone.

    Args:
        names: what the authors call an argument of forward -> what it is called here.
        conditions: further arguments that the loop passes -> whether there is another one to guide against.
    """
    returned = ", ".join(ast.unparse(one) for one in (packing.tokens, *packing.returned.values()))
    pack = _without_einops("\n".join([*map(ast.unparse, packing.body), f"return {returned}"]))
    unpack = _without_einops(f"return {_unpacked(packing, 'latents', ('height', 'width'))}")
    if pack is None or unpack is None:
        return None
    ids = {name: names.get(name, name) for name in packing.returned}
    takes, given = (", ".join(filter(None, one)) for one in (
        (packing.latents, packing.text), ("latents", "prompt_embeds" if packing.text else ""),
    ))  # fmt: skip
    return Packed(packing.side, given, ids, pack, unpack, takes, any(conditions[name] for name in ids))


def _unpacked(packing: Packing, tokens: str, size: tuple[str, str]) -> str:
    """Return the expression for the latents of tokens; `size` is that of latents, rows and columns."""
    sizes, counts = packing.sizes
    sided = {name: f"{one} // {packing.side}" for name, one in zip(counts, size, strict=True)}
    return f"rearrange({tokens}, {packing.unpacked!r}, {_keywords({**sided, **sizes})})"


def _without_einops(text: str) -> str | None:
    names = {f"{module}{name}": name for module in ("", "einops.") for name in _EINOPS}
    visitor = WithoutEinops(names)
    written = cst.parse_module(text).visit(visitor)
    return None if visitor.left else textwrap.indent(written.code, " " * 8).strip()


def script_of(script: str, packing: Packing) -> str:
    """Return the text of a file that samples with latents, of one that samples with tokens.

    Its `sample` takes tokens, and what else the function returns.
    """
    tree = ast.parse(script)
    loop = next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == _WHOLE)
    loop.name = _LOOP
    every = [one.arg for one in loop.args.args]
    usual = every[len(every) - len(loop.args.defaults) :]
    given = [name for name in every if name.removeprefix(NEGATIVE) not in packing.returned]
    against = [name for name in packing.returned if NEGATIVE + name in every]
    tokens = next(place for name, place in packing.parts.items() if name not in packing.returned)
    passed = dict(zip(given, given, strict=True)) | {NOISE: tokens}
    passed |= {name: packing.parts[name] for name in packing.returned}
    passed |= {NEGATIVE + name: packing.parts[name].replace(MADE, _OTHER, 1) for name in against}
    whole = f"""def {_WHOLE}({", ".join(f"{name}=None" if name in usual else name for name in given)}):
    from einops import rearrange
    from {packing.made.source.module} import {packing.made.name}
    {MADE} = {packing.called}
    {f"{_OTHER} = {_negative(packing.called, every)}" if against else ""}
    latents = {_LOOP}({_keywords(passed)})
    return {_unpacked(packing, "latents", (f"{NOISE}.shape[2]", f"{NOISE}.shape[3]"))}"""
    tree.body += ast.parse(whole).body
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


def _negative(called: str, names: Sequence[str]) -> str:
    """Return the call with what is guided against in place of prompts and their conditions."""
    others = {TEXT: AGAINST, **{name: NEGATIVE + name for name in names if NEGATIVE + name in names}}
    values = {name: ast.Name(one, ast.Load()) for name, one in others.items()}
    return ast.unparse(Substituted(values).visit(ast.parse(called, mode="eval")))


def _keywords(values: Mapping[str, object]) -> str:
    return ", ".join(f"{name}={value}" for name, value in values.items())
