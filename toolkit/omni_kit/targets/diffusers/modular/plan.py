"""The files of a modular pipeline, made of the statements of a pipeline that diffusers has."""

import ast
import shlex
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import libcst as cst

from omni_kit.errors import Refusal
from omni_kit.pysource.eval import Unsupported
from omni_kit.targets.diffusers.modular.blocks import LOOP, PROGRESS, Blocks, at_depth
from omni_kit.targets.diffusers.modular.code_dependencies import Collector, Piece
from omni_kit.targets.diffusers.modular.dividing import Divider, Division
from omni_kit.targets.diffusers.modular.flow import Flow, handed_to_callbacks
from omni_kit.targets.diffusers.modular.guiding import Guided, guided
from omni_kit.targets.diffusers.modular.in_checkout import Placed
from omni_kit.targets.diffusers.modular.members import Made, Member, Members, Reached, constant
from omni_kit.targets.diffusers.modular.pipeline_class import Method, Opened
from omni_kit.targets.diffusers.modular.rewriting import COMPONENTS
from omni_kit.targets.protocol import TODO_MARK, Decision, IntegrationPlan, NewFile, Request
from omni_kit.upstream.diffusers.guidance import guidance_of
from omni_kit.upstream.diffusers.pipelines import Pipeline
from omni_kit.upstream.subject import Subject

_FILES = ("inputs", "encoders", "before_denoise", "denoise", "decoders")
_CALLBACKS = "_callback_tensor_inputs"


def make_plan(subject: Subject, request: Request) -> IntegrationPlan:
    """Return the whole plan of one modular pipeline.

    Raises:
        BadInput: `into` is not a checkout of a known version, or one with a modular pipeline of that name.
        Refusal: no pipeline was given, or it cannot be divided; why.
    """
    if subject.pipeline is None:
        raise Refusal(
            f"{subject.given} is not a pipeline", "pass the class of a standard pipeline, or its model_index.json"
        )
    base = Placed(request, prefix_of(request)).base if request.style == "in-tree" else request.name
    return Proposal(subject.pipeline, request, base).plan()


def prefix_of(request: Request) -> str:
    """Return the prefix of the class names."""
    return "".join(part[:1].upper() + part[1:] for part in request.name.split("_"))


@dataclass(frozen=True)
class Proposal:
    """The blocks that are proposed for one pipeline.

    Attributes:
        base: where they are written.
        templates: how names of templates begin.
        own: modules that lie next to them -> how they are imported from there.
    """

    pipeline: Pipeline
    request: Request
    base: str
    templates: str = ""
    own: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def _opened(self) -> tuple[Opened, str]:
        """The pipeline, opened, with a guider; and why it has none if that is so."""
        plain = Opened(self.pipeline)
        try:
            return guided(plain), ""
        except Unsupported as reason:
            return plain, str(reason)

    @property
    def opened(self) -> Opened:
        """The pipeline, opened."""
        return self._opened[0]

    @cached_property
    def prefix(self) -> str:
        """Prefix of the class names."""
        return prefix_of(self.request)

    @cached_property
    def placed(self) -> Placed | None:
        """Its places in a checkout; None outside of one."""
        return Placed(self.request, self.prefix) if self.request.style == "in-tree" else None

    @cached_property
    def division(self) -> Division:
        """Its statements, divided."""
        return Divider(self.opened).division()

    @cached_property
    def members(self) -> Members:
        """Members that the pipeline keeps on itself."""
        return Members(self.opened)

    @cached_property
    def blocks(self) -> Blocks:
        """Its blocks."""
        given = self.opened.call.node.args
        every = [*given.posonlyargs, *given.args, *given.kwonlyargs, *filter(None, [given.kwarg])]
        asked = self.opened.cls.assigned(_CALLBACKS)
        handed = handed_to_callbacks(asked[1]) if asked is not None else []
        flow = Flow(self.division, [one.arg for one in every][1:], handed)
        return Blocks(self.opened, self.division, flow, self.members, self.prefix, self._opened[1])

    def plan(self) -> IntegrationPlan:
        """Return files, decisions and what comes next."""
        placed = self.placed
        around = tuple(self._in_tree(placed) if placed is not None else self._beside())
        place = self.request.into / self.base
        return IntegrationPlan(
            self.base,
            (*self.files(), *around),
            edits=tuple(placed.edits()) if placed is not None else (),
            todo=placed.todo() if placed is not None else (),
            rules=placed.checkout.rules if placed is not None else None,
            decisions=tuple(self._decisions()),
            next=tuple(shlex.join(["omni-kit", command, str(place)]) for command in ("check", "parity")),
        )

    def _beside(self) -> Iterator[NewFile]:
        """Yield a README and the test of a package."""
        yield self._file("README.md", "README.md.jinja")
        yield self._file(f"tests/test_{self.request.name}_parity.py", "test_parity.py.jinja")

    def _in_tree(self, placed: Placed) -> Iterator[NewFile]:
        """Tests and a page."""
        given = self.opened.call.node.args
        asked = [one.arg for one in (*given.args, *given.kwonlyargs)]
        context = {**self._context, "tester": placed.tester, "asked": asked}
        name = f"{placed.tests}/test_modular_pipeline_{self.request.name}.py"
        yield NewFile(name, f"{self.templates}test_in_tree.py.jinja", context=context)
        yield NewFile(f"{placed.tests}/__init__.py")
        yield NewFile(placed.page, f"{self.templates}page.md.jinja", context=context)

    def files(self) -> Iterator[NewFile]:
        """Yield the package."""
        homes = self.opened.homes if isinstance(self.opened, Guided) else {}
        collector = Collector(self.members.function, self._lib, self.own, homes)
        every = [*self.blocks.sequence, *self.blocks.rounds]
        texts = [one.body for one in every]
        for file in _FILES:
            own = [one for one in every if one.file == file]
            if own:
                own.sort(key=lambda one: one.sort == LOOP)  # behind the blocks that it runs
                around = collector.around(file, [piece for one in own for piece in one.pieces])
                texts += around.functions.values()
                yield self._file(f"{file}.py", "blocks.py.jinja", blocks=own, around=around)
        members, nowhere = self.members.own(self._reached)
        if not any(f"{COMPONENTS}.{PROGRESS}" in text for text in texts):
            members.pop(PROGRESS, None)
        unknown = [name for name in nowhere if name not in {*self.blocks.left, PROGRESS}]
        pieces = [self._member_piece(name, one) for name, one in members.items()]
        source = self.opened.cls.source
        around = collector.around("modular_pipeline", [*pieces, Piece(", ".join(self.opened.bases), source)])
        if any(isinstance(one, Made) and one.replaced for one in members.values()):
            around.imports.append("from functools import cached_property")
        yield self._file("modular_pipeline.py", "modular_pipeline.py.jinja", around=around, unknown=unknown,
                         members=[_member(name, one) for name, one in members.items()])  # fmt: skip
        yield self._file(f"modular_blocks_{self.request.name}.py", "modular_blocks.py.jinja")
        yield self._file("__init__.py", "__init__.py.jinja" if self.placed is None else "init_in_tree.py.jinja")

    @cached_property
    def _reached(self) -> Reached:
        return self.members.reached([self.opened.call.node])

    def _member_piece(self, name: str, one: Member) -> Piece:
        home = self.opened.cls if not isinstance(one, Method) else one.home
        return Piece(f"class _:\n{_member(name, one)}", home.source)

    def _file(self, place: str, template: str, **context: object) -> NewFile:
        return NewFile(f"{self.base}/{place}", f"{self.templates}{template}", context={**self._context, **context})

    @property
    def _lib(self) -> str:
        """Prefix of imports from diffusers."""
        return "diffusers." if self.placed is None else "..."

    @property
    def _context(self) -> dict[str, object]:
        return {
            "name": self.request.name, "prefix": self.prefix, "upstream": self.opened.cls.node.name, "mark": TODO_MARK,
            "where": self.opened.call.home.source.where(self.opened.call.node), "bases": self.opened.bases,
            "sequence": self.blocks.sequence, "answers": list(self.division.answers), "lib": self._lib,
            "in_tree": self.placed is not None,
        }  # fmt: skip

    def _decisions(self) -> Iterator[Decision]:
        where = self.opened.call.home.source.where
        for one in self.blocks.sequence:
            inner = f", which runs {', '.join(name for name, _ in one.blocks)}" if one.blocks else ""
            yield Decision(one.name, one.cls, f"{one.says.rstrip('.')}{inner}", where(self.opened.call.node))
        for name in dict.fromkeys(self.blocks.left):
            reason = "modular pipelines have no such method; a ComponentsManager moves their models"
            yield Decision(f"{name}()", "left out", reason, where(self.opened.call.node))
        guidance = guidance_of(self.pipeline)
        if isinstance(self.opened, Guided):
            reason = f"its forward computes {guidance.formula}, as the pipeline does; scales are those of the guider"
            yield Decision("guidance", self.opened.guider.name, reason, guidance.where)
        elif guidance.scale:
            reason = f"its statements are copied unchanged: {self._opened[1]}"
            yield Decision("guidance", "the pipeline's own", reason, guidance.where)


def _member(name: str, one: Member) -> str:
    """Return a member of the modular pipeline's class, as it is written in it."""
    if isinstance(one, Method):
        blank = [cst.EmptyLine(indent=False)]
        setters = [written.with_changes(leading_lines=blank) for _, written in one.setters]
        return at_depth([one.written.with_changes(leading_lines=[]), *setters], 1)
    if constant(one.body) and isinstance(one.body[0], ast.Return) and one.body[0].value is not None:
        return f"    {name} = {ast.unparse(one.body[0].value)}"
    body = textwrap.indent("\n".join(ast.unparse(node) for node in one.body), " " * 8)
    return f"    @{'cached_property' if one.replaced else 'property'}\n    def {name}(self):\n{body}"
