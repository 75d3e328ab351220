"""The blocks of a modular pipeline, each as its file has it."""

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import libcst as cst

from omni_kit.targets.diffusers.modular.code_dependencies import Piece
from omni_kit.targets.diffusers.modular.dividing import DECODE, DENOISE, INPUT, TEXT, Division, Part
from omni_kit.targets.diffusers.modular.flow import Flow, Passed
from omni_kit.targets.diffusers.modular.members import Members
from omni_kit.targets.diffusers.modular.names import tree
from omni_kit.targets.diffusers.modular.pipeline_class import Opened
from omni_kit.targets.diffusers.modular.rewriting import STATE, Rewrite, rewritten
from omni_kit.targets.protocol import TODO_MARK
from omni_kit.upstream.diffusers.guidance import guidance_of

LEAF, ROUND, LOOP = "ModularPipelineBlocks", "round", "LoopSequentialPipelineBlocks"
_FILES = {INPUT: "inputs", TEXT: "encoders", DENOISE: "denoise", DECODE: "decoders"}
_BEFORE = "before_denoise"
PROGRESS = "progress_bar"  # blocks with a loop have one of their own
_STEP = "__loop_step__"
_NAMED = re.compile(r"^\w+")  # the class, before what it is made with
_SAYS = {
    INPUT: "Checks inputs and fills in defaults.",
    TEXT: "Embeds the prompts.",
    "set_timesteps": "Sets the scheduler's timesteps.",
    "prepare_latents": "Draws the initial noise.",
    "prepare_conditions": "Prepares the denoiser's inputs other than latents and prompts.",
    "before_denoiser": "Prepares the denoiser's inputs of one step.",
    "denoiser": "Calls the denoiser and applies guidance.",
    "after_denoiser": "Takes one scheduler step.",
    DENOISE: "Denoises the latents step by step.",
    DECODE: "Decodes the latents to the output.",
}


@dataclass(frozen=True)
class Input:
    """Input of a block: a name, the type as written or empty, and the default as written."""

    name: str
    hint: str = ""
    default: str = ""
    required: bool = False


@dataclass(frozen=True)
class Block:
    """One block.

    Attributes:
        name: in the sequence, or in the loop.
        cls: its class.
        sort: LEAF, ROUND for a block of the loop, or LOOP.
        says: what it does.
        parts: components with their classes, by the names that the pipeline's file has for them.
        settings: values of the config with their defaults, as written.
        body: of `__call__`, indented.
        blocks: of a loop: names and classes of what each round runs.
    """

    name: str
    cls: str
    sort: str
    says: str
    parts: tuple[tuple[str, str], ...]
    settings: tuple[tuple[str, str], ...]
    inputs: tuple[Input, ...]
    outputs: tuple[str, ...]
    body: str
    pieces: tuple[Piece, ...]
    targets: tuple[str, ...] = ()
    blocks: tuple[tuple[str, str], ...] = ()
    todo: str = ""

    @property
    def file(self) -> str:
        """The module that it is in."""
        return _FILES["denoise" if self.sort in (ROUND, LOOP) else self.name] if self._placed else _BEFORE

    @property
    def _placed(self) -> bool:
        return self.sort in (ROUND, LOOP) or self.name in _FILES


@dataclass
class Blocks:
    """Makes the blocks of one pipeline.

    Attributes:
        prefix: what the names of classes begin with.
        unguided: why no guider guides; empty if one does.
        left: methods that only standard pipelines have, and whose calls were left out.
    """

    opened: Opened
    division: Division
    flow: Flow
    members: Members
    prefix: str
    unguided: str = ""
    left: list[str] = field(default_factory=list)

    @cached_property
    def sequence(self) -> list[Block]:
        """Blocks in order."""
        before = [self._leaf(part, self.flow.before(place)) for place, part in enumerate(self.division.before)]
        after = self._leaf(self.division.after, self.flow.after(), self.division.answers)
        return [*before, self._loop(), after]

    @cached_property
    def rounds(self) -> list[Block]:
        """Blocks of each iteration of the loop."""
        return [self._round(part) for part in self.division.loop.parts]

    def _leaf(self, part: Part, passed: Passed, answers: dict[str, str] | None = None) -> Block:
        body = [*_absent(passed), *self._rewritten(part.statements), *self._answers(answers or {})]
        return self._block(part.name, f"{self.prefix}{_camel(part.name)}Step", LEAF, body,
                           self._inputs(passed.inputs), passed.outputs, part.statements)  # fmt: skip

    def _answers(self, answers: dict[str, str]) -> list[cst.BaseStatement]:
        """The answers in the state, by the names that the pipeline's output has for them."""
        told = Rewrite(self.flow.crossing, self.members.function)
        values = {name: rewritten(cst.parse_expression(value), told) for name, value in answers.items()}
        code = {name: cst.Module([]).code_for_node(value) for name, value in values.items()}
        return [_statement(f"{STATE}.{name} = {value}") for name, value in code.items() if value != f"{STATE}.{name}"]

    def _round(self, part: Part) -> Block:
        asks = part.name == "denoiser" and bool(guidance_of(self.opened.pipeline).scale) and bool(self.unguided)
        todo = f"{TODO_MARK}: the pipeline's own guidance, not a guider's: {self.unguided}" if asks else ""
        body = self._rewritten(part.statements)
        inputs = self._inputs(self.flow.round(part))
        made = self._block(part.name, f"{self.prefix}Loop{_camel(part.name)}", ROUND, body, inputs, (),
                           part.statements, todo)  # fmt: skip
        return replace(made, targets=self.division.loop.targets)

    def _loop(self) -> Block:
        loop, passed = self.division.loop, self.flow.loop()
        cls = f"{self.prefix}DenoiseStep"
        if loop.undivided:
            body = [*_absent(passed), *self._rewritten([loop.statement])]
            return self._block(DENOISE, cls, LEAF, body, self._inputs(passed.inputs), passed.outputs, [loop.statement],
                               f"{TODO_MARK}: not divided: {loop.undivided}")  # fmt: skip
        inner = loop.loop.body.with_changes(body=[*loop.before, _statement(_STEP), *loop.after])
        statement = loop.statement.deep_replace(loop.loop, loop.loop.with_changes(body=inner))
        body = [*_absent(passed), *self._rewritten([statement], frozenset({PROGRESS}))]
        made = self._block(DENOISE, cls, LOOP, body, self._inputs(self.flow.around()), passed.outputs,
                           [statement])  # fmt: skip
        given = "".join(f", {name}={name}" for name in loop.targets)
        step = f"components, {STATE} = self.loop_step(components, {STATE}{given})"
        return replace(made, body=made.body.replace(_STEP, step), targets=loop.targets,
                     blocks=tuple((one.name, one.cls) for one in self.rounds))  # fmt: skip

    def _block(
        self, name: str, cls: str, sort: str, body: Sequence[cst.BaseStatement], inputs: tuple[Input, ...],
        outputs: tuple[str, ...], statements: Sequence[cst.BaseStatement], todo: str = "",
    ) -> Block:  # fmt: skip
        reached = self.members.reached([tree(one) for one in statements])
        parts = tuple((part, self.opened.parts[part]) for part in reached.parts)
        settings = tuple((one, self.opened.settings[one]) for one in reached.settings)
        source = self.opened.call.home.source
        hints = ", ".join([*(one.hint for one in inputs if one.hint), *(one.default for one in inputs if one.default),
                           *(word for _, one in parts for word in _NAMED.findall(one.partition("=")[0])),
                           *("FrozenDict" for _, one in parts if "FrozenDict(" in one)])  # fmt: skip
        code = cst.Module(list(body)).code  # type: ignore[arg-type]
        pieces = (Piece(code, source), Piece(f"[{hints}]", source))
        what = next((says for key, says in _SAYS.items() if name == key or name.startswith(f"{key}_")), "")
        return Block(name, cls, sort, what, parts, settings, inputs, outputs, at_depth(body, 2), pieces, todo=todo)

    def _rewritten(
        self, statements: Sequence[cst.BaseStatement], kept: frozenset[str] = frozenset()
    ) -> list[cst.BaseStatement]:
        told = Rewrite(self.flow.crossing, self.members.function, kept, self._leaves_out)
        return [rewritten(one, told) for one in statements if not self._leaves_out(one)]

    def _leaves_out(self, node: cst.CSTNode) -> bool:
        name = self.members.leaves_out(tree(node).body[0])
        if name:
            self.left.append(name)
        return bool(name)

    def _inputs(self, names: Sequence[str]) -> tuple[Input, ...]:
        return tuple(self._arguments.get(name) or Input(name) for name in names)

    @cached_property
    def _arguments(self) -> dict[str, Input]:
        """Arguments of `__call__`."""
        given = self.opened.call.node.args
        positional = [*given.posonlyargs, *given.args]
        defaults = [*[None] * (len(positional) - len(given.defaults)), *given.defaults, *given.kw_defaults]
        every = list(zip([*positional, *given.kwonlyargs], defaults, strict=True))[1:]
        found = {one.arg: Input(one.arg, _hint(one.annotation), _written(default), default is None)
                 for one, default in every}  # fmt: skip
        return found | ({given.kwarg.arg: Input(given.kwarg.arg, default="{}")} if given.kwarg else {})


def at_depth(statements: Sequence[cst.BaseStatement], depth: int) -> str:
    """Return statements as they are written in so many blocks of code; texts over several lines stay as they are."""
    body: Sequence[cst.BaseStatement] = statements
    for _ in range(depth):
        body = [cst.If(cst.Name("True"), cst.IndentedBlock(list(body)))]
    return cst.Module(list(body)).code.split("\n", depth)[depth].strip("\n")  # type: ignore[arg-type]


def _absent(passed: Passed) -> list[cst.BaseStatement]:
    """Nothing instead of outputs that may not be assigned."""
    return [_statement(f"{STATE}.{name} = None") for name in passed.absent]


def _statement(text: str) -> cst.BaseStatement:
    return cst.parse_statement(text)


def _camel(name: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))


def _written(node: ast.expr | None) -> str:
    return ast.unparse(node) if node is not None else ""


def _hint(node: ast.expr | None) -> str:
    """Return a type as written; empty for one that cannot be evaluated, as some files never do: `"A" | B`."""
    unions = (one for one in ast.walk(node) if isinstance(one, ast.BinOp)) if node is not None else ()
    names = (side for one in unions for side in (one.left, one.right))
    return "" if any(isinstance(side, ast.Constant) and side.value for side in names) else _written(node)
