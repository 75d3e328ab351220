"""A pipeline whose guidance a guider takes over: two calls of its denoiser, and a formula that a guider computes."""

import ast
import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise

import libcst as cst

from omni_kit.pysource.eval import Unsupported
from omni_kit.pysource.signatures import defaults, signature
from omni_kit.pysource.source import dotted
from omni_kit.targets.diffusers.modular.guided_names import ByGuider, Stead
from omni_kit.targets.diffusers.modular.names import tree
from omni_kit.targets.diffusers.modular.opened import Method, Opened
from omni_kit.targets.diffusers.modular.split_cfg_batch import split_cfg_batch
from omni_kit.targets.diffusers.porting.syntax import visited
from omni_kit.upstream.diffusers.guidance import guidance_of, is_combination
from omni_kit.upstream.diffusers.guiders import COMPONENT, SCALE, Guider, guider_for

_CACHED = "cache_context"
_HOMES = {"FrozenDict": "diffusers.configuration_utils"}


@dataclass(frozen=True)
class Guided(Opened):
    """A pipeline, opened, with a guider instead of its formula.

    Attributes:
        guider: its class.
        changed: its `__call__`, in which the guider stands.
        guiders: component -> the scale that it begins with, as written.
    """

    guider: Guider = field(default_factory=lambda: Guider(""))
    changed: Method | None = None
    guiders: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def call(self) -> Method:
        """With the guider."""
        assert self.changed is not None
        return self.changed

    @cached_property
    def parts(self) -> dict[str, str]:
        """With the guider, which is made from its config."""
        own = dict(Opened(self.pipeline).parts)
        for name, scale in self.guiders.items():
            config = ", ".join(f'"{key}": {value!r}' for key, value in self.guider.config.items())
            told = f'"{SCALE}": {scale}' + (f", {config}" if config else "")
            own[name] = f'{self.guider.name}, config=FrozenDict({{{told}}}), default_creation_method="from_config"'
        return own

    @property
    def homes(self) -> Mapping[str, str]:
        """Names that the pipeline's file does not know -> the module that has them."""
        return {**_HOMES, self.guider.name: "diffusers.guiders"}


def guided(opened: Opened) -> Guided:
    """The pipeline with a guider.

    Raises:
        Unsupported: no guider does what it does.
    """
    told = guidance_of(opened.pipeline)
    guider = guider_for(opened.pipeline.library, told.formula)
    if guider is None:
        raise Unsupported("no guider of this diffusers version computes its formula")
    single = split_cfg_batch(opened) if told.together else None
    if single is not None:
        opened = Guided(opened.pipeline, guider, single.call)
    pair = next((found for block in _blocks(opened.call.written) if (found := _pair(block)) is not None), None)
    if pair is None:
        raise Unsupported("it does more between the two denoiser calls than call and combine")
    if single is not None:
        pair = replace(pair, positive=single.positive, between=single.between)
    return _Change(opened, guider, told.scale, pair).made()


@dataclass(frozen=True)
class _Pair:
    """Two calls, one after the other.

    Attributes:
        first, second: the statements: one asks, the other asks again and combines.
        answer: the variable of the first answer; `other` that of the second.
        cached: the calls stand in contexts of a cache.
        rest: what else is done with the combined output.
        positive: what the rest calls the first answer, where that is not its variable.
        between: what is done with each answer before they are combined.
        otherwise: without guidance, the first answer is assigned to the combination's variable.
    """

    first: cst.BaseStatement
    second: cst.BaseStatement
    answer: str
    other: str
    value: ast.Subscript
    again: ast.Subscript
    cached: bool
    test: ast.expr
    combined: ast.Assign
    rest: Sequence[ast.stmt]
    positive: str = ""
    between: Sequence[ast.Assign] = ()
    otherwise: bool = False


def _blocks(node: cst.CSTNode) -> Iterator[Sequence[cst.CSTNode]]:
    if isinstance(node, cst.IndentedBlock):
        yield node.body
    for child in node.children:
        yield from _blocks(child)


def _pair(block: Sequence[cst.CSTNode]) -> _Pair | None:
    for one, other in pairwise(block):
        if not isinstance(one, cst.BaseStatement) or not isinstance(other, cst.If):
            continue
        asked, branch = _asked(tree(one).body[0]), tree(other).body[0]
        if asked is None or not isinstance(branch, ast.If) or len(branch.body) < 2:
            continue
        again, combined = _asked(branch.body[0]), branch.body[1]
        if again is None or not isinstance(combined, ast.Assign) or not is_combination(combined.value):
            continue
        target = ast.unparse(combined.targets[0])
        if not isinstance(combined.targets[0], ast.Name) or not _leaves(branch.orelse, target, asked[0]):
            continue
        return _Pair(one, other, asked[0], again[0], asked[1], again[1], asked[2] and again[2], branch.test,
                     combined, branch.body[2:], otherwise=bool(branch.orelse))  # fmt: skip
    return None


def _leaves(orelse: Sequence[ast.stmt], target: str, answer: str) -> bool:
    """Whether what happens without guidance leaves the first answer as it is."""
    return [ast.unparse(one) for one in orelse] in ([], [f"{target} = {answer}"])


def _asked(node: ast.stmt) -> tuple[str, ast.Subscript, bool] | None:
    """The variable that an answer becomes, the call, and whether it stands in the context of a cache."""
    cached = False
    if isinstance(node, ast.With) and len(node.body) == len(node.items) == 1:
        head = node.items[0].context_expr
        cached = isinstance(head, ast.Call) and (dotted(head.func) or "").endswith(_CACHED)
        node = node.body[0] if cached else node
    if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
        return None
    value = node.value
    fits = isinstance(value, ast.Subscript) and isinstance(value.value, ast.Call)
    return (node.targets[0].id, value, cached) if fits and isinstance(value, ast.Subscript) else None


@dataclass(frozen=True)
class _Change:
    """Makes the change."""

    opened: Opened
    guider: Guider
    scale: str
    pair: _Pair

    def made(self) -> Guided:
        """The pipeline with the guider."""
        scales, chosen = self._scales()
        code = cst.parse_module("\n".join(self._lines(chosen)) + "\n").body
        written = visited(self.opened.call.written, Stead((self.pair.first, self.pair.second), code))
        function = ast.parse(cst.Module([written]).code).body[0]
        self._check(function, scales)
        renamed = visited(written, ByGuider(chosen, scales))
        node = ast.parse(cst.Module([renamed]).code).body[0]
        assert isinstance(node, ast.FunctionDef)
        ast.copy_location(node, self.opened.call.node)
        changed = Method(self.opened.call.home, node, renamed)
        first = self._default(self.scale) or "7.5"
        begun = {name: self._default(arg) or first for arg, name in scales.items()}
        return Guided(self.opened.pipeline, self.guider, changed, begun)

    def _default(self, name: str) -> str:
        value = defaults(signature(self.opened.call.node)).get(name)
        return ast.unparse(value) if isinstance(value, ast.Constant) and value.value is not None else ""

    def _scales(self) -> tuple[dict[str, str], str]:
        """Argument of `__call__` -> component, and the variable that is one of them in each round; empty for none.

        Raises:
            Unsupported: the scale is another.
        """
        assert isinstance(self.pair.combined.value, ast.BinOp)
        product = self.pair.combined.value.right
        assert isinstance(product, ast.BinOp)
        used = ast.unparse(product.left)
        if used in (self.scale, f"self.{self.scale}", f"self._{self.scale}"):
            return {self.scale: COMPONENT}, ""
        values = [node.value for node in ast.walk(self.opened.call.node) if isinstance(node, ast.Assign)
                  and any(dotted(one) == used for one in node.targets)]  # fmt: skip
        names = {dotted(one) or "" for one in values}
        if not values or not all(name.startswith(self.scale) for name in names):
            raise Unsupported(f"its scale is {used}")
        return {name: COMPONENT + name.removeprefix(self.scale) for name in sorted(names)}, used

    def _lines(self, chosen: str) -> Iterator[str]:
        """The statements instead of both."""
        pair, guider = self.pair, chosen or f"self.{COMPONENT}"
        call, again = copy.deepcopy(pair.value), pair.again
        assert isinstance(call.value, ast.Call)
        assert isinstance(again.value, ast.Call)
        names = {one.arg: ast.unparse(one.value) for one in again.value.keywords if one.arg}
        own = {one.arg: ast.unparse(one.value) for one in call.value.keywords if one.arg}
        plain = [[ast.unparse(one) for one in (made.func, *made.args)] for made in (call.value, again.value)]
        if names.keys() != own.keys() or plain[0] != plain[1]:
            raise Unsupported("its two denoiser calls differ")
        apart = {name: (own[name], names[name]) for name in own if own[name] != names[name]}
        call.value.keywords = [one for one in call.value.keywords if one.arg not in apart]
        call.value.keywords.append(ast.keyword(None, ast.Name("cond_kwargs", ast.Load())))
        denoiser, count = ast.unparse(call.value.func), self._count()
        yield f"if {ast.unparse(pair.test)}:\n    {guider}.enable()\nelse:\n    {guider}.disable()"
        yield f"{guider}.set_state(step={count[0]}, num_inference_steps=len({count[2]}), timestep={count[1]})"
        data = ", ".join(f'"{name}": ({one}, {self._guarded(other)})' for name, (one, other) in apart.items())
        if any(_names(other) - _names(one) - self._always() for one, other in apart.values()):
            raise Unsupported("its second call's inputs do not exist without guidance")
        yield f"guider_state = {guider}.prepare_inputs({{{data}}})"
        yield "for guider_state_batch in guider_state:"
        yield f"    {guider}.prepare_models({denoiser})"
        keys = ", ".join(f'"{name}"' for name in apart)
        yield f"    cond_kwargs = {{name: getattr(guider_state_batch, name) for name in ({keys},)}}"
        inner = "    "
        if pair.cached:
            yield f'    with {denoiser}.{_CACHED}("cond" if {guider}.is_conditional else "uncond"):'
            inner *= 2
        yield f"{inner}guider_state_batch.noise_pred = {ast.unparse(call)}"
        for node in pair.between:
            value = _Held(pair.answer).visit(copy.deepcopy(node.value))
            yield f"    guider_state_batch.noise_pred = {ast.unparse(value)}"
        yield f"    {guider}.cleanup_models({denoiser})"
        yield from self._combined(guider)

    def _guarded(self, other: str) -> str:
        """Return the argument of the second call: more than a variable is computed only if the pipeline guides."""
        return other if other.isidentifier() else f"{other} if {ast.unparse(self.pair.test)} else None"

    def _combined(self, guider: str) -> Iterator[str]:
        pair, target = self.pair, ast.unparse(self.pair.combined.targets[0])
        if not pair.rest and (target == pair.answer or pair.otherwise):
            yield f"{target} = {guider}(guider_state)[0]"
            return
        yield f"guider_output = {guider}(guider_state)"
        yield f"{pair.answer} = guider_output.pred_cond"
        if pair.otherwise:
            yield f"{target} = {pair.answer}"
        yield f"if {ast.unparse(pair.test)}:"
        read = {one.id for node in pair.rest for one in ast.walk(node) if isinstance(one, ast.Name)}
        if pair.other in read:
            yield f"    {pair.other} = guider_output.pred_uncond"
        if pair.positive:
            yield f"    {pair.positive} = guider_output.pred_cond"
        yield f"    {target} = guider_output.pred"
        for node in pair.rest:
            yield "\n".join(f"    {line}" for line in ast.unparse(node).split("\n"))

    def _always(self) -> set[str]:
        """Names that are there whether the pipeline guides or not: arguments, and what no branch assigns."""
        call = self.opened.call.node
        plain = (node for node in call.body if isinstance(node, ast.Assign))
        targets = (one for node in plain for target in node.targets for one in ast.walk(target))
        given = {one.arg for one in (*call.args.args, *call.args.kwonlyargs)}
        return given | {one.id for one in targets if isinstance(one, ast.Name)} | {"None"}

    def _count(self) -> tuple[str, str, str]:
        """The number of a round, its step, and all steps.

        Raises:
            Unsupported: the loop counts otherwise.
        """
        for node in ast.walk(self.opened.call.node):
            if isinstance(node, ast.For) and _is_around(node, self.pair.value):
                head = node.iter
                names = [one.id for one in ast.walk(node.target) if isinstance(one, ast.Name)]
                if isinstance(head, ast.Call) and dotted(head.func) == "enumerate" and len(names) == 2:
                    return names[0], names[1], ast.unparse(head.args[0])
        raise Unsupported("its loop does not count steps")

    def _check(self, function: ast.stmt, scales: Mapping[str, str]) -> None:
        """A scale that the pipeline replaces itself, but where it is left out, is not a guider's.

        Raises:
            Unsupported: it does so.
        """
        first = next(iter(scales))
        stored = {
            node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        }
        if first in stored:
            raise Unsupported(f"it replaces {first} itself")


def _names(text: str) -> set[str]:
    found = {one.id for one in ast.walk(ast.parse(text, mode="eval")) if isinstance(one, ast.Name)}
    return found or {text}  # a constant is there always


class _Held(ast.NodeTransformer):
    """An answer, where a guider's batch holds it."""

    def __init__(self, answer: str) -> None:
        self.answer = answer

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """Replace the name of the output by an attribute of the guider's state."""
        held = ast.Attribute(ast.Name("guider_state_batch", ast.Load()), "noise_pred", ast.Load())
        return held if node.id == self.answer else node


def _is_around(loop: ast.For, call: ast.expr) -> bool:
    wanted = ast.unparse(call)
    return any(ast.unparse(node) == wanted for node in ast.walk(loop) if isinstance(node, ast.Subscript))
