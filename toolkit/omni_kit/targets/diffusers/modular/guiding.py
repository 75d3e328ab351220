"""A pipeline whose guidance a guider takes over: two calls of its denoiser, and a formula that a guider computes."""

import ast
import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import takewhile

import libcst as cst

from omni_kit.pysource.eval import Unsupported
from omni_kit.pysource.signatures import defaults, signature
from omni_kit.pysource.source import dotted
from omni_kit.targets.diffusers.modular.guided_names import ByGuider, Stead
from omni_kit.targets.diffusers.modular.names import tree
from omni_kit.targets.diffusers.modular.pipeline_class import Method, Opened
from omni_kit.targets.diffusers.modular.split_cfg_batch import split_cfg_batch
from omni_kit.targets.diffusers.porting.visiting import visited
from omni_kit.upstream.diffusers.guidance import guidance_of, is_combination
from omni_kit.upstream.diffusers.guiders import COMPONENT, SCALE, Guider, guider_for

_CACHED = "cache_context"
# An answer, where a guider's batch holds it.
_HELD = ast.Attribute(ast.Name("guider_state_batch", ast.Load()), "noise_pred", ast.Load())
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
    """Return the pipeline with a guider.

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
        pair = replace(pair, positive=single.positive, between=[*single.between, *pair.between])
    return _Change(opened, guider, told.scale, pair).made()


@dataclass(frozen=True)
class _Pair:
    """Two calls, one after the other.

    Attributes:
        statements: those that ask, and the last one, which asks again and combines.
        answer: the variable of the first answer; `other` that of the second.
        cached: the calls stand in contexts of a cache.
        rest: what else is done with the combined output.
        positive: what the rest calls the first answer, where that is not its variable.
        between: what is done with each answer before they are combined.
        otherwise: without guidance, the first answer is assigned to the combination's variable.
    """

    statements: Sequence[cst.CSTNode]
    answer: str
    other: str
    value: ast.Subscript | ast.Attribute
    again: ast.Subscript | ast.Attribute
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
    for end, other in enumerate(block):
        if not isinstance(other, cst.If):
            continue
        for start in range(end - 1, max(end - 4, -1), -1):
            first = block[start:end]
            if not all(isinstance(one, cst.BaseStatement) for one in first):
                break
            asked = _asked([tree(one).body[0] for one in first])
            if asked is not None and asked.count == len(first):
                found = _combining(asked, tree(other).body[0])
                if found is not None:
                    return replace(found, statements=[*first, other])
    return None


def _combining(asked: "_Asked", branch: ast.stmt) -> _Pair | None:
    """Return the pair, if a branch asks again, treats the answer as the first was treated, and combines both."""
    again = _asked(branch.body) if isinstance(branch, ast.If) else None
    if not isinstance(branch, ast.If) or again is None or again.count == len(branch.body):
        return None
    combined = branch.body[again.count]
    if not isinstance(combined, ast.Assign) or not is_combination(combined.value):
        return None
    target = ast.unparse(combined.targets[0])
    alike = asked.treated(ast.Name(asked.answer)) == again.treated(ast.Name(asked.answer))
    if not alike or not isinstance(combined.targets[0], ast.Name) or not _leaves(branch.orelse, target, asked.answer):
        return None
    return _Pair((), asked.answer, again.answer, asked.call, again.call, asked.cached and again.cached, branch.test,
                 combined, branch.body[again.count + 1 :], between=asked.between,
                 otherwise=bool(branch.orelse))  # fmt: skip


def _leaves(orelse: Sequence[ast.stmt], target: str, answer: str) -> bool:
    """Return whether what happens without guidance leaves the first answer as it is."""
    return [ast.unparse(one) for one in orelse] in ([], [f"{target} = {answer}"])


@dataclass(frozen=True)
class _Asked:
    """Statements that call the denoiser.

    Attributes:
        answer: the variable that its output becomes.
        call: the call, and which of its outputs is taken.
        cached: the call stands in the context of a cache.
        between: what is done with the output next.
        count: how many statements these are.
    """

    answer: str
    call: ast.Subscript | ast.Attribute
    cached: bool
    between: Sequence[ast.Assign]
    count: int

    def treated(self, answer: ast.expr) -> list[str]:
        """Return the changes of an output, as text."""
        return [ast.unparse(_Held(self.answer, answer).visit(copy.deepcopy(one.value))) for one in self.between]


def _asked(nodes: Sequence[ast.stmt]) -> _Asked | None:
    head, cached = nodes[0], False
    inner: Sequence[ast.stmt] = [head]
    if isinstance(head, ast.With) and len(head.items) == 1:
        context = head.items[0].context_expr
        cached = isinstance(context, ast.Call) and (dotted(context.func) or "").endswith(_CACHED)
        inner = head.body if cached else inner
    call = inner[0]
    if not isinstance(call, ast.Assign) or not isinstance(call.targets[0], ast.Name):
        return None
    if not isinstance(call.value, ast.Subscript | ast.Attribute) or not isinstance(call.value.value, ast.Call):
        return None
    answer = call.targets[0].id
    between = list(takewhile(lambda one: _changes(one, answer), [*inner[1:], *nodes[1:]]))
    if len(between) < len(inner) - 1:
        return None
    changes = [one for one in between if isinstance(one, ast.Assign)]
    return _Asked(answer, call.value, cached, changes, len(between) - len(inner) + 2)


def _changes(node: ast.stmt, name: str) -> bool:
    """Return whether a statement computes a variable from itself."""
    if not isinstance(node, ast.Assign) or [ast.unparse(one) for one in node.targets] != [name]:
        return False
    return name in _names(ast.unparse(node.value)) and not is_combination(node.value)


@dataclass(frozen=True)
class _Change:
    """Makes the change."""

    opened: Opened
    guider: Guider
    scale: str
    pair: _Pair

    def made(self) -> Guided:
        """Return the pipeline with the guider."""
        scales, chosen = self._scales()
        code = cst.parse_module("\n".join(self._lines(chosen)) + "\n").body
        written = visited(self.opened.call.written, Stead(self.pair.statements, code))
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
        """Yield the statements instead of both."""
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
        yield f"{inner}{ast.unparse(_HELD)} = {ast.unparse(call)}"
        for node in pair.between:
            value = _Held(pair.answer, _HELD).visit(copy.deepcopy(node.value))
            yield f"    {ast.unparse(_HELD)} = {ast.unparse(value)}"
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
        """Return names that are there whether the pipeline guides or not: arguments, and what no branch assigns."""
        call = self.opened.call.node
        plain = (node for node in call.body if isinstance(node, ast.Assign))
        targets = (one for node in plain for target in node.targets for one in ast.walk(target))
        given = {one.arg for one in (*call.args.args, *call.args.kwonlyargs)}
        return given | {one.id for one in targets if isinstance(one, ast.Name)} | {"None"}

    def _count(self) -> tuple[str, str, str]:
        """Return the number of a round, its step, and all steps.

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
    """Replaces an answer by an expression."""

    def __init__(self, answer: str, instead: ast.expr) -> None:
        self.answer = answer
        self.instead = instead

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """Replace the variable of the output."""
        return self.instead if node.id == self.answer else node


def _is_around(loop: ast.For, call: ast.expr) -> bool:
    wanted = ast.unparse(call)
    return any(ast.unparse(node) == wanted for node in ast.walk(loop) if isinstance(node, type(call)))
