"""Divides the statements of a pipeline's `__call__` among blocks, in their order."""

import ast
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import libcst as cst

from omni_kit.errors import Refusal
from omni_kit.pysource.names import Names
from omni_kit.pysource.source import dotted
from omni_kit.targets.diffusers.modular.names import names, together, tree
from omni_kit.targets.diffusers.modular.pipeline_class import Opened
from omni_kit.targets.diffusers.porting.syntax import after_docstring
from omni_kit.upstream.diffusers.call_parts import only_answers
from omni_kit.upstream.diffusers.guiders import COMPONENT
from omni_kit.upstream.diffusers.pipelines import SCHEDULER

INPUT, TEXT, TIMESTEPS, LATENTS = "input", "text_encoder", "set_timesteps", "prepare_latents"
CONDITIONS, DENOISE, DECODE = "prepare_conditions", "denoise", "decode"
_ENCODERS = ("encoder", "tokenizer", "processor")
_TOKENS = "tokenizer"
_DRAWS = ("randn_tensor", "randn", "randn_like")
_LEAVES = (ast.Continue, ast.Break, ast.Return)


@dataclass(frozen=True)
class Part:
    """Statements that become one block.

    Attributes:
        name: of the block.
        statements: as the pipeline has them.
    """

    name: str
    statements: tuple[cst.BaseStatement, ...]

    @cached_property
    def names(self) -> Names:
        """Names that they read and bind."""
        return together(self.statements)


@dataclass(frozen=True)
class Looped:
    """The statement with the loop over steps.

    Attributes:
        statement: as the pipeline has it.
        loop: the loop in it.
        before, after: what each round does before and after its blocks: control flow, and the progress bar.
        parts: what becomes blocks of the loop; none if a round cannot be divided.
        undivided: why, and empty if it could.
    """

    statement: cst.BaseStatement
    loop: cst.For
    before: tuple[cst.BaseStatement, ...]
    parts: tuple[Part, ...]
    after: tuple[cst.BaseStatement, ...]
    undivided: str = ""

    @cached_property
    def targets(self) -> tuple[str, ...]:
        """Loop variables: `i` and `t`."""
        found = ast.walk(ast.parse(cst.Module([]).code_for_node(self.loop.target)))
        return tuple(node.id for node in found if isinstance(node, ast.Name))

    @cached_property
    def around(self) -> Names:
        """Names that the statement reads and binds outside of the blocks."""
        rest = [*self.before, *self.after]
        kept = self.loop.with_changes(body=cst.IndentedBlock(rest or [cst.parse_statement("pass")]))
        return names(self.statement.deep_replace(self.loop, kept))

    @property
    def whole(self) -> Names:
        """Names that the whole statement reads and binds."""
        return names(self.statement)


@dataclass(frozen=True)
class Division:
    """A `__call__` in parts: those before the loop, the loop, and what comes behind.

    Attributes:
        answers: what it answers, by the names of its output: name -> expression.
    """

    before: tuple[Part, ...]
    loop: Looped
    after: Part
    answers: dict[str, str]


class Divider:
    """Divides one pipeline."""

    def __init__(self, opened: Opened) -> None:
        self._opened = opened
        self._where = opened.call.home.source.where

    def division(self) -> Division:
        """Return the parts of `__call__`.

        Raises:
            Refusal: it has no loop over steps, or answers in the middle; where.
        """
        body = list(self._opened.call.written.body.body)
        statements = [one for one in body[after_docstring(body) :] if isinstance(one, cst.BaseStatement)]  # type: ignore[arg-type]
        statements, answers = self._answered(statements)
        place, loop = self._loop(statements)
        return Division(
            tuple(self._prepared(statements[:place])), self._looped(statements[place], loop),
            Part(DECODE, tuple(statements[place + 1 :])), answers,
        )  # fmt: skip

    def _name(self) -> str:
        return f"{self._opened.cls.node.name}.__call__ ({self._where(self._opened.call.node)})"

    def _answered(self, statements: list[cst.BaseStatement]) -> tuple[list[cst.BaseStatement], dict[str, str]]:
        """Return the statements without those at the end that only answer, and what they answer."""
        answers: dict[str, str] = {}
        while statements and (found := tree(statements[-1]).body[0]) and only_answers(found):
            answers = answers or _answer(found)
            statements = statements[:-1]
        early = [node for one in statements for node in ast.walk(tree(one)) if isinstance(node, ast.Return)]
        if early:
            raise Refusal(f"{self._name()} returns before its end and cannot be split into blocks",
                          "return once, at its end")  # fmt: skip
        return statements, answers

    def _loop(self, statements: Sequence[cst.BaseStatement]) -> tuple[int, cst.For]:
        """Return the place of the statement with the loop over steps, and the loop."""
        found = [(place, loop) for place, one in enumerate(statements) for loop in _loops(one) if self._step(loop)]
        if not found or len({place for place, _ in found}) > 1:
            many = "several loops" if found else "no loop"
            raise Refusal(f"{self._name()} has {many} over steps of its {SCHEDULER} and cannot be split into blocks",
                          "pass a pipeline with one loop over steps")  # fmt: skip
        return found[0]

    def _prepared(self, statements: Sequence[cst.BaseStatement]) -> Iterator[Part]:
        """Yield the parts before the loop: each begins with what the statements that it is named after need."""
        bounds, called, behind = [0], [INPUT], 0
        for kind, first, last in self._groups(statements):
            bounds.append(self._begin(statements, behind, first, last))
            called.append(kind)
            behind = last + 1
        if behind:
            bounds.append(behind)
            called.append(CONDITIONS)
        counted: dict[str, int] = {}
        for name, start, end in zip(called, bounds, [*bounds[1:], len(statements)], strict=True):
            if start < end:
                counted[name] = counted.get(name, 0) + 1
                yield Part(name if counted[name] == 1 else f"{name}_{counted[name]}", tuple(statements[start:end]))

    def _groups(self, statements: Sequence[cst.BaseStatement]) -> list[tuple[str, int, int]]:
        """Return what statements do, with the first and the last of each run that does it."""
        groups: list[tuple[str, int, int]] = []
        for place, one in enumerate(statements):
            kind = self._kind(one)
            if not kind or (kind == TEXT and any(group[0] != TEXT for group in groups)):
                continue  # also pictures and the like that are encoded as conditions
            if groups and groups[-1][0] == kind:
                groups[-1] = (kind, groups[-1][1], place)
            else:
                groups.append((kind, place, place))
        return groups

    def _begin(self, statements: Sequence[cst.BaseStatement], earliest: int, first: int, last: int) -> int:
        """Return the beginning of a part: the first statement that its defining statements need."""
        needed = set(together(statements[first : last + 1]).read)
        begin = first
        for place in range(first - 1, earliest - 1, -1):
            found = names(statements[place])
            if found.stored & needed:
                needed |= found.read
                begin = place
        return begin

    def _kind(self, statement: cst.BaseStatement) -> str:
        """Return what a statement does: encode prompts, set steps or draw latents; empty for anything else."""
        parsed = tree(statement)
        reached = list(self._reached(parsed, set()))
        encoders = {one.name for one in self._opened.pipeline.components if one.role in _ENCODERS}
        called = {dotted(node.func) or "" for one in reached for node in ast.walk(one) if isinstance(node, ast.Call)}
        read = {dotted(node) for one in reached for node in ast.walk(one) if isinstance(node, ast.Attribute)}
        if any(f"self.{name}" in called or (name.startswith(_TOKENS) and f"self.{name}" in read) for name in encoders):
            return TEXT
        handed = (dotted(value) for node in ast.walk(parsed) if isinstance(node, ast.Call)
                  for value in [*node.args, *(one.value for one in node.keywords)])  # fmt: skip
        if f"self.{SCHEDULER}.set_timesteps" in called or f"self.{SCHEDULER}" in handed:
            return TIMESTEPS
        drawn = any(name.rpartition(".")[2] in _DRAWS for name in called)
        return LATENTS if drawn else ""

    def _reached(self, node: ast.AST, seen: set[str]) -> Iterator[ast.AST]:
        """Yield a statement, and the methods of the pipeline that it calls."""
        yield node
        for inner in ast.walk(node):
            name = (dotted(inner.func) or "") if isinstance(inner, ast.Call) else ""
            own = name.removeprefix("self.")
            if own != name and own not in seen and (method := self._opened.method(own)) is not None:
                yield from self._reached(method.node, seen | {own})

    def _looped(self, statement: cst.BaseStatement, loop: cst.For) -> Looped:
        body = list(loop.body.body)
        before = _while(body, lambda one: _leaves(one))
        after = _behind(body[len(before) :], statement)
        inner = [one for one in body[len(before) : len(body) - len(after)] if isinstance(one, cst.BaseStatement)]
        found = Looped(statement, loop, tuple(before), (), tuple(after))
        why = self._indivisible(found, inner)
        if why:
            return replace(found, before=tuple(body), after=(), undivided=why)  # type: ignore[arg-type]
        return replace(found, parts=tuple(self._rounds(inner)))

    def _indivisible(self, found: Looped, inner: Sequence[cst.BaseStatement]) -> str:
        if any(_leaves(one) for one in inner):
            return "an iteration ends early"
        if together(inner).stored & set(found.targets):
            return f"a round assigns {', '.join(found.targets)}"
        return "" if inner else "a round is empty"

    def _rounds(self, inner: Sequence[cst.BaseStatement]) -> Iterator[Part]:
        """Before the denoiser, the denoiser with guidance, and from the scheduler's step on."""
        asked = [place for place, one in enumerate(inner) if self._asks(one)]
        step = next((place for place, one in enumerate(inner) if self._step(one)), len(inner))
        first, last = (min(asked), step) if asked and min(asked) < step else (step, step)
        answers = together(inner[first:last]).stored if asked else frozenset()
        while last > first and not names(inner[last - 1]).all & (answers - names(inner[last - 1]).stored) \
                and last - 1 not in asked:  # fmt: skip
            last -= 1
        found = (("before_denoiser", 0, first), ("denoiser", first, last), ("after_denoiser", last, len(inner)))
        yield from (Part(name, tuple(inner[start:end])) for name, start, end in found if start < end)

    def _asks(self, statement: cst.BaseStatement) -> bool:
        """Return whether it calls a denoiser or a guider, also by a variable that holds one."""
        denoisers = {f"self.{one.name}" for one in self._opened.pipeline.components if one.role == "denoiser"}
        denoisers |= {f"self.{name}" for name in self._opened.parts if name.startswith(COMPONENT)}
        held = {
            target.id
            for node in ast.walk(self._opened.call.node)
            if isinstance(node, ast.Assign) and dotted(node.value) in denoisers
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        called = [dotted(node.func) or "" for node in ast.walk(tree(statement)) if isinstance(node, ast.Call)]
        guiders = {name for name in denoisers | held if COMPONENT in name}
        return any(name in denoisers | held or name.rpartition(".")[0] in guiders for name in called)

    def _step(self, statement: cst.CSTNode) -> bool:
        calls = (node for node in ast.walk(tree(statement)) if isinstance(node, ast.Call))
        return any(dotted(node.func) == f"self.{SCHEDULER}.step" for node in calls)


def _loops(node: cst.CSTNode) -> Iterator[cst.For]:
    """Yield the loops in a statement, outer ones first."""
    if isinstance(node, cst.For):
        yield node
    for child in node.children:
        yield from _loops(child)


def _leaves(statement: cst.CSTNode) -> bool:
    """Return whether a statement can end the round, or all rounds."""
    return any(_outer(tree(statement)))


def _outer(node: ast.AST) -> Iterator[ast.AST]:
    """Yield statements that leave the loop around `node`; those of loops and functions in it leave these."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, _LEAVES):
            yield child
        elif not isinstance(child, (ast.For, ast.While, ast.FunctionDef, ast.Lambda)):
            yield from _outer(child)


def _while(body: Sequence[cst.CSTNode], holds: Callable[[cst.CSTNode], bool]) -> list[cst.BaseStatement]:
    found: list[cst.BaseStatement] = []
    for one in body:
        if not isinstance(one, cst.BaseStatement) or not holds(one):
            break
        found.append(one)
    return found


def _behind(body: Sequence[cst.CSTNode], statement: cst.BaseStatement) -> list[cst.BaseStatement]:
    """Return the end of an iteration, from the first statement that needs the loop's context, its progress bar."""
    around = {item.asname.name.value for item in getattr(statement, "items", ())
              if item.asname is not None and isinstance(item.asname.name, cst.Name)}  # fmt: skip
    statements = [one for one in body if isinstance(one, cst.BaseStatement)]
    first = next((place for place, one in enumerate(statements) if names(one).all & around), len(statements))
    return statements[first:]


def _answer(node: ast.stmt) -> dict[str, str]:
    """Return the fields of an output class that a statement answers with; else the elements of a tuple, by
    their names.
    """
    if not isinstance(node, ast.Return) or node.value is None:
        return {}
    value = node.value
    if isinstance(value, ast.Call):
        named = {one.arg: ast.unparse(one.value) for one in value.keywords if one.arg}
        return named or {ast.unparse(one): ast.unparse(one) for one in value.args if isinstance(one, ast.Name)}
    items = value.elts if isinstance(value, ast.Tuple) else [value]
    return {one.id: one.id for one in items if isinstance(one, ast.Name)}
