"""Check whether a pipeline's loop over steps does what every loop does, ask, guide and step, and where it does more."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from omni_kit.pysource.nodes import names_in
from omni_kit.pysource.signatures import passed
from omni_kit.pysource.source import dotted
from omni_kit.upstream.diffusers.defaults import Defaults
from omni_kit.upstream.diffusers.denoising import Denoising
from omni_kit.upstream.diffusers.guidance import is_combination
from omni_kit.upstream.diffusers.pipelines import SCHEDULER

_STEP = f"self.{SCHEDULER}.step"
# Methods and functions that change neither values nor their order, or only how often they are there.
_SAME = frozenset({
    "to", "float", "type_as", "squeeze", "unsqueeze", "contiguous", "clone", "detach", "chunk", "repeat", "unbind",
    "list", "stack", "cat", "expand", "scale_model_input",
})  # fmt: skip
_HANDED_ON = frozenset({"return_dict", "generator", "eta", None})
_STEPPED = ("model_output", "timestep", "sample")
_SHOWN = 60
_DEEPEST = 12


@dataclass
class Loop:
    """A loop over steps while it is read.

    Attributes:
        denoising: the call of the denoiser in it.
        defaults: what conditions are by default.
        answers: names of what the denoiser answered, and of what became of it.
        odd: what no standard loop does, and where.
    """

    denoising: Denoising
    defaults: Defaults
    loop: ast.For
    answers: set[str] = field(default_factory=set)
    odd: list[str] = field(default_factory=list)
    stepped: list[ast.Call] = field(default_factory=list)

    def read(self) -> list[str]:
        """Everything that a standard loop does not do, each in one line with its place."""
        self._block(self.loop.body)
        if not self.stepped and not self.odd:
            self._say("does not call scheduler.step", self.loop)
        if not self.odd:
            self._handed()
        return self.odd

    def _say(self, what: str, node: ast.AST) -> None:
        self.odd.append(f"{what} ({self.denoising.pipeline.cls.source.where(node)})")

    def _block(self, body: list[ast.stmt]) -> None:
        for node in body:
            if isinstance(node, ast.If):
                told = self.defaults.told(node.test)
                self._block(node.body if told is not False else [])
                self._block(node.orelse if told is not True else [])
            elif isinstance(node, (ast.With, ast.For)):
                self._block(node.body)
            elif isinstance(node, (ast.Assign, ast.AugAssign)):
                self._assignment(node)

    def _assignment(self, node: ast.Assign | ast.AugAssign) -> None:
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        if (step := _call_of(node.value, _STEP)) is not None:
            self._step(node, target, step)
        elif self._is_answer(node.value):
            if isinstance(node, ast.AugAssign) or not self._plain(node.value, self.answers):
                if _base(target) in self.answers or self._is_guided(node.value):
                    self._say(f"makes {shown(node.value)} of the denoiser's output", node)
                return  # a norm, or the like: judged where it is used
            self.answers |= {one.id for one in ast.walk(target) if isinstance(one, ast.Name)}
        elif self.stepped and _base(target) == self._latents and not self._plain(node.value, {self._latents}):
            self._say(f"changes its latents with {shown(node.value)} after a step", node)

    def _is_answer(self, value: ast.expr) -> bool:
        return any(
            node is self.denoising.call or (isinstance(node, ast.Name) and node.id in self.answers) or self._asks(node)
            for node in ast.walk(value)
        )

    def _asks(self, node: ast.AST) -> bool:
        return isinstance(node, ast.Call) and any(node is one for one in self.denoising.calls)

    def _is_guided(self, value: ast.expr) -> bool:
        """Return whether a value is as large as an answer: no norm of one, and no number made of it."""
        return isinstance(value, ast.Call) and not (dotted(value.func) or "").endswith("norm")

    def _plain(self, node: ast.expr, known: set[str]) -> bool:
        """Return whether a value is one of `known`, or what guidance makes of two of them."""
        match node:
            case ast.Name():
                return node.id in known
            case ast.List() | ast.Tuple():
                return all(self._plain(one, known) for one in node.elts)
            case ast.ListComp():
                return True  # one by one
            case ast.Subscript() | ast.Attribute():
                return self._plain(node.value, known)
            case ast.UnaryOp(op=ast.USub()):
                return self._plain(node.operand, known)
            case ast.IfExp():
                return self._plain(node.body, known) and self._plain(node.orelse, known)
            case ast.BinOp(op=ast.Mult(), left=ast.List()):
                return self._plain(node.left, known)
            case ast.BinOp(op=ast.Mult(), right=ast.BinOp(op=ast.Div()) as ratio):
                return "norm" in ast.unparse(ratio) and self._plain(node.left, known)
            case ast.BinOp():
                return is_combination(node)
            case ast.Call():
                return self._asks(node) or self._same(node, known)
        return False

    def _same(self, call: ast.Call, known: set[str]) -> bool:
        name = (dotted(call.func) or "").rpartition(".")[2] or getattr(call.func, "attr", "")
        if name not in _SAME:
            return False
        owner = call.func.value if isinstance(call.func, ast.Attribute) else None
        inner = owner if owner is not None and not _is_module(owner) else call.args[0] if call.args else None
        return inner is not None and self._plain(inner, known)

    def _step(self, node: ast.stmt, target: ast.expr, call: ast.Call) -> None:
        given = passed(call, _STEPPED)
        more = {one.arg for one in call.keywords} - _HANDED_ON - set(_STEPPED)
        sample = given.get("sample")
        alike = isinstance(target, ast.Name) and isinstance(sample, ast.Name) and sample.id == target.id
        if len(call.args) > len(_STEPPED) or more or not alike:
            self._say(f"steps by {shown(node)}", node)
        elif not self._plain(given["model_output"], self.answers):
            self._say(f"steps on {shown(given['model_output'])}, which is not the denoiser's output", node)
        self.stepped.append(call)

    @property
    def _latents(self) -> str:
        """The variable that is stepped on."""
        given = [*self.stepped[0].args[2:3], *(one.value for one in self.stepped[0].keywords if one.arg == "sample")]
        return given[0].id if given and isinstance(given[0], ast.Name) else ""

    def _handed(self) -> None:
        """The denoiser has to be passed the latents themselves."""
        value = self.denoising.handed.get(self.denoising.latents)
        if value is not None and not self._from_latents(value, 0):
            self._say(f"passes its denoiser {shown(value)}, which is not its latents alone", value)

    def _from_latents(self, value: ast.expr, depth: int) -> bool:
        names = {node.id for node in ast.walk(value) if isinstance(node, ast.Name)}
        known = {self._latents} | {
            name for name in names - {self._latents} if depth < _DEEPEST and self._made(name, depth)
        }
        return self._plain(value, known)

    def _made(self, name: str, depth: int) -> bool:
        values = list(self._values(self.loop.body, name))
        return bool(values) and all(name in names_in(one) or self._from_latents(one, depth + 1) for one in values)

    def _values(self, body: list[ast.stmt], name: str) -> Iterator[ast.expr]:
        """Yield the values assigned to a variable in the branches that are taken."""
        for node in body:
            if isinstance(node, ast.If):
                told = self.defaults.told(node.test)
                yield from self._values(node.body if told is not False else [], name)
                yield from self._values(node.orelse if told is not True else [], name)
            elif isinstance(node, (ast.With, ast.For)):
                yield from self._values(node.body, name)
            elif isinstance(node, ast.Assign) and any(dotted(one) == name for one in node.targets):
                yield node.value


def oddities(denoising: Denoising, scheduler: str) -> list[str]:
    """Return the statements of a pipeline's loop that no standard loop has, each in one line with its place.

    Args:
        denoising: the call of the denoiser.
        scheduler: the class that steps.
    """
    if denoising.call is None:
        return ["has no visible denoiser call"]
    loop = loop_of(denoising)
    if loop is None:
        return [f"calls its denoiser outside of a single loop over steps ({denoising.where})"]
    return Loop(denoising, Defaults(denoising.pipeline, scheduler), loop).read()


def loop_of(denoising: Denoising) -> ast.For | None:
    """Return the loop that the denoiser is asked in; None if there is none, or loops inside of each other."""
    found, call = denoising.pipeline.cls.method("__call__"), denoising.call
    nodes = ast.walk(found[1]) if found is not None and call is not None else ()
    around = [node for node in nodes if isinstance(node, (ast.For, ast.While)) and call and _holds(node, call)]
    return around[0] if len(around) == 1 and isinstance(around[0], ast.For) else None


def _holds(node: ast.AST, call: ast.Call) -> bool:
    return any(inner is call for inner in ast.walk(node))


def _call_of(value: ast.expr, name: str) -> ast.Call | None:
    calls = (node for node in ast.walk(value) if isinstance(node, ast.Call) and dotted(node.func) == name)
    return next(calls, None)


def _base(target: ast.expr) -> str:
    while isinstance(target, (ast.Subscript, ast.Attribute)):
        target = target.value
    return target.id if isinstance(target, ast.Name) else ""


def _is_module(node: ast.expr) -> bool:
    return (dotted(node) or "") in ("torch", f"self.{SCHEDULER}")


def shown(node: ast.AST) -> str:
    """Return the text of a piece of code, cut where it is long."""
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
