"""The number of steps, the scale of guidance and the size of samples that authors use where nobody says others."""

import ast
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from omni_kit.pysource.eval import UNKNOWN
from omni_kit.pysource.reads import literal
from omni_kit.pysource.signatures import defaults, signature
from omni_kit.pysource.source import SourceFile, dotted
from omni_kit.upstream.repositories.names import Defined, resolve
from omni_kit.upstream.repositories.published import options_of
from omni_kit.upstream.repositories.reference import Reference
from omni_kit.upstream.repositories.sources import distance, source_at, sources_of

_STEPS = re.compile(
    r"^(num_?|n_?|nb_)?((inference|infer|sampling|sample|sampler|diffusion|denoising|denoise|ddim|ode|euler)_?)?"
    r"(timesteps?|steps?)$|^nfe$"
)
_SCALE = re.compile(
    r"^((text_|unconditional_|classifier_free_)?guidance(_?scale|_strength|_weight)?"
    r"|(text_)?cfg(_?scale|_strength|_weight)?|w|scale)$"
)
_GUIDES = re.compile(r"guidance|cfg")
_HEIGHT = re.compile(r"^((image|img|video|target|output)_)?height$")
_WIDTH = re.compile(r"^((image|img|video|target|output)_)?width$")
_SIDE = re.compile(r"^((image|img|output)_?)?(size|resolution)$")
_SIZES = {"height": _HEIGHT, "width": _WIDTH, "side": _SIDE}
_FRAMES = re.compile(r"^(num_?|n_)?(video_)?frames?$|^video_length$")
_MOST_STEPS = 1000  # of a training, which a sampler may repeat
_MOST_SCALE, _PIXELS = 64, range(64, 4097, 8)
_ADDS = "add_argument"


@dataclass(frozen=True)
class UsualSampling:
    """Settings of a run.

    Attributes:
        steps: the number of steps; None if no code states one.
        scale: of guidance, 1 for none; None if no code states one.
        height, width: of images and videos, in pixels; None if no code states both.
        frames: of a video; None if no code states them.
    """

    steps: int | None = None
    scale: float | None = None
    height: int | None = None
    width: int | None = None
    frames: int | None = None


def usual_sampling(reference: Reference, where: str, names: Collection[str] = ()) -> UsualSampling:
    """Return the defaults of the authors' sampler; what it has none for, of the command line that is nearest to it.

    Args:
        where: the sampler, as file:line.
        names: what its code is called, where that is known: of several command lines those count that name it.
    """
    found: dict[str, int | float] = {}
    for name, value in _defaults(reference, where, names):
        if isinstance(value, int | float) and not isinstance(value, bool):
            for meant in _meant(name, value):
                found.setdefault(meant, value)
    side = found.pop("side", None)
    height, width = found.pop("height", side), found.pop("width", side)
    sized = {"height": height, "width": width} if height is not None and width is not None else {}
    unguided = found.pop("unguided", None)
    scale = found.pop("scale", unguided)
    whole = {name: int(value) for name, value in {**found, **sized}.items()}
    return UsualSampling(scale=None if scale is None else float(scale), **whole)


def _meant(name: str, value: float) -> Iterator[str]:
    """Yield what a setting may be, by its name and its value."""
    if _STEPS.match(name) and 1 < value < _MOST_STEPS and value == int(value):
        yield "steps"
    if _SCALE.match(name) and 1 < value < _MOST_SCALE:
        yield "scale"
    if _SCALE.match(name) and value in (0, 1) and _GUIDES.search(name):  # a command line may say another one
        yield "unguided"
    if value in _PIXELS:
        yield from (meant for meant, one in _SIZES.items() if one.match(name))
    if _FRAMES.match(name) and value > 1 and value == int(value):
        yield "frames"


def _defaults(reference: Reference, where: str, names: Collection[str]) -> Iterator[tuple[str, object]]:
    """Yield names and values: of the sampler, of what stands around it, and of command lines, the nearest first."""
    if (own := source_at(reference, where)) is not None:
        line = int(where.rpartition(":")[2])
        made = [one for one in ast.walk(own.tree) if isinstance(one, ast.FunctionDef)]
        around = [one for one in made if _first(one) <= line <= (one.end_lineno or 0)]
        for function in sorted(around, key=_first, reverse=True):
            yield from ((name, _value(own, one)) for name, one in defaults(signature(function)).items())
    near = sorted(sources_of(reference), key=lambda one: (one is not own, distance(reference, one.path)))
    lines = [one for one in near if _ADDS in one.text]
    told = [one for one in lines if one is own or any(re.search(rf"\b{name}\b", one.text) for name in names)]
    for source in told or lines:
        yield from options_of(source).items()


def _value(source: SourceFile, node: ast.expr) -> object:
    """Return a literal, or the constant of the authors' that a name means."""
    meant = resolve(source, dotted(node) or "") if literal(node) is UNKNOWN else None
    constant = meant.node if isinstance(meant, Defined) else None
    return literal(constant.value if isinstance(constant, ast.Assign) else node)


def _first(function: ast.FunctionDef) -> int:
    return min([function.lineno, *(one.lineno for one in function.decorator_list)])
