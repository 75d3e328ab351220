"""A scheduler's class, made of the statements of the authors' loop: what its template is given."""

import ast
import copy
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from omni_kit.pysource.eval import Unsupported
from omni_kit.targets.diffusers.scheduling.scheduler_state import Drawn, Gathered, copied, lines_of
from omni_kit.targets.diffusers.scheduling.settings import Configured, Named, Settings, config_of, defaults_of
from omni_kit.upstream.repositories.closure import closure_of
from omni_kit.upstream.repositories.names import Defined
from omni_kit.upstream.repositories.sampler_step.flow import binds
from omni_kit.upstream.repositories.sampler_step.split_step import Divided
from omni_kit.upstream.repositories.sampling import STEPS

_AT_HAND = {"torch", "numpy"} | sys.stdlib_module_names
_COUNT = "num_inference_steps"
_TIMES = re.compile(r"^t(s|_.*|ime.*)?$|timestep", re.IGNORECASE)
_RESERVED = frozenset({"config", "timesteps", "order", "step", "init_noise_sigma", _COUNT})


@dataclass
class Made:
    """A scheduler that is written.

    Attributes:
        loop: of its authors.
        noising: how clean latents are noised: "flow", "variance exploding", or empty if that is not shown.
    """

    loop: Divided
    noising: str = ""
    settings: Settings = field(default_factory=Settings)

    def __post_init__(self) -> None:
        """Collect settings and helpers.

        Raises:
            Unsupported: it needs what is not at hand.
        """
        known = defaults_of(self.loop.sampling.made)
        steps = self.loop.sampling.roles[STEPS]
        roles = {*self.loop.sampling.roles.values()}
        wanted = self.loop.given | {name for stage in self.loop.stages.values() for name in stage.reads}
        mine = [name for name in known if name in wanted and name not in roles]
        for name in mine:
            self.settings.add(name, known[name])
        self._settings: dict[str, ast.expr] = {name: config_of(name) for name in mine}
        self._start: dict[str, ast.expr] = {**self._settings, steps: ast.Name(_COUNT, ast.Load())}
        count: ast.expr = ast.Attribute(ast.Name("self", ast.Load()), _COUNT, ast.Load())
        self._step: dict[str, ast.expr] = {
            **self._settings,
            steps: count,
            **{name: self._own(name) for name in self.kept_levels},
        }
        self._configured = Configured(self.loop.sampling.source, self.settings)
        self._prelude = [self._configured.visit(copy.deepcopy(node)) for node in self.loop.start]
        self._closed()

    def tried(self) -> None:
        """Write all of it once.

        Raises:
            Unsupported: a statement cannot be moved.
        """
        if self.loop.counted_up:
            raise Unsupported(f"makes its schedule, or its step, of {', '.join(self.loop.counted_up)}")
        parts = (self.start, self.along, self.told, self.factor, self.carried, self.scaled, list(self.stages))
        assert all(one is not None for one in parts)

    @property
    def after(self) -> str:
        """Authors' statements after the last step; empty if they return the latents."""
        rest = [node for node in self.loop.after if not isinstance(node, ast.Return) or node.value is None
                or ast.unparse(node.value) != self.loop.latents_name]  # fmt: skip
        return "; ".join(ast.unparse(node) for node in rest)

    @property
    def kept_levels(self) -> list[str]:
        """Variables that are made before the first step and read by steps, or gone along."""
        return list(dict.fromkeys([*self.loop.made, *filter(None, [self.loop.levels])]))

    @staticmethod
    def _own(name: str) -> ast.Attribute:
        written = f"own_{name}" if name in _RESERVED else name
        return ast.Attribute(ast.Name("self", ast.Load()), written, ast.Load())

    @property
    def kept_attribute(self) -> str:
        """Attribute that keeps the levels."""
        return self._own(self.loop.levels).attr

    @property
    def keyword(self) -> str:
        """Argument that passes levels; empty if there is none."""
        return ("timesteps" if _TIMES.search(self.loop.levels) else "sigmas") if self.loop.levels else ""

    def _closed(self) -> None:
        sources, loop = self.loop.sampling.source, self.loop
        body = [*loop.start, *loop.before, *(node for stage in loop.stages.values() for node in stage.body)]
        body += [ast.Expr(node) for node in (loop.along, *(one.time for one in loop.asks)) if node is not None]
        body += [ast.Expr(loop.asks[0].sample), *([ast.Expr(loop.factor)] if loop.factor is not None else [])]
        function = ast.FunctionDef("moved", loop.sampling.made.args, copy.deepcopy(body), [], None, None)
        root = Defined(sources, "moved", ast.fix_missing_locations(function))
        found = closure_of(root)
        found.definitions.remove(root)
        used = {root: found.foreign.pop(root)}
        if found.definitions and not isinstance(found.definitions[-1].node, ast.stmt):
            raise Unsupported("needs code that cannot be copied")
        self._imports, self._functions = lines_of(root, used[root]), copied(found)
        packages = {n.partition(".")[0] for names in (*used.values(), *found.foreign.values()) for n in names.values()}
        if more := sorted(packages - _AT_HAND):
            raise Unsupported(f"needs {', '.join(more)}")

    @property
    def imports(self) -> list[str]:
        """Imports of the file beyond those of every scheduler."""
        return sorted({*self._imports, *self._functions[0]} - {"import torch", "import math"}) + (
            ["import math"] if "import math" in {*self._imports, *self._functions[0]} else []
        )

    @property
    def functions(self) -> str:
        """The authors' functions and constants that it calls and reads."""
        return self._functions[1]

    @property
    def start(self) -> str:
        """Body of `set_timesteps`: the authors' own statements; levels that are passed replace theirs."""
        told: list[str] = []
        last = max((place for place, node in enumerate(self._prelude) if self.loop.levels in binds(node)), default=-1)
        for place, node in enumerate(self._prelude):
            told.append(self._text(node, self._start))
            if place == last and self.loop.levels:
                name = self.loop.levels
                told += [
                    "if given is not None:", f"    {name} = torch.as_tensor({name}).clone()",
                    f"    {name}[: len(given)] = torch.as_tensor(given, dtype={name}.dtype, device={name}.device)",
                ]  # fmt: skip
        return "\n".join(told)

    @property
    def along(self) -> str:
        """Iterable of the loop."""
        return self._text(self._configured.visit(copy.deepcopy(self.loop.along)), self._start)

    @property
    def told(self) -> str:
        """The loop in which the steps that the model is told are gathered."""
        lines = [self._text(node, self._start) for node in Gathered().all(self.loop.told)]
        return "\n".join(
            [f"for number, {self.head} in enumerate(self._along):", textwrap.indent("\n".join(lines), "    ")]
        )

    @property
    def head(self) -> str:
        """The loop's head; in parentheses where it is several variables."""
        text = ast.unparse(self.loop.target)
        return f"({text})" if isinstance(self.loop.target, ast.Tuple) and not text.startswith("(") else text

    @property
    def kept(self) -> list[tuple[str, str]]:
        """Attribute -> variable, of what steps read."""
        return [(ast.unparse(self._own(name)), name) for name in self.kept_levels]

    @property
    def carried(self) -> list[tuple[str, str]]:
        """Variable -> what it is before the first step."""
        return [(name, self._text(self.loop.begins(name), self._start)) for name in self.loop.carried]

    @property
    def attributes(self) -> list[str]:
        """All that steps leave to later ones."""
        names = [name for stage in self.loop.stages.values() for name in stage.kept]
        return sorted({*names, *self.loop.carried, *self.loop.left})

    @property
    def factor(self) -> str:
        """Factor of the initial noise; empty for none."""
        return self._text(self.loop.factor, self._start) if self.loop.factor is not None else ""

    @property
    def order(self) -> int:
        """Number of model calls per step."""
        return len(self.loop.asks)

    @property
    def scales(self) -> bool:
        """Return whether the model receives something else than the latents."""
        first = self.loop.asks[0].sample
        return bool(self.loop.before) or not isinstance(first, ast.Name) or first.id != self.loop.latents_name

    @property
    def random(self) -> bool:
        """Return whether steps draw noise."""
        return self.loop.random

    @property
    def real(self) -> bool:
        """Return whether the model is told its steps as numbers with a fraction, whatever they are counted in."""
        return all(one.real for one in self.loop.asks)

    @property
    def scaled(self) -> dict[str, object]:
        """Statements before the model is called."""
        body = "\n".join(self._text(node, self._step) for node in self.loop.before)
        sample = self._text(self.loop.asks[0].sample, self._step)
        return {"body": body, "sample": sample, "left": self.loop.left, "latents": self.loop.latents_name,
                "head": self._reads_head(self.loop.before, self.loop.asks[0].sample)}  # fmt: skip

    @property
    def stages(self) -> Iterator[dict[str, object]]:
        """Statements after each output of the model."""
        for _, stage in sorted(self.loop.stages.items()):
            body = "\n".join(self._text(node, self._step) for node in stage.body)
            yield {"sample": stage.sample, "answer": stage.answer, "kept": stage.kept, "body": body,
                   "head": bool(stage.reads & self.loop.heads)}  # fmt: skip

    def _reads_head(self, body: Sequence[ast.stmt], sample: ast.expr) -> bool:
        names = {one.id for node in (*body, sample) for one in ast.walk(node) if isinstance(one, ast.Name)}
        return bool(names & self.loop.heads)

    def _text(self, node: ast.AST, places: Mapping[str, ast.expr]) -> str:
        changed = Drawn().visit(Named(places).visit(copy.deepcopy(node)))
        return ast.unparse(ast.fix_missing_locations(changed))
