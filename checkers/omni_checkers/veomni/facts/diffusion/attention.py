"""Calls of attention kernels in a directory: the convention and the arguments of each."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from omni_checkers.engine.files import File, functions, walked
from omni_checkers.veomni.facts.diffusion.flows import Flows
from omni_checkers.veomni.facts.diffusion.sides import Diffusion
from omni_kit.pysource.nodes import argument, last_name

IN, OUT = ("gather_seq_scatter_heads", "gather_seq_scatter_heads_qkv"), ("gather_heads_scatter_seq",)
"""The exchanges before and after attention."""
TABLE = "ALL_ATTENTION_FUNCTIONS"
_TORCH, _DISPATCH = "scaled_dot_product_attention", "dispatch_attention_fn"
_FLASH = ("flash_attn_func", "flash_attn_varlen_func", "flash_attn_with_kvcache")


@dataclass(frozen=True)
class Kernel:
    """One call.

    Attributes:
        kind: "table" for a function of ALL_ATTENTION_FUNCTIONS, "torch", "dispatch" or "flash".
        states: the expressions of query, key and value; empty if they cannot be determined.
    """

    file: File
    function: ast.FunctionDef
    call: ast.Call
    kind: str
    states: tuple[ast.expr, ...]

    @property
    def heads_first(self) -> bool:
        """Return whether the kernel takes (batch, heads, sequence, dim), and not (batch, sequence, heads, dim)."""
        return self.kind in {"table", "torch"}

    def named(self, *names: str) -> ast.expr | None:
        """Return a named argument, under the first of these names that is given."""
        given = {keyword.arg: keyword.value for keyword in self.call.keywords if keyword.arg}
        return next((given[name] for name in names if name in given), None)

    @property
    def spread(self) -> bool:
        """Return whether some of its arguments cannot be seen."""
        return any(word.arg is None for word in self.call.keywords) or any(
            isinstance(one, ast.Starred) for one in self.call.args
        )


def kernels(diffusion: Diffusion) -> Iterator[Kernel]:
    """Yield every call of an attention kernel in the packages of the two sides."""
    side = diffusion.transformer
    folder = side.place[0].parent if side is not None else None
    files = [file for path, file in diffusion.files.items() if folder is not None and path.is_relative_to(folder)]
    for file, function in functions(files):
        table = _from_table(function)
        for node in walked(function):
            if isinstance(node, ast.Call) and (kind := _kind(file, node, table)):
                yield Kernel(file, function, node, kind, _states(node, kind))


def _from_table(function: ast.FunctionDef) -> set[str]:
    """Return the names that hold a function of the table."""
    flows = Flows(function)
    names = {
        item.func.id for item in walked(function) if isinstance(item, ast.Call) and isinstance(item.func, ast.Name)
    }
    last = function.end_lineno or function.lineno
    return {
        name
        for name in names
        if any(TABLE in ast.unparse(one) for one in flows.sources(ast.Name(name, ast.Load()), last + 1))
    }


def _kind(file: File, node: ast.Call, table: set[str]) -> str:
    name = last_name(node)
    real = file.imports.get(name, name).rpartition(".")[2]
    if isinstance(node.func, ast.Name) and node.func.id in table:
        return "table"
    text = ast.unparse(node.func)
    if text.startswith(f"{TABLE}[") or f"{TABLE}.get" in text:
        return "table" if not text.endswith((".get", ".get_interface")) else ""
    if real == _TORCH:
        return "torch"
    return "dispatch" if real == _DISPATCH else "flash" if real in _FLASH else ""


def _states(node: ast.Call, kind: str) -> tuple[ast.expr, ...]:
    first = 1 if kind == "table" else 0
    names = ("query", "key", "value") if kind != "flash" else ("q", "k", "v")
    found = [argument(node, first + number, name) for number, name in enumerate(names)]
    known = [one for one in found if one is not None]
    return tuple(known) if len(known) == len(names) else ()
