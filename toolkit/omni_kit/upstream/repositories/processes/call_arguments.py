"""Arguments for a call of the authors' own sampler, which are recognised by their names."""

import ast
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from omni_kit.pysource.eval import UNKNOWN
from omni_kit.pysource.reads import literal
from omni_kit.pysource.source import dotted
from omni_kit.upstream.repositories.processes.schedule_arguments import IS_TRAINED
from omni_kit.upstream.repositories.sampler_step.members import Given

TRAINED = 1000
"""Number of steps that models are trained with, where nothing else is known."""
DENOISER, BEGUN, STEPS, SCALE = "denoiser", "begun", "steps", "scale"
"""Variables of a call: the model, its noise, the number of steps, and how strongly it guides."""
MADE_WITH, GIVEN = "made_with", "given"
"""Variables whose attributes are arguments that nothing is known of: of a constructor, and of what samples."""
MODEL = re.compile(
    r"^((diffusion|velocity|eps|epsilon|score|base|nn|noise|denoising|ema)_?)?"
    r"(model|nn|net|network|denoiser|unet|dit|transformer|estimator|predictor|backbone|vector_field|drift|theta)"
    r"(_(fn|ema))?$|^(denoise_fn|func|fn)$",
    re.IGNORECASE,
)
_NOISE = re.compile(r"^((init|initial|start|prior)_?)?(noise|latents?)$|^[xyz](_?([tT01]|init))?$|^img$|^samples?$")
COUNT = re.compile(
    r"^(num_|n_)?((sampling|sample|inference|infer|ddim|ode|euler|denoising|flow)_)?(time)?steps?$|^nfe$|^S$"
)
"""Names of the number of steps of a run."""
_SPEEDS_UP = re.compile(r"speed_?up$")
"""Names of the number of steps of training for one of a run."""
_KEYWORDS = re.compile(r"^(model_kwargs|extra_args)$")
_METHOD = re.compile(r"^(ode_|sampling_)?(method|solver|solver_type)$")
_STEPS = re.compile(rf"\b{STEPS}\b(?!=)")
_DRAWS = ("torch.randn", "torch.randn_like")
_ADAPTIVE = (None, "dopri5", "dopri8", "bosh3", "adaptive_heun", "rk45")
"""Solvers that adapt their steps, or that a library takes by default."""
_LEVELS = re.compile(r"^(t_span|time_grid|t_eval|ts|sigmas|t_steps|levels|timesteps)$")
GUIDED = re.compile(
    r"(cfg|guidance|guide|cond)_?(scale|strength|rate|weight)|(cfg|guidance|guide)_w$|^(cfg|guidance|w)$"
)
SHAPE = f"tuple({BEGUN}.shape)"
"""The expression for the shape of latents."""
EACH = f"tuple({BEGUN}.shape[1:])"
"""That for the shape of one sample."""
ROWS = f"len({BEGUN})"
FEATURES, LENGTH = f"{BEGUN}.shape[1]", f"{BEGUN}.shape[-1]"
_GUIDES = re.compile(r"(^|_)(cfg|guidance|guide)(_|$)")
_SIZES = (
    (re.compile(r"^(image|img|im|sample|latent)_?size$|^resolution$"), f"{BEGUN}.shape[-1]"),
    (re.compile(r"^(batch|bsz?|n|(num|n)_(samples?|images?|imgs?)|batch_size)$"), ROWS),
    (re.compile(r"^(in_|num_|n_|latent_|z_|im(a?ge?)?_)?(channels|chans?)$|^n_feats$"), FEATURES),
    (re.compile(r"^(feature|action|data|transition)_?(size|dim)$"), FEATURES),
    (re.compile(r"^(seq|sequence)_?len(gth)?$|^horizon$"), LENGTH),
    (re.compile(r"^(num_|n_)?frames$"), f"{BEGUN}.shape[-3]"),
    (re.compile(r"shape$|^size$"), SHAPE),
    (re.compile(r"^(step_size|dt)$"), f"1 / {STEPS}"),
    (re.compile(r"len(gth)?s$"), f"torch.full((len({BEGUN}),), {BEGUN}.shape[-1])"),
    (re.compile(r"^prompt"), f"{BEGUN}[..., :0]"),
    (re.compile(r"mask"), f"torch.ones_like({BEGUN})"),
    (re.compile(r"device$"), f"{BEGUN}.device"),
    (re.compile(r"dtype$"), f"{BEGUN}.dtype"),
)
_FITS = re.compile(r"^(batch_size|((image|img)_)?size|(in_)?channels)$")
"""Sizes that are passed though they have a default, as those of a small model differ."""
_FALLS, _RISES = f"torch.linspace(1, 0, {STEPS} + 1)", f"torch.linspace(0, 1, {STEPS} + 1)"


@dataclass(frozen=True)
class Told:
    """Arguments of one call.

    Attributes:
        said: their expressions, by name.
        scaled: the same with a scale of guidance.
        cost: how many were made up.
        model, noise, levels: whether one of them is passed.
        guides: those that guide.
        adapts: those by which the authors choose a solver that adapts its steps; it is passed another.
        off: those that guide, and are null by default.
        trained: how many steps of training there are by default, where it is passed the number of steps instead.
        usual: and it goes all of them unless it is passed another number.
    """

    said: Mapping[str, str]
    scaled: Mapping[str, str]
    cost: int
    model: bool
    noise: bool
    levels: bool
    guides: tuple[str, ...]
    adapts: tuple[str, ...] = ()
    off: tuple[str, ...] = ()
    trained: int = 0
    usual: bool = False

    @property
    def text(self) -> str:
        """Return them as they are written."""
        return written(self.said)

    @property
    def guided(self) -> str:
        """Return them as they are written, with a scale of guidance."""
        return written(self.scaled)


def written(said: Mapping[str, str]) -> str:
    """Return keyword arguments as a call has them."""
    return ", ".join(f"{name}={value}" for name, value in said.items())


def has_meaning(name: str) -> bool:
    """Return whether an argument receives a value for its name: the model, its noise, a number of steps, a size."""
    patterns = (MODEL, _NOISE, COUNT, IS_TRAINED, _LEVELS, _KEYWORDS)
    return any(one.match(name) for one in patterns) or any(
        one.search(name) for one in (GUIDED, *(one for one, _ in _SIZES))
    )


def is_counted(text: str) -> bool:
    """Return whether an expression depends on the number of steps."""
    return bool(_STEPS.search(text))


def pairs_to_guide(methods: Iterable[ast.FunctionDef], given: Sequence[Given]) -> dict[str, str]:
    """Return a pair of keyword mappings, with a prompt and without, and the scale, which is null by default; nothing if
    methods read no such pair.
    """
    held = {name for one in methods for name in map(_entry_of, ast.walk(one))}
    pairs = [one.arg for one, _ in given if _KEYWORDS.match(one.arg) and one.arg in held]
    scales = [one.arg for one, default in given if GUIDED.search(one.arg) and default is not None
              and literal(default) is None]  # fmt: skip
    return {**dict.fromkeys(pairs, "[{}, {}]"), scales[0]: SCALE} if pairs and len(scales) == 1 else {}


def _entry_of(node: ast.AST) -> str:
    """Return the variable whose second entry a node is; empty for other nodes."""
    second = isinstance(node, ast.Subscript) and literal(node.slice) == 1
    return node.value.id if second and isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) else ""


def way_of(functions: Iterable[ast.FunctionDef]) -> str:
    """Return the levels that fall, or those that rise, as functions make them by `linspace`; empty without such."""
    calls = [node for one in functions for node in ast.walk(one) if isinstance(node, ast.Call)]
    starts = {literal(one.args[0]) for one in calls if (dotted(one.func) or "").endswith("linspace") and one.args}
    ways = {_RISES if one == 0 else _FALLS for one in starts if isinstance(one, int | float) and one in (0, 1)}
    return ways.pop() if len(ways) == 1 else ""


def arguments_told(
    given: Sequence[Given],
    required: re.Pattern[str] | None = None,
    constructs: bool = False,
    way: str = "",
    parts: Mapping[str, str] | None = None,
    values: Mapping[str, Any] | None = None,
    whole: bool = False,
    settings: bool = False,
    guiding: Mapping[str, str] | None = None,
    null: Collection[str] = (),
) -> Iterator[Told]:
    """Yield the way to call something with these arguments, unless nothing says which way its levels go.

    Args:
        required: there must be an argument of such a name.
        constructs: it is a constructor.
        way: of its levels.
        parts: arguments whose values are known.
        values: those that the authors pass, for arguments without a default; if `whole`, for all others, too.
        whole: the number of steps of training is that of steps, unless another number has a default.
        settings: these are the entries of one argument, and their defaults are what the authors pass.
        guiding: what else is passed to guide, by argument.
        null: those that may be None, for all that they have no default.
    """
    names = [one.arg for one, _ in given]
    if required is not None and not any(required.match(name) for name in names):
        return
    counted = [one.arg for one, default in given if COUNT.match(one.arg) and not isinstance(literal(default), bool)]
    counted = [name for name in counted if not IS_TRAINED.match(name)] or ([] if constructs or settings else counted)
    said_by = values or {}
    left = {one.arg for one, default in given if default is not None and literal(default) is None}
    open_ = bool(counted) and whole and not {*counted} - left and not {*counted} & said_by.keys()
    counted = [] if open_ else counted
    every = {one.arg: said_by.get(one.arg, literal(default) if default is not None else TRAINED)
             for one, default in given if IS_TRAINED.match(one.arg)} if whole and not counted else {}  # fmt: skip
    trained = next((value for value in every.values() if type(value) is int), 0)
    counted = counted or [*every][:1]
    bent = [one.arg for one, default in given
            if _LEVELS.match(one.arg) and default is None and not constructs and one.arg not in counted]  # fmt: skip
    way = way or (_FALLS if bent == ["sigmas"] else "")
    for levels in ([way] if way else []) if bent else [""]:
        said, cost, adapts = dict[str, str](), 0, list[str]()
        noises = [] if constructs or settings else [
            one.arg for one, default in given
            if _NOISE.match(one.arg) and not (one.arg == "y" and default is not None)  # an optional y is a label
        ]  # fmt: skip
        for one, default in given:
            name = one.arg
            if parts and name in parts:
                said[name] = parts[name]
                cost += 1
            elif MODEL.match(name) and DENOISER not in said.values() and not settings:
                said[name] = DENOISER
            elif name in noises[:1]:
                said[name] = BEGUN
            elif name in counted[:1]:
                said[name] = STEPS
            elif name in bent:
                said[name] = levels
            elif size := next((text for pattern, text in _SIZES if pattern.search(name)), ""):
                usual = literal(default) if default is not None else ...
                fits = isinstance(usual, int | tuple) and bool(_FITS.match(name))
                fits = fits or (settings and type(usual) in (int, float))
                fits = fits or (usual is UNKNOWN and size.endswith(".device"))  # `torch.device("cuda")`
                if usual is ... or (usual is None and "shape" in name) or fits:
                    pair = isinstance(said_by.get(name, usual), tuple) and size == LENGTH
                    said[name] = f"tuple({BEGUN}.shape[2:])" if pair else size
                    apart = size == SHAPE and ROWS in said.values()  # a number of samples, and the shape of each
                    said[name] = EACH if apart else said[name]
            elif _SPEEDS_UP.search(name) and not counted and type(literal(default)) is int:
                said[name] = f"{TRAINED} // {STEPS}"
            elif constructs and name in said_by and (default is None or whole):
                said[name] = repr(said_by[name])
            elif _KEYWORDS.search(name) and (default is None or literal(default) is None):
                said[name] = "{}"
            elif default is None and constructs and IS_TRAINED.match(name):
                said[name] = str(TRAINED)
            elif default is None and name in null:
                said[name] = "None"
            elif default is None:
                said[name] = f"{MADE_WITH if constructs else GIVEN}.{name}"
                cost += 3 if constructs else 1
            elif ast.unparse(default) in _DRAWS:
                said[name] = ast.unparse(default)  # its default is what the name meant when the file was imported
            elif not constructs and _METHOD.match(name) and literal(default) in _ADAPTIVE:
                said[name] = "'euler'"
                adapts.append(f"{name}={ast.unparse(default)}")
        guides = tuple(f"{one.arg}={ast.unparse(default)}" for one, default in given if default is not None
                       and GUIDED.search(one.arg) and literal(default) is not None)  # fmt: skip
        scaled = {one.arg: SCALE for one, default in given if default is not None and one.arg not in said
                  and GUIDED.search(one.arg) and type(literal(default)) in (int, float)}  # fmt: skip
        scaled |= guiding or {}
        uses = set(said.values())
        model, noise = DENOISER in uses, BEGUN in uses
        usual = open_ and bool(trained)
        off = tuple(one.arg for one, default in given if default is not None and literal(default) is None
                    and _GUIDES.search(one.arg) and one.arg not in {*said, *scaled})  # fmt: skip
        yield Told(said, said | scaled, cost, model, noise, bool(bent), guides, tuple(adapts), off, trained, usual)
