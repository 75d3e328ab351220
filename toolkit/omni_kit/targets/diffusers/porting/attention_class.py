"""Attention that stands in a block, lifted into a module of its own with a processor; the block keeps its layers."""

from collections.abc import Iterator

import libcst as cst

from omni_kit.targets.diffusers.porting.dispatch import BACKEND, DISPATCH
from omni_kit.targets.diffusers.porting.parts import Part, Parts
from omni_kit.targets.diffusers.porting.syntax import (
    body_of,
    chain,
    code,
    method,
    own_attribute,
    statement,
    with_method,
)
from omni_kit.targets.diffusers.porting.visiting import visited, walk
from omni_kit.upstream.repositories.attention import SDPA

_NAMES = ("attn", "attention", "attn_core")
_TAKEN = ("query", "key", "value")
_OPTIONS = {"attn_mask": "None", "dropout_p": "0.0", "is_causal": "False", "scale": "None", "enable_gqa": "False"}


class Lifted:
    """The modules that attention of blocks was lifted into: one for each function that computes it.

    Args:
        parts: the file; a module is written in front of the first block that has one.
        prefix: what classes are called after.
    """

    def __init__(self, parts: Parts, prefix: str) -> None:
        self._parts = parts
        self._prefix = prefix
        self._made: dict[str, str] = {}
        self.processors: list[str] = []

    def lift(self, part: Part, functions: set[str]) -> bool:
        """Give a block such a module, and call it where the block computes attention.

        Returns:
            Whether that was possible: methods of the block compute attention by one function.
        """
        assert part.cls is not None
        init = method(part.cls, "__init__")
        called = {kind for one in walk(part.cls) if (kind := _kernel(one, functions))}
        with_self = {kind for one in _methods(part.cls) for node in walk(one) if (kind := _kernel(node, functions))}
        taken = {own_attribute(one) for one in walk(part.cls)}
        free = next((name for name in _NAMES if name not in taken), "")
        if init is None or not free or len(called) != 1 or called != with_self:
            return False
        kind = called.pop()
        function = self._function(kind)
        if kind != SDPA and function is None:
            return False
        if kind not in self._made:
            self._write(part, kind, function)
        block = visited(part.cls, _Asking(kind, f"self.{free}"))
        made = statement(f"self.{free} = {self._made[kind]}()")
        part.node = with_method(
            block, "__init__", lambda one: one.with_changes(body=cst.IndentedBlock([*body_of(one), made]))
        )
        return True

    def _function(self, kind: str) -> cst.FunctionDef | None:
        found = next((one for one in self._parts.parts if one.name == kind), None)
        node = found.node if found is not None else None
        plain = isinstance(node, cst.FunctionDef) and node.params.star_kwarg is None
        return node if plain and isinstance(node, cst.FunctionDef) else None

    def _write(self, part: Part, kind: str, function: cst.FunctionDef | None) -> None:
        """A module without parameters, and its processor."""
        names = {one.name for one in self._parts.parts} | {*self._made.values()}
        wanted = [f"{self._prefix}Attention", *(f"{self._prefix}Attention{number}" for number in range(2, 99))]
        name = next(one for one in wanted if one not in names)
        processor = f"{name.replace('Attention', 'Attn')}Processor"
        backend = BACKEND.format("self")
        if function is None:
            taken = ", ".join([*_TAKEN, *(f"{one}={value}" for one, value in _OPTIONS.items())])
            turned = ", ".join(f"{one}.transpose(1, 2)" for one in _TAKEN)
            options = ", ".join(f"{one}={one}" for one in _OPTIONS)
            computed = f"{DISPATCH}({turned}, {options}, {backend}).transpose(1, 2)"
        else:
            own = [one for one in _parameters(function) if one.name.value not in ("backend", "parallel_config")]
            taken = ", ".join(code(one.with_changes(comma=cst.MaybeSentinel.DEFAULT)) for one in own)
            computed = f"{kind}({', '.join(f'{one.name.value}={one.name.value}' for one in own)}, {backend})"
        part.before += [
            statement(
                f"class {processor}:\n    _attention_backend = None\n    _parallel_config = None\n\n"
                f'    def __call__(self, attn: "{name}", {taken}):\n        return {computed}\n'
            ),
            statement(
                f"class {name}(nn.Module, AttentionModuleMixin):\n"
                f"    _default_processor_cls = {processor}\n    _available_processors = [{processor}]\n"
                "    _supports_qkv_fusion = False\n\n"
                f"    def __init__(self):\n        super().__init__()\n        self.set_processor({processor}())\n\n"
                "    def forward(self, *args, **kwargs):\n        return self.processor(self, *args, **kwargs)\n"
            ),
        ]
        self._made[kind] = name
        self.processors.append(processor)


def _methods(node: cst.ClassDef) -> Iterator[cst.FunctionDef]:
    for one in body_of(node):
        if isinstance(one, cst.FunctionDef) and one.params.params and one.params.params[0].name.value == "self":
            yield one


def _kernel(node: cst.CSTNode, functions: set[str]) -> str:
    """Return the function by which a call computes attention, or torch's kernel; empty for any other call."""
    name = chain(node.func) if isinstance(node, cst.Call) else ""
    return name if name in functions else SDPA if name.endswith(SDPA) else ""


def _parameters(function: cst.FunctionDef) -> list[cst.Param]:
    given = function.params
    return [*given.posonly_params, *given.params, *given.kwonly_params]


class _Asking(cst.CSTTransformer):
    """Calls the module where the kernel was called."""

    def __init__(self, kind: str, module: str) -> None:
        self.kind = kind
        self.module = module

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.Call:  # noqa: N802
        """Call the module with the same arguments."""
        asked = _kernel(updated_node, {self.kind}) == self.kind
        return updated_node.with_changes(func=cst.parse_expression(self.module)) if asked else updated_node
