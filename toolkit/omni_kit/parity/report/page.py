"""The report as one page of HTML that needs nothing else: no network, no script, no fonts."""

import base64
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import jinja2

from omni_kit.files import check_replaceable, write_atomic
from omni_kit.output.text import shown
from omni_kit.parity.report.environment import machine, versions
from omni_kit.parity.report.report import ModuleError, ParityReport

_MARK = "omni-kit parity"
_WIDTH, _HEIGHT = 960, 260
_LEFT, _BOTTOM, _TOP = 56, 28, 12
_LOWEST = -9  # what is drawn at the bottom: nothing, or next to nothing
_DEFAULT_TOLERANCE = 2.0**-16
_BANDS = ((1e-3, "small"), (1e-1, "large"), (math.inf, "severe"))


@dataclass
class Node:
    """A module in the tree, with its parts.

    Attributes:
        name: the last part of its name.
        error: how far it is off; None for what only holds others, such as a list of layers.
    """

    name: str
    error: ModuleError | None = None
    parts: dict[str, "Node"] = field(default_factory=dict)

    @property
    def worst(self) -> float:
        """The largest error that it or any of its parts adds."""
        own = self.error.added if self.error else 0.0
        return max([own, *(part.worst for part in self.parts.values())])


@dataclass(frozen=True)
class Point:
    """One module in the chart; in the units of the drawing."""

    x: float
    y: float
    error: ModuleError


@dataclass(frozen=True)
class Chart:
    """The error of each module's answer, on a logarithmic scale.

    Attributes:
        ticks: height and label of the lines across.
        tolerance: height of what counts as rounding.
    """

    points: Sequence[Point]
    ticks: Sequence[tuple[float, str]]
    tolerance: float
    width: int = _WIDTH
    height: int = _HEIGHT
    left: int = _LEFT

    @property
    def line(self) -> str:
        """The points as an SVG polyline requires them: "x,y x,y"."""
        return " ".join(f"{point.x:.1f},{point.y:.1f}" for point in self.points)


def write_page(report: ParityReport, file: Path) -> None:
    """Write the page, whole or not at all.

    Raises:
        BadInput: it cannot be written there.
    """
    check_page(file)
    write_atomic(file, render_page(report))


def check_page(file: Path) -> None:
    """Say beforehand whether a page may be written there; see `check_replaceable`."""
    check_replaceable(file, _MARK)


def render_page(report: ParityReport) -> str:
    """Return the page as text."""
    loader = jinja2.FileSystemLoader(Path(__file__).parent / "pages")
    environment = jinja2.Environment(
        loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    tolerance = tolerance_of(report)
    environment.filters |= {"figure": figure, "band": lambda value: band(value, tolerance), "data_uri": _data_uri}
    page = environment.get_template("report.html.jinja").render(
        report=report,
        tree=tree(report.modules),
        chart=chart(report.modules, tolerance),
        tolerance=tolerance,
        versions=versions(),
        machine=machine(),
    )
    return shown(page)


def tolerance_of(report: ParityReport) -> float:
    """Return the tolerance that the page calls rounding: the one the levels allowed."""
    return next((level.tolerance for level in report.levels if level.tolerance), _DEFAULT_TOLERANCE)


def tree(modules: Sequence[ModuleError]) -> Node:
    """Return the modules below the model, by the parts of their names."""
    root = Node("")
    for error in modules:
        node = root
        for part in filter(None, error.module.split(".")):
            node = node.parts.setdefault(part, Node(part))
        node.error = error
    root.name = root.error.kind if root.error else "model"
    return root


def chart(modules: Sequence[ModuleError], tolerance: float) -> Chart:
    """Return modules from left to right in the order in which they answer, errors upwards."""
    paired = sorted((error for error in modules if error.paired), key=lambda error: error.answered)
    highest = max([0, *(math.ceil(_exponent(error.grown)) for error in paired)])

    def height(exponent: float) -> float:
        share = (exponent - _LOWEST) / (highest - _LOWEST)
        return _HEIGHT - _BOTTOM - share * (_HEIGHT - _BOTTOM - _TOP)

    step = (_WIDTH - _LEFT - 12) / max(1, len(paired) - 1)
    points = [Point(_LEFT + n * step, height(_exponent(error.grown)), error) for n, error in enumerate(paired)]
    ticks = [(height(exponent), f"1e{exponent}") for exponent in range(_LOWEST, highest + 1, 3)]
    return Chart(points, ticks, height(_exponent(tolerance)))


def _exponent(error: float) -> float:
    if not math.isfinite(error):
        return 3.0
    return max(_LOWEST, min(math.log10(error), 3.0)) if error > 0 else _LOWEST


def band(error: float, tolerance: float) -> str:
    """none, rounding, small, large or severe: the colour of a figure."""
    if error == 0:
        return "none"
    if error <= tolerance:
        return "rounding"
    return next((name for limit, name in _BANDS if error <= limit), "severe")


def figure(value: float | None) -> str:
    """Return two digits, or a dash for what there is none of."""
    if value is None:
        return "–"
    return "0" if value == 0 else f"{value:.1e}"


def _data_uri(png: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(png).decode()}"
