"""A pipeline's `__call__` in parts, as it is written: before its loop over steps, around each step, and after it."""

import ast
import builtins
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from omni_kit.errors import Refusal
from omni_kit.pysource.names import marked, of_tree
from omni_kit.pysource.nodes import names_in
from omni_kit.pysource.source import Imported, SourceFile, dotted
from omni_kit.upstream.diffusers.denoising import denoiser_calls
from omni_kit.upstream.diffusers.pipelines import SCHEDULER, Pipeline

PREPARE, ENTER, PREDICT, LEAVE, FINISH = (
    "before_steps", "before_denoiser", "ask_denoiser", "after_denoiser", "after_steps",
)  # fmt: skip
_OF_STEP = (ENTER, PREDICT, LEAVE)
_STEP = f"self.{SCHEDULER}.step"
_WRAPPERS = ("enumerate", "self.progress_bar", "tqdm")
_LEAVES = (ast.Continue, ast.Break, ast.Return, ast.Yield)
_HOSTED = frozenset({"XLA_AVAILABLE", "xm"})  # TPUs: who drives the loop is not upstream any more
_CALLBACK, _INTERRUPT, _FREE = "callback", ("self.interrupt", "self._interrupt"), "maybe_free_model_hooks"


@dataclass(frozen=True)
class Part:
    """Statements that become one method.

    Attributes:
        text: as upstream writes them, at the margin.
        takes: variables of other parts that it reads.
        leaves: variables that other parts, or later steps, read.
        unsure: of these, variables that it may neither take nor assign.
    """

    text: str
    takes: tuple[str, ...]
    leaves: tuple[str, ...]
    unsure: tuple[str, ...] = ()


@dataclass(frozen=True)
class Divided:
    """The parts of one `__call__`.

    Attributes:
        source: the file that it stands in, whose names it uses.
        where: file:line of `__call__`.
        loop_where: file:line of its loop.
        signature: its arguments after `self`, without annotations.
        parts: PREPARE, ENTER, PREDICT, LEAVE and FINISH.
        index, time: what the loop counts by; empty if it does not.
        times: the expression that it goes through.
        latents: the variable that the scheduler steps on.
        frames: the expression that is answered; empty if that is not seen.
        imported: names of the module that the parts use.
    """

    source: SourceFile = field(repr=False)
    where: str
    loop_where: str
    signature: tuple[str, ...]
    parts: dict[str, Part]
    index: str
    time: str
    times: str
    latents: str
    frames: str
    imported: tuple[str, ...]

    @property
    def kept(self) -> tuple[str, ...]:
        """Every variable that one part leaves to another."""
        return tuple(sorted({name for part in self.parts.values() for name in part.leaves}))

    @property
    def imports(self) -> list[str]:
        """The lines that import what the parts use of their module."""
        modules = {name: found for name in self.imported if (found := self.source.imports.get(name))}
        plain = {name: found for name, found in modules.items() if found.name is None}
        rest = [name for name in self.imported if name not in plain]
        lines = [_import(name, found) for name, found in plain.items()]
        return [*lines, *([f"from {self.source.module} import {', '.join(rest)}"] if rest else [])]


def divided(pipeline: Pipeline) -> Divided:
    """Return the parts of a pipeline's `__call__`.

    Raises:
        Refusal: it cannot be divided; why, and where.
    """
    found = pipeline.cls.method("__call__")
    if found is None:
        raise Refusal(f"{pipeline.cls.node.name} has no __call__ that can be read")
    return _Divider(pipeline, found[0].source, found[1]).divided()


@dataclass
class _Divider:
    pipeline: Pipeline
    source: SourceFile
    function: ast.FunctionDef

    def divided(self) -> Divided:
        body = _without_docstring(self.function.body)
        body, frames = self._answered(body)
        before, loop, after = self._loop(body)
        enter, predict, leave = self._round(loop)
        finish = [one for one in after if not _frees(one)]
        statements = {PREPARE: before, ENTER: enter, PREDICT: predict, LEAVE: leave, FINISH: finish}
        index, time = _counters(loop)
        counters = [name for name in (index, time) if name]
        parts = _Flow(statements, self._arguments, counters, loop.iter, frames).parts(self._text)
        read = {name for body in statements.values() for one in body for name in of_tree(one).read}
        read |= {node.id for one in self._defaults() for node in ast.walk(one) if isinstance(node, ast.Name)}
        read |= names_in(loop.iter) | (names_in(frames) if frames is not None else set())
        local = {name for one in self.function.body for name in of_tree(one).stored} | set(self._arguments)
        imported = tuple(sorted(read - local - set(dir(builtins)) - {"self"}))
        return Divided(
            self.source, self.source.where(self.function), self.source.where(loop), tuple(self._signature()), parts,
            index, time, ast.unparse(_unwrapped(loop.iter)), self._stepped(leave, parts),
            ast.unparse(frames) if frames is not None else "", imported,
        )  # fmt: skip

    def _refuse(self, what: str, node: ast.AST) -> Refusal:
        return Refusal(f"{self.pipeline.cls.node.name}.__call__ {what} ({self.source.where(node)})")

    @cached_property
    def _arguments(self) -> list[str]:
        given = self.function.args
        return [one.arg for one in [*given.posonlyargs, *given.args, *given.kwonlyargs]][1:]

    def _defaults(self) -> list[ast.expr]:
        given = self.function.args
        return [one for one in [*given.defaults, *given.kw_defaults] if one is not None]

    def _signature(self) -> Iterator[str]:
        given = self.function.args
        positional = [*given.posonlyargs, *given.args]
        defaults = [*[None] * (len(positional) - len(given.defaults)), *given.defaults, *given.kw_defaults]
        for one, default in list(zip([*positional, *given.kwonlyargs], defaults, strict=True))[1:]:
            yield one.arg if default is None else f"{one.arg}={ast.unparse(default)}"
        if given.kwarg is not None:
            yield f"**{given.kwarg.arg}"

    def _answered(self, body: list[ast.stmt]) -> tuple[list[ast.stmt], ast.expr | None]:
        """Return the statements without those at the end that only answer, and what the last of them answers."""
        frames: ast.expr | None = None
        while body and only_answers(body[-1]):
            frames = frames if frames is not None else _first_answer(body[-1])
            body = body[:-1]
        early = [node for one in body for node in _inner(one) if isinstance(node, ast.Return)]
        if early:
            raise self._refuse("returns before its end", early[0])
        return body, frames

    def _loop(self, body: Sequence[ast.stmt]) -> tuple[list[ast.stmt], ast.For, list[ast.stmt]]:
        """Return the statements before the loop over steps, the loop, and the statements after it."""
        stepping = [place for place, one in enumerate(body) if _steps(one)]
        if len(stepping) != 1:
            raise self._refuse("has several loops over steps" if stepping else "has no loop over steps", self.function)
        place = stepping[0]
        before, node, after = list(body[:place]), body[place], list(body[place + 1 :])
        if isinstance(node, ast.With) and "progress_bar" in ast.unparse(node.items[0].context_expr):
            inside, node, behind = self._loop(node.body)
            return before + inside, node, behind + after
        inner = [one for one in ast.walk(node) if isinstance(one, (ast.For, ast.While)) and one is not node]
        if not isinstance(node, ast.For) or any(_steps(one) for one in inner):
            raise self._refuse("steps in nested loops", node)
        return before, node, after

    def _round(self, loop: ast.For) -> tuple[list[ast.stmt], list[ast.stmt], list[ast.stmt]]:
        """Return the statements of an iteration before the denoiser's call, with the call, and after it."""
        body = [one for one in loop.body if not _hosts(one, loop)]
        ends = [node for one in body for node in _inner(one) if isinstance(node, _LEAVES)]
        if ends:
            raise self._refuse("ends a step early", ends[0])
        calls = denoiser_calls(self.function, self.pipeline.denoiser.name)
        outside = [call for call in calls if not any(call is node for node in ast.walk(loop))]
        if outside:
            raise self._refuse("calls its denoiser outside of its loop", outside[0])
        asked = [n for n, one in enumerate(body) if any(call is node for node in ast.walk(one) for call in calls)]
        if not asked:
            raise self._refuse("has no visible denoiser call in its loop", loop)
        first, last = min(asked), max(asked) + 1
        if any(_steps(one) for one in body[first:last]):
            raise self._refuse("calls its denoiser and steps in one statement", body[first])
        return body[:first], body[first:last], body[last:]

    def _stepped(self, leave: Sequence[ast.stmt], parts: Mapping[str, Part]) -> str:
        """Return the variable that goes from step to step: the scheduler steps on it, or what comes of a step becomes
        it.
        """
        found: list[str] = []
        for node in (node for one in leave for node in ast.walk(one)):
            if isinstance(node, ast.Call) and dotted(node.func) == _STEP:
                given = [*node.args, *(one.value for one in node.keywords)]
                found += [one.id for value in given for one in ast.walk(value) if isinstance(one, ast.Name)]
        passed = [name for name in parts[PREPARE].leaves if name in parts[LEAVE].leaves]
        carried = [name for name in found if name in parts[PREPARE].leaves and name in parts[LEAVE].takes]
        asked = {*parts[ENTER].takes, *parts[PREDICT].takes}
        both = [name for name in carried if name in passed] or passed or carried
        both = sorted(both, key=lambda name: name not in asked)
        if not both:
            raise self._refuse("steps on something that is not a variable", self.function)
        return both[0]

    def _text(self, statements: Sequence[ast.stmt]) -> str:
        """Return statements as they are written, with the comments above them, at the margin."""
        written = "\n".join(self._lines(statements)).strip("\n")
        same = [ast.dump(one) for one in statements]
        try:
            if [ast.dump(one) for one in ast.parse(written).body] == same:
                return written
        except SyntaxError:
            pass
        return "\n".join(ast.unparse(one) for one in statements)

    def _lines(self, statements: Sequence[ast.stmt]) -> Iterator[str]:
        for one in statements:
            start, end = one.lineno - 1, one.end_lineno or one.lineno
            while start and self.source.lines[start - 1].strip().startswith("#"):
                start -= 1
            if start and not self.source.lines[start - 1].strip():
                yield ""
            yield from (_dedented(line, one.col_offset) for line in self.source.lines[start:end])


@dataclass
class _Flow:
    """Variables that cross from one part to another.

    Attributes:
        arguments: of `__call__`, which PREPARE has.
        counters: variables of the loop, which each part of a step receives.
        times: what the loop goes through.
        frames: what is answered in the end.
    """

    statements: dict[str, list[ast.stmt]]
    arguments: Sequence[str]
    counters: Sequence[str]
    times: ast.expr
    frames: ast.expr | None

    def parts(self, text: Callable[[Sequence[ast.stmt]], str]) -> dict[str, Part]:
        """Return each part with what it takes of others, and leaves to them."""
        known = {name: set(self.counters if name in _OF_STEP else ()) for name in self.statements}
        known[PREPARE] = set(self.arguments)
        stored = {name: known[name] | {one for node in body for one in of_tree(node).stored}
                  for name, body in self.statements.items()}  # fmt: skip
        left = {one for name, names in stored.items() if name != FINISH for one in names}
        takes = {name: self._needed(name, known[name]) & left for name in self.statements}
        takes[PREPARE] = set()
        read = {one for names in takes.values() for one in names}
        found = {}
        for name, body in self.statements.items():
            behind = read | names_in(self.times) if name == PREPARE else read
            leaves = sorted(stored[name] & behind) if name != FINISH else []
            sure = known[name] | takes[name] | set(_certain(body))
            unsure = tuple(one for one in leaves if one not in sure)
            found[name] = Part(text(body), tuple(sorted(takes[name])), tuple(leaves), unsure)
        return found

    def _needed(self, name: str, known: set[str]) -> set[str]:
        """Return the variables that a part may read before it has assigned them."""
        ends = [ast.Expr(self.frames)] if name == FINISH and self.frames is not None else []
        return set(_read_first([*self.statements[name], *ends], set(known)))


def _read_first(body: Sequence[ast.stmt], known: set[str]) -> Iterator[str]:
    """Yield variables that statements may read before they assign them; what they surely assign joins `known`."""
    for node in body:
        if isinstance(node, ast.If):
            yield from _unknown(node.test, known)
            branches = [set(known), set(known)]
            yield from _read_first(node.body, branches[0])
            yield from _read_first(node.orelse, branches[1])
            known |= branches[0] & branches[1]
        elif isinstance(node, ast.With):
            for item in node.items:
                yield from _unknown(item, known)
            yield from _read_first(node.body, known)
        elif isinstance(node, ast.For):
            yield from _unknown(node.iter, known)
            yield from _read_first(node.body, known | of_tree(node.target).stored)
            yield from _read_first(node.orelse, set(known))
        else:
            inner = set(known)
            yield from _unknown(node, inner)
            known |= set(_certain([node]))


def _unknown(node: ast.AST, known: set[str]) -> Iterator[str]:
    for name, is_stored in marked(node):
        if is_stored:
            known.add(name)
        elif name not in known:
            yield name


def _certain(body: Sequence[ast.stmt]) -> Iterator[str]:
    """Yield variables that statements assign whatever happens."""
    for node in body:
        if isinstance(node, ast.If):
            yield from set(_certain(node.body)) & set(_certain(node.orelse))
        elif isinstance(node, ast.With):
            yield from (name for item in node.items if item.optional_vars for name in names_in(item.optional_vars))
            yield from _certain(node.body)
        elif not isinstance(node, (ast.For, ast.While, ast.Try)):
            yield from of_tree(node).stored


def _without_docstring(body: Sequence[ast.stmt]) -> list[ast.stmt]:
    first = body[0] if body else None
    documented = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    return list(body[1:] if documented else body)


def only_answers(node: ast.stmt) -> bool:
    """Return whether every branch of a statement returns."""
    if isinstance(node, ast.If):
        return all(only_answers(one) for one in [*node.body, *node.orelse])
    return isinstance(node, ast.Return)


def _first_answer(node: ast.stmt) -> ast.expr | None:
    """Return the first thing that a return statement answers: of a tuple its first element, of an output its first
    field.
    """
    if not isinstance(node, ast.Return) or node.value is None:
        return None
    value = node.value
    if isinstance(value, ast.Call):
        given = [*value.args, *(one.value for one in value.keywords)]
        return given[0] if given else None
    return value.elts[0] if isinstance(value, ast.Tuple) and value.elts else value


def _inner(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and those in it, but for what functions and loops in it keep to themselves."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, (ast.FunctionDef, ast.Lambda)):
            yield from _inner(child)


def _steps(node: ast.AST) -> bool:
    return any(isinstance(one, ast.Call) and dotted(one.func) == _STEP for one in ast.walk(node))


def _hosts(node: ast.stmt, loop: ast.For) -> bool:
    """Return whether a statement of a round serves whoever runs the loop: progress, callbacks, interruption."""
    names, text = names_in(node), ast.unparse(node)
    if isinstance(node, ast.If):
        tested = names_in(node.test)
        if dotted(node.test) in _INTERRUPT and isinstance(node.body[0], ast.Continue):
            return True
        if tested and all(one.startswith(_CALLBACK) or one in _HOSTED for one in tested):
            return True
    return "progress_bar" in names or "self.progress_bar" in text or bool(names & _HOSTED and not _steps(node))


def _frees(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and _FREE in ast.unparse(node)


def _unwrapped(node: ast.expr) -> ast.expr:
    """Return the iterable of a loop, without counting and progress."""
    while isinstance(node, ast.Call) and dotted(node.func) in _WRAPPERS and node.args:
        node = node.args[0]
    return node


def _counters(loop: ast.For) -> tuple[str, str]:
    """`i` and `t` of `for i, t in enumerate(timesteps)`."""
    names = [node.id for node in ast.walk(loop.target) if isinstance(node, ast.Name)]
    counted = isinstance(loop.iter, ast.Call) and dotted(loop.iter.func) == "enumerate"
    return (names[0], names[-1]) if counted and len(names) > 1 else ("", names[-1])


def _dedented(line: str, columns: int) -> str:
    return line[columns:] if not line[:columns].strip() else line


def _import(name: str, one: Imported) -> str:
    return f"import {one.module}" if one.module.partition(".")[0] == name else f"import {one.module} as {name}"
