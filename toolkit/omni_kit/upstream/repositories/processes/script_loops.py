"""Sampling loops that no function offers, at the top of a script or next to a training: cut out with what they read."""

import ast
import copy
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import suppress

from omni_kit.pysource.eval import Unsupported
from omni_kit.pysource.nodes import calls
from omni_kit.pysource.reads import literal
from omni_kit.pysource.signatures import passed
from omni_kit.pysource.source import SourceFile, dotted
from omni_kit.upstream.repositories.processes.call_arguments import BEGUN, COUNT, DENOISER, STEPS
from omni_kit.upstream.repositories.processes.class_members import plain_arguments
from omni_kit.upstream.repositories.processes.sampler_call import AuthorsCall
from omni_kit.upstream.repositories.processes.sampler_entries import makes
from omni_kit.upstream.repositories.processes.schedule_arguments import IS_TRAINED
from omni_kit.upstream.repositories.published import options_of
from omni_kit.upstream.repositories.reference import Reference
from omni_kit.upstream.repositories.sampler_step.flow import binds, flat, needed, needed_in_loop, reads
from omni_kit.upstream.repositories.sampler_step.loop_statements import value_variables
from omni_kit.upstream.repositories.sampler_step.members import own_names, stored

_DRAWS = ("randn", "randn_like", "randn_tensor")
_PARSES = ("parse_args", "parse_known_args")
_TRAINS, _OPTIONS = "backward", "namespace"
_MOST = 20
_QUOTES = '"""'
Loop = ast.For | ast.While


def script_loops(reference: Reference, source: SourceFile) -> Iterator[AuthorsCall]:
    """Yield the calls that run a loop of a file by itself, with a denoiser as the model that the file makes there.

    Each is yielded as one that goes all steps of training, where a number of these is read, and as one that is told how
    many steps it goes.
    """
    models = {name for node in ast.walk(source.tree) if isinstance(node, ast.Assign)
              and any(makes(source, one, reference.cls.node) for one in calls(node.value))
              for name in stored(node.targets)}  # fmt: skip
    for place in _places(source.tree.body) if models else ():
        cut = _Cut(reference, source, place, models)
        try:
            text, moved, model, trained = cut.text()
        except Unsupported:
            continue
        given = f"{model}={DENOISER}, {BEGUN}={BEGUN}, {STEPS}={STEPS}"
        called = f"ran(script, {source.module!r}, {moved!r}, {given})"
        whole = AuthorsCall(
            source.where(place[-1]), source.module, f"the loop of {source.path.name}", _around(place), called,
            draws=False, trained=trained, script=text,
        )  # fmt: skip
        yield from ([whole] if trained else [])
        yield AuthorsCall(whole.where, whole.module, whole.name, whole.function, called, draws=False, script=text)


def _places(body: Sequence[ast.stmt], above: tuple[ast.stmt, ...] = ()) -> Iterator[tuple[ast.stmt, ...]]:
    """Yield the innermost loops without a training in them, each behind the statements that it stands in."""
    for node in body:
        if isinstance(node, ast.ClassDef):
            continue
        inner = [one for name in ("body", "orelse", "finalbody") for one in getattr(node, name, [])]
        found = [*_places(inner, (*above, node))]
        yield from found
        trains = any(isinstance(one, ast.Attribute) and one.attr == _TRAINS for one in ast.walk(node))
        if isinstance(node, Loop) and not found and not trains:
            yield (*above, node)


def _around(place: Sequence[ast.stmt]) -> str:
    return next((one.name for one in reversed(place) if isinstance(one, ast.FunctionDef)), "loop")


class _Cut:
    """One loop, while it is cut out.

    Args:
        place: the loop, behind the statements that it stands in.
        models: the variables for instances of the class.
    """

    def __init__(
        self, reference: Reference, source: SourceFile, place: Sequence[ast.stmt], models: Set[str]
    ) -> None:  # fmt: skip
        loop = place[-1]
        assert isinstance(loop, Loop)
        self.source, self.place, self.loop, self._helpers = source, place, loop, set[str]()
        self.order = [*dict.fromkeys(name.partition("{")[0] for name in reference.forward)]
        self.asked, self.model = self._asked(loop, models)
        self.trained: dict[str, int] = {}

    def _asked(self, node: ast.AST, models: Set[str]) -> tuple[ast.Call | None, str]:
        """Return the call of a model, or of a function of the file that calls one, and the model's variable."""
        for call in calls(node):
            name = call.func.id if isinstance(call.func, ast.Name) else ""
            if name in models and len(call.args) + len(call.keywords) > 1:
                return call, name
            if (helper := self.source.functions.get(name)) is not None and helper not in self.place:
                known = name in self._helpers
                self._helpers.add(name)
                if not known and (inner := self._asked(helper, models)[1]):
                    return call, inner
        return None, ""

    def text(self) -> tuple[str, str, str, int]:
        """Return the statements, the variables for latents and for the model, and how many steps of training there
        are, 0 if that is not known.

        Raises:
            Unsupported: the loop calls no such model, moves nothing, or needs what cannot be cut out.
        """
        if self.asked is None:
            raise Unsupported("calls no model")
        model, moved, body = self.model, self._moved(), self._body()
        written = self._before(model)
        before = [self._told(one, moved) for one in written]
        wanted = self._reached(reads(body) | {moved}) - {model}
        kept, live = needed(before, wanted)
        while more := self._reached(live) - wanted - {model}:
            wanted |= more
            kept, live = needed(before, wanted)
        self._check(before, wanted)
        if not any(moved in binds(one) for one in kept):
            raise Unsupported("begins with nothing")
        sizes = _Sizes([one.value for one in written if isinstance(one, ast.Assign) and moved in binds(one)])
        told = [sizes.visit(one) for one in [*kept, body]]
        used = {one.attr for node in told for one in ast.walk(node) if isinstance(one, ast.Attribute)}
        for node in told:
            if isinstance(node, ast.Assign) and isinstance(made := node.value, ast.Call) and _is_options(made):
                made.keywords = [one for one in made.keywords if one.arg in used]
        named = used | {one.id for node in told for one in ast.walk(node) if isinstance(one, ast.Name)}
        text = "\n".join(ast.unparse(ast.fix_missing_locations(one)) for one in told)
        if STEPS not in named:
            raise Unsupported("goes a number of steps that is written there")
        if BEGUN not in text or _QUOTES in text:
            raise Unsupported("begins with no noise")
        return text, moved, model, next((value for name, value in self.trained.items() if name in named), 0)

    def _reached(self, names: Set[str]) -> set[str]:
        """Return names, with those that the file's functions of these names read."""
        found = {*names}
        for _ in range(_MOST):
            functions = (one for name in sorted(found) if (one := self.source.functions.get(name)) is not None)
            more = found.union(*(reads(one) - own_names(one) for one in functions))
            if more == found:
                break
            found = more
        return found

    def _moved(self) -> str:
        """Return the variable that the model receives as latents and that the loop changes."""
        assert self.asked is not None
        wanted = set().union(*map(value_variables, (*self.asked.args, *(one.value for one in self.asked.keywords))))
        if isinstance(self.asked.func, ast.Name) and self.asked.func.id == self.model:
            wanted = value_variables(next(iter(passed(self.asked, self.order).values())))
        changed = {name for node in self.loop.body for name in stored([node])} - stored(self._heads())
        begun = {name for node in self._earlier() for name in stored([node])}
        for _ in range(_MOST):
            if found := sorted(wanted & changed & begun):
                return found[0]
            values = [one.value for one in ast.walk(self.loop) if isinstance(one, ast.Assign) and binds(one) & wanted]
            wanted = wanted.union(*map(value_variables, values))
        raise Unsupported("moves nothing")

    def _heads(self) -> list[ast.AST]:
        return [self.loop.target] if isinstance(self.loop, ast.For) else []

    def _body(self) -> Loop:
        """Return the loop without what shows or keeps latents; as it is where that is not clear."""
        whole = copy.deepcopy(self.loop)
        test = reads(whole.test) if isinstance(whole, ast.While) else set[str]()
        with suppress(Unsupported):
            whole.body = needed_in_loop([*flat(whole.body, ())], {self._moved()} | test)[0] or whole.body
        return whole

    def _earlier(self) -> Iterator[ast.stmt]:
        """Yield the statements before the loop, from the outermost block inwards."""
        blocks: list[Sequence[ast.stmt]] = [self.source.tree.body]
        for node, inner in zip(self.place, self.place[1:], strict=False):
            every = (getattr(node, name, []) for name in ("body", "orelse", "finalbody"))
            blocks.append(next(one for one in every if inner in one))
        for block, inner in zip(blocks, self.place, strict=True):
            if isinstance(inner, ast.FunctionDef):
                for one, default in plain_arguments(inner):
                    if default is not None:
                        yield ast.Assign([ast.Name(one.arg, ast.Store())], default, lineno=inner.lineno)
            yield from block[: block.index(inner)]

    def _before(self, model: str) -> list[ast.stmt]:
        """Return the statements before the loop that go from top to bottom and do not make the model."""
        found: list[ast.stmt] = []
        for node in self._earlier():
            if isinstance(node, ast.Import | ast.ImportFrom | ast.FunctionDef | ast.ClassDef):
                continue
            try:
                found += [one for one in flat([node], ()) if model not in binds(one)]
            except Unsupported:
                found.append(node)
        return found

    @staticmethod
    def _check(before: Sequence[ast.stmt], wanted: Set[str]) -> None:
        """Check that what is left out changes nothing that is read afterwards.

        Raises:
            Unsupported: another kind of statement does.
        """
        for at, node in enumerate(before):
            changed = stored([node]) if isinstance(node, Loop | ast.With | ast.Try) else set[str]()
            if changed and (lost := sorted(changed & needed(before[at + 1 :], {*wanted})[1])):
                raise Unsupported(f"reads {', '.join(lost)}, of which it is not known what it is made of")

    def _told(self, node: ast.stmt, moved: str) -> ast.stmt:
        """Return a statement with a number of steps of one's choice, and with given noise."""
        node = copy.deepcopy(node)
        if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
            return node
        name, value = node.targets[0].id, literal(node.value)
        if type(value) is int and self._counts(name, value):
            node.value = ast.Name(STEPS, ast.Load())
        elif isinstance(node.value, ast.Call) and (dotted(node.value.func) or "").endswith(_PARSES):
            node.value = self._options()
        elif name == moved:
            node.value = _Begun().visit(node.value)
        return node

    def _counts(self, name: str, value: int) -> bool:
        if IS_TRAINED.match(name):
            self.trained.setdefault(name, value)
        return bool(IS_TRAINED.match(name) or COUNT.match(name))

    def _options(self) -> ast.expr:
        """Return an expression for the options of the command line, as they are by default."""
        values: Mapping[str, object] = options_of(self.source)
        told = (f"{name}={STEPS if type(value) is int and self._counts(name, value) else repr(value)}"
                for name, value in values.items() if name.isidentifier())  # fmt: skip
        return ast.parse(f"{_OPTIONS}({', '.join(told)})", mode="eval").body


def _is_options(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Name) and call.func.id == _OPTIONS


class _Begun(ast.NodeTransformer):
    """Replaces a draw by given noise."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Replace a draw."""
        if (dotted(node.func) or "").rpartition(".")[2] in _DRAWS:
            return ast.parse(f"{BEGUN}.clone()", mode="eval").body
        return self.generic_visit(node)


class _Sizes(ast.NodeTransformer):
    """Replaces the sizes with which noise is drawn by those of given noise."""

    def __init__(self, values: Sequence[ast.expr]) -> None:
        drawn = [one for value in values for one in calls(value)
                 if (dotted(one.func) or "").rpartition(".")[2] in _DRAWS]  # fmt: skip
        sizes = drawn[0].args if drawn else []
        sizes = sizes[0].elts if len(sizes) == 1 and isinstance(sizes[0], ast.Tuple | ast.List) else sizes
        pairs = (
            (ast.unparse(one), place) for place, one in enumerate(sizes) if isinstance(one, ast.Name | ast.Attribute)
        )
        self._places: dict[str, int] = {}
        for text, place in pairs:
            self._places.setdefault(text, place)

    def generic_visit(self, node: ast.AST) -> ast.AST:
        """Replace a size, wherever it is read."""
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
            place = self._places.get(ast.unparse(node))
            if place is not None:
                return ast.parse(f"{BEGUN}.shape[{place}]", mode="eval").body
        return super().generic_visit(node)
