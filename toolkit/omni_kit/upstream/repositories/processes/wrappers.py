"""Classes of the authors that hold a network and change what it receives and returns: preconditioning.

Their samplers are passed such an object, and no network.
"""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from omni_kit.pysource.source import SourceFile
from omni_kit.upstream.repositories.processes.class_members import constructor_arguments, every_method
from omni_kit.upstream.repositories.reference import Reference
from omni_kit.upstream.repositories.sampler_step.members import of_self

_NETWORK = re.compile(
    r"^(inner_|diffusion_|raw_)?(model|net|network|unet|dit|backbone|denoiser|denoise_fn|denoise_net|F|f)$"
)
_CALLED = ("forward", "__call__")
_MOST = 6


@dataclass(frozen=True)
class Wrapper:
    """A class that holds a network.

    Attributes:
        module, name: what it is imported from, and as.
        held: the attribute for the network.
        given: the arguments of its constructor that have no default -> whether it is the network.
    """

    module: str
    name: str
    held: str
    given: Mapping[str, bool]

    def around(self, network: str) -> str:
        """Return the expression for an object that holds a network."""
        more = "".join(f", {name}={network if own else f'made_with.{name}'}" for name, own in self.given.items())
        return f"around({self.name}, {self.held!r}, {network}{more})"


def wrappers_of(reference: Reference, sources: Sequence[SourceFile]) -> list[Wrapper]:
    """Return the classes that precondition a network, the nearest to the class first."""
    return [one for source in sources for one in _of_file(reference, source)][:_MOST]


def _of_file(reference: Reference, source: SourceFile) -> Iterator[Wrapper]:
    for name, cls in source.classes.items():
        methods = every_method(source, cls) if cls is not reference.cls.node else {}
        forward = next((methods[one] for one in _CALLED if one in methods), None)
        held = _preconditioned(forward) if forward is not None else ""
        if held:
            arguments = [one.arg for one, default in constructor_arguments(source, cls) if default is None]
            network = next((one for one in arguments if one == held or _NETWORK.match(one)), "")
            yield Wrapper(source.module, name, held, {one: one == network for one in arguments})


def _preconditioned(forward: ast.FunctionDef) -> str:
    """Return the attribute that a method calls with a product, and of whose answer it takes a multiple and adds to it;
    empty for any other method.
    """
    if any(isinstance(one, ast.For | ast.While) for one in ast.walk(forward)):
        return ""
    known = dict(_variables(forward))
    calls = [one for one in ast.walk(forward) if isinstance(one, ast.Call) and len(one.args) + len(one.keywords) > 1]
    called = (
        of_self(one.func) or known.get(one.func.id if isinstance(one.func, ast.Name) else "", "") for one in calls
    )
    names = {name for name in called if _NETWORK.match(name)}
    kinds = [type(one.op) for one in ast.walk(forward) if isinstance(one, ast.BinOp)]
    scales = kinds.count(ast.Mult) > 2 or (ast.Mult in kinds and "append_dims" in ast.unparse(forward))
    return names.pop() if len(names) == 1 and scales and (ast.Add in kinds or ast.Sub in kinds) else ""


def _variables(forward: ast.FunctionDef) -> Iterator[tuple[str, str]]:
    """Yield the variables that a network is kept in, each with its attribute: `net = self.model`, also where another
    method of it takes the scale of guidance.
    """
    for node in (one for one in ast.walk(forward) if isinstance(one, ast.Assign)):
        value = node.value.body if isinstance(node.value, ast.IfExp) else node.value
        if isinstance(node.targets[0], ast.Name) and _NETWORK.match(of_self(value)):
            yield node.targets[0].id, of_self(value)
