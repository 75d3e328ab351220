"""The result as one page of HTML that needs nothing else: the front as a picture, and every kernel in a table."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import jinja2

from omni_kit.files import check_replaceable, write_atomic
from omni_kit.kernels.result import KernelReport
from omni_kit.kernels.training_file import block
from omni_kit.output.text import shown
from omni_kit.parity.report.environment import machine, versions

_MARK = "omni-kit kernels"
_WIDTH, _HEIGHT = 860, 340
_LEFT, _BOTTOM, _TOP, _RIGHT = 64, 44, 16, 24
_TICKS = 5


@dataclass(frozen=True)
class Dot:
    """One choice in the picture; in the units of the drawing.

    Attributes:
        kind: "choice", "front", "default", "recommended" or "upstream".
    """

    x: float
    y: float
    kind: str
    said: str


@dataclass(frozen=True)
class Picture:
    """Time from left to right, memory upwards.

    Attributes:
        across, up: place and label of the ticks.
        line: the front, as an SVG polyline requires it.
        limit: height of what a choice may take; None knows no limit.
    """

    dots: Sequence[Dot]
    across: Sequence[tuple[float, str]]
    up: Sequence[tuple[float, str]]
    line: str
    limit: float | None
    width: int = _WIDTH
    height: int = _HEIGHT
    left: int = _LEFT
    bottom: int = _HEIGHT - _BOTTOM


@dataclass(frozen=True)
class _Scale:
    """From figures to places."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self, unit: str) -> list[tuple[float, str]]:
        values = [self.low + step * (self.high - self.low) / _TICKS for step in range(_TICKS + 1)]
        return [(self.at(value), f"{value:.3g} {unit}") for value in values]


def check_page(file: Path) -> None:
    """Say beforehand whether a page may be written there; see `check_replaceable`."""
    check_replaceable(file, _MARK)


def write_page(report: KernelReport, file: Path) -> None:
    """Write the page, whole or not at all.

    Raises:
        BadInput: it cannot be written there.
    """
    check_page(file)
    write_atomic(file, render_page(report))


def render_page(report: KernelReport) -> str:
    """Return the page as text."""
    loader = jinja2.FileSystemLoader(Path(__file__).parent / "pages")
    environment = jinja2.Environment(
        loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    page = environment.get_template("kernels.html.jinja").render(
        report=report,
        picture=picture(report),
        yaml=block(report.settings),
        versions=versions(),
        machine=machine(),
    )
    return shown(page)


def picture(report: KernelReport) -> Picture | None:
    """Return every choice that was timed, by time and memory; None if nothing was."""
    figures = _figures(report)
    if not figures:
        return None
    limit = [report.limit] if report.limit is not None else []
    across = _scale([ms for ms, *_ in figures], _LEFT, _WIDTH - _RIGHT)
    up = _scale([*(gb for _, gb, *_ in figures), *limit], _HEIGHT - _BOTTOM, _TOP)
    dots = [Dot(across.at(ms), up.at(gb), kind, f"{name}: {ms:.1f} ms, {gb:.2f} GB") for ms, gb, kind, name in figures]
    line = " ".join(f"{across.at(point.ms):.1f},{up.at(point.gb):.1f}" for point in report.front)
    height = None if report.limit is None else up.at(report.limit)
    return Picture(dots, across.ticks("ms"), up.ticks("GB"), line, height)


def _figures(report: KernelReport) -> list[tuple[float, float, str, str]]:
    best = {point.name for point in report.front}
    found = [(point.ms, point.gb, "front" if point.name in best else "choice", point.name) for point in report.measured]
    for kind, one in (("default", report.default), ("recommended", report.recommended), ("upstream", report.upstream)):
        if one is not None:
            found.append((one.ms, one.gb, kind, kind))
    return found


def _scale(values: Sequence[float], start: float, end: float) -> _Scale:
    low, high = min(values), max(values)
    room = (high - low) * 0.06 or max(high * 0.1, 1.0)
    return _Scale(max(0.0, low - room), high + room, start, end)
