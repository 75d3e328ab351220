"""A pipeline taken apart: what its prompts become, how its noise is shaped, which steps it takes."""

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from omni_kit.pysource.eval import Unsupported
from omni_kit.pysource.signatures import passed
from omni_kit.pysource.source import dotted
from omni_kit.upstream.diffusers.calling import call_arguments
from omni_kit.upstream.diffusers.defaults import Defaults
from omni_kit.upstream.diffusers.denoising import Denoising
from omni_kit.upstream.diffusers.guidance import Guidance
from omni_kit.upstream.diffusers.pipelines import SCHEDULER
from omni_kit.upstream.diffusers.renamed_expressions import Wording
from omni_kit.upstream.diffusers.signatures import arguments

ENCODE, NOISE, _STEPS = "encode_prompt", "prepare_latents", "retrieve_timesteps"
_RANDOM, _GUIDES = "randn_tensor", "do_classifier_free_guidance"
_SET = f"self.{SCHEDULER}.set_timesteps"
_SIGMAS_AT = 4  # among the arguments of retrieve_timesteps
_CASTS = frozenset({"to", "float"})


@dataclass(frozen=True)
class Composition:
    """The stages of a pipeline before its denoiser.

    Attributes:
        encoded: what encode_prompt answers, by the names of `__call__`, in order.
        encodes: what encode_prompt is called with: argument -> expression in `__call__`.
        guides: when there are two answers, in the words that were asked for.
        conditions: argument of the denoiser -> what encode_prompt answered for the prompt, and against it.
        shape: of the noise, in those words.
        pack: the method that packs noise, and its other arguments.
        exact: noise is drawn in float32, whatever the denoiser computes in.
        sigmas: what the steps are made of; empty if the scheduler makes them.
        against: what of this could not be read, each in one line with its place.
    """

    encoded: Sequence[str] = ()
    encodes: Mapping[str, ast.expr] = field(default_factory=dict)
    guides: str = ""
    conditions: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    shape: Sequence[str] = ()
    pack: str = ""
    packing: Mapping[str, str] = field(default_factory=dict)
    exact: bool = False
    sigmas: str = ""
    against: Sequence[str] = ()


@dataclass
class Reader:
    """Reads `__call__` of a pipeline.

    Attributes:
        dynamic: its scheduler shifts its steps by what it is told, which `__call__` computes.
    """

    denoising: Denoising
    guidance: Guidance
    wording: Wording
    dynamic: bool = False
    against: list[str] = field(default_factory=list)

    def read(self) -> Composition:
        """Return everything that can be read; what cannot is said."""
        encoded, encodes, guides = self._prompts()
        shape, pack, packing, exact = self._noise()
        conditions, sigmas = self._conditions(encoded), self._sigmas()
        return Composition(
            encoded, encodes, guides, conditions, shape, pack, packing, exact, sigmas, self.against
        )  # fmt: skip

    @property
    def _function(self) -> ast.FunctionDef:
        found = self.denoising.pipeline.cls.method("__call__")
        return found[1] if found is not None else ast.parse("def __call__(self): ...").body[0]  # type: ignore[return-value]

    def _say(self, what: str, node: ast.AST | None = None) -> None:
        where = self.denoising.pipeline.cls.source.where(node) if node is not None else self.denoising.where
        self.against.append(f"{what} ({where})")

    def _prompts(self) -> tuple[list[str], dict[str, ast.expr], str]:
        statement, call = self._calling(f"self.{ENCODE}")
        if call is None or not isinstance(statement, ast.Assign):
            self._say(f"does not call {ENCODE} once, for all of its prompts")
            return [], {}, ""
        taken = arguments(self.denoising.pipeline.cls, ENCODE)
        given = passed(call, taken)
        target = statement.targets[0]
        names = [dotted(one) or "" for one in (target.elts if isinstance(target, ast.Tuple) else [target])]
        return names, given, self._guides(given.get(_GUIDES), call)

    def _guides(self, value: ast.expr | None, call: ast.Call) -> str:
        """Return when the pipeline requests two outputs."""
        if value is None:
            return ""
        name = (dotted(value) or "").removeprefix("self.")
        method = self.denoising.pipeline.cls.method(name) if (dotted(value) or "").startswith("self.") else None
        function, node = (method[1], _returned(method[1])) if method is not None else (self._function, value)
        try:
            return self.wording.tell(node, function, call.lineno if method is None else function.end_lineno or 0)
        except Unsupported as what:
            self._say(f"guides as {what} says", call)
            return ""

    def _conditions(self, encoded: Sequence[str]) -> dict[str, tuple[str, str]]:
        found: dict[str, tuple[str, str]] = {}
        apart = (self.denoising.latents, self.denoising.step)
        pairs, second = dict(self._pairs()), self._second()
        for name, value in self._handed.items():
            if name in apart or self._is_nothing(value, encoded):
                continue
            source = self._source(value)
            against = self._source(second[name]) if name in second else pairs.get(source, "")
            if source not in encoded or (against and against not in encoded):
                self._say(f"passes its denoiser {name}, which {ENCODE} does not make", value)
            found[name] = (source, against if against != source else "")
        return found

    def _second(self) -> Mapping[str, ast.expr]:
        """Return the arguments of the call against the prompt, if there is a second call."""
        if self.guidance.together or len(self._calls) < 2:
            return {}
        return self._arguments(self._calls[1])

    @cached_property
    def _calls(self) -> list[ast.Call]:
        """The calls of the denoiser that are made by default."""
        defaults = Defaults(self.wording.pipeline, self.wording.scheduler)
        made = {id(node) for one in _taken(self._function.body, defaults) for node in ast.walk(one)}
        return [call for call in self.denoising.calls if id(call) in made]

    @property
    def _handed(self) -> Mapping[str, ast.expr]:
        """Arguments of the denoiser's call for the prompt."""
        return self._arguments(self._calls[0]) if self._calls else {}

    def _arguments(self, call: ast.Call) -> Mapping[str, ast.expr]:
        order = arguments(self.denoising.denoiser.cls, "forward")
        named = {one.arg: one.value for one in call.keywords if one.arg not in (None, "return_dict")}
        return {**dict(zip(order, call.args, strict=False)), **{str(name): value for name, value in named.items()}}

    def _pairs(self) -> Iterator[tuple[str, str]]:
        """(for the prompt, against it), from where both are joined."""
        for node in ast.walk(self._function):
            parts: list[ast.expr] = []
            if isinstance(node, ast.Call) and (dotted(node.func) or "").endswith("cat") and node.args:
                parts = getattr(node.args[0], "elts", [])
            names = [one.id for one in parts if isinstance(one, ast.Name)]
            signs = [name.startswith("negative") or "uncond" in name for name in names]
            if len(names) == 2 and sum(signs) == 1:
                yield names[signs.index(False)], names[signs.index(True)]

    def _source(self, value: ast.expr) -> str:
        while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in _CASTS:
            value = value.func.value
        return dotted(value) or ""

    def _is_nothing(self, value: ast.expr, encoded: Sequence[str]) -> bool:
        """Return whether a value is None, or an option that is off by default."""
        name = (dotted(value) or "").removeprefix("self.")
        given = call_arguments(self.denoising.pipeline).get(name)
        nothing = isinstance(value, ast.Constant) and value.value is None
        return nothing or (given is not None and given.default is None and name not in encoded)

    def _noise(self) -> tuple[list[str], str, dict[str, str], bool]:
        _, call = self._calling(f"self.{NOISE}")
        method = self.denoising.pipeline.cls.method(NOISE)
        if call is None or method is None:
            self._say(f"does not call {NOISE} once")
            return [], "", {}, False
        try:
            return self._drawn(call, method[1])
        except Unsupported as what:
            self._say(f"shapes its noise by {what}", call)
        return [], "", {}, False

    def _drawn(self, call: ast.Call, method: ast.FunctionDef) -> tuple[list[str], str, dict[str, str], bool]:
        taken = arguments(self.denoising.pipeline.cls, NOISE)
        given = passed(call, taken)
        known = {"batch_size": "batch_size"}
        for name, value in given.items():
            if name not in known and name not in ("dtype", "device", "generator", "latents"):
                known[name] = f"({self.wording.tell(value, self._function, call.lineno)})"
        random = next((one for one in _calls(method) if (dotted(one.func) or "").endswith(_RANDOM)), None)
        if random is None or not random.args:
            raise Unsupported("something other than noise")
        flow = Wording(self.wording.pipeline, self.wording.scheduler, {**self.wording.words, **known})
        shape = random.args[0]
        if isinstance(shape, ast.Name):
            shape = _assigned(method, shape.id, random.lineno) or shape
        if not isinstance(shape, ast.Tuple):
            raise Unsupported("a shape that is not a tuple")
        texts = [self._inner(flow, one, method, random.lineno, known) for one in shape.elts]
        exact = "float32" in ast.unparse(given["dtype"]) if "dtype" in given else False
        packed = [one for one in _calls(method) if one.lineno > random.lineno and self._moves(one)]
        if packed and not (dotted(packed[0].func) or "").startswith("self._pack"):
            raise Unsupported(ast.unparse(packed[0].func))
        if not packed:
            return texts, "", {}, exact
        name = (dotted(packed[0].func) or "").removeprefix("self.")
        pack = self.denoising.pipeline.cls.method(name)
        if pack is None or not any(dotted(one) == "staticmethod" for one in pack[1].decorator_list):
            raise Unsupported(f"{name}, which needs the pipeline")
        names = [one.arg for one in pack[1].args.args]
        handed = dict(zip(names, packed[0].args, strict=False)) | {
            one.arg: one.value for one in packed[0].keywords if one.arg
        }
        telling = {
            key: self._inner(flow, value, method, packed[0].lineno, known) for key, value in list(handed.items())[1:]
        }
        return texts, name, telling, exact

    def _inner(
        self, flow: Wording, node: ast.expr, method: ast.FunctionDef, line: int, known: Mapping[str, str]
    ) -> str:
        """Return an expression of prepare_latents, whose arguments may be assigned again."""
        values = {}
        for inner in ast.walk(node):
            if isinstance(inner, ast.Name) and (value := _assigned(method, inner.id, line)) is not None:
                values[inner.id] = f"({self._inner(flow, value, method, value.lineno, known)})"
        return flow.tell(node, method, line, values)

    @staticmethod
    def _moves(call: ast.Call) -> bool:
        """Return whether a call on latents changes more than their kind."""
        given = [*call.args, *(one.value for one in call.keywords)]
        return (dotted(call.func) or "").startswith("self.") and any(dotted(one) == "latents" for one in given)

    def _sigmas(self) -> str:
        _, call = self._calling(_STEPS)
        if call is None:
            _, call = self._calling(_SET)
            if (
                call is None
                or len(call.args) > 1
                or {one.arg for one in call.keywords} - {"device", "num_inference_steps"}
            ):
                self._say("sets its timesteps in its own way", call)
            return ""
        given = {one.arg: one.value for one in call.keywords}
        if len(call.args) > _SIGMAS_AT:
            given["sigmas"] = call.args[_SIGMAS_AT]
        if "mu" in given or (None in given and self.dynamic):
            self._say("shifts its steps by mu, which it computes", call)
        value = given.get("sigmas")
        if value is None:
            return ""
        told = call_arguments(self.denoising.pipeline).get(dotted(value) or "")
        if told is not None and told.default is None and _assigned(self._function, told.name, call.lineno) is None:
            return ""
        try:
            return self.wording.tell(value, self._function, call.lineno)
        except Unsupported as what:
            self._say(f"makes its sigmas by {what}", call)
        return ""

    def _calling(self, name: str) -> tuple[ast.stmt | None, ast.Call | None]:
        """Return the statement with the one call of a function that is made by default."""
        defaults = Defaults(self.wording.pipeline, self.wording.scheduler)
        found = [
            (node, call)
            for node in _taken(self._function.body, defaults)
            for call in ast.walk(node)
            if isinstance(call, ast.Call) and dotted(call.func) == name
        ]
        return found[0] if len(found) == 1 else (None, None)


def _taken(body: Sequence[ast.stmt], defaults: Defaults) -> Iterator[ast.stmt]:
    for node in body:
        if isinstance(node, ast.If):
            told = defaults.told(node.test)
            yield from _taken(node.body if told is not False else [], defaults)
            yield from _taken(node.orelse if told is not True else [], defaults)
        elif isinstance(node, (ast.With, ast.For)):
            yield from _taken(node.body, defaults)
        else:
            yield node


def _calls(function: ast.FunctionDef) -> list[ast.Call]:
    return sorted((node for node in ast.walk(function) if isinstance(node, ast.Call)), key=lambda node: node.lineno)


def _assigned(function: ast.FunctionDef, name: str, line: int) -> ast.expr | None:
    """Return the last value assigned to a variable before a line."""
    found = [
        node
        for node in ast.walk(function)
        if isinstance(node, ast.Assign) and dotted(node.targets[0]) == name and node.lineno < line
    ]
    return max(found, key=lambda node: node.lineno).value if found else None


def _returned(function: ast.FunctionDef) -> ast.expr:
    found = [node.value for node in ast.walk(function) if isinstance(node, ast.Return) and node.value is not None]
    return found[0] if found else ast.Constant(None)
