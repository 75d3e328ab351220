"""Write docs/found.md, faults in released frameworks: `python -m tools.found FOUND.yaml --into PAGE`.

Each entry has a command of omni-kit or a Python script, and the text that its output must contain. The page lists an
entry as confirmed only if that, run now, prints the text. An entry that is no longer shown is listed by its title.
"""

import argparse
import datetime
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import yaml

from omni_kit import __version__


@dataclass(frozen=True)
class Entry:
    """A fault in a released framework.

    Attributes:
        package: the distribution that has it; its version is read from the installed one.
        place: file below the package, and text of the line that is wrong.
        command: arguments of omni-kit; PACKAGE stands for the installed package's directory; empty with a script.
        script: Python code that runs the package; empty with a command.
        shows: text that the output contains while the fault is there.
        by: `run` if the framework's code ran, `reading` if the command read the source.
    """

    title: str
    package: str
    place: tuple[str, str]
    consequence: str
    command: tuple[str, ...]
    script: str
    shows: str
    by: str


@dataclass(frozen=True)
class Outcome:
    """Result of an entry's command: whether it showed the fault, the last line, and seconds of processor time."""

    shown: bool
    last: str
    seconds: float


def entries(text: str) -> list[Entry]:
    """Read the list; KeyError for an entry without one of the fields."""
    return [
        Entry(
            title=one["title"],
            package=one["package"],
            place=(one["file"], one["line"]),
            consequence=one["consequence"],
            command=tuple(one.get("command", "").split()),
            script=one.get("script", ""),
            shows=one["shows"],
            by=one["by"],
        )
        for one in yaml.safe_load(text)
    ]


def environment(package: str) -> tuple[str, Path]:
    """Return an interpreter that imports a package, and the directory that it is installed in.

    The package is in the running environment, or in one next to it (`.venv-sglang`) if its pins differ.

    Raises:
        ModuleNotFoundError: it is in none of them.
    """
    here = [(sys.executable, Path(entry)) for entry in sys.path if entry]
    next_to = sorted(Path(sys.prefix).parent.glob(".venv-*/lib/python3.*/site-packages"))
    for python, site in here + [(str(site.parents[2] / "bin" / "python"), site) for site in next_to]:
        if (site / package / "__init__.py").is_file():
            return python, site
    raise ModuleNotFoundError(package)


def folder(package: str) -> Path:
    """Return the directory of an installed package; ModuleNotFoundError if it is not installed."""
    return environment(package)[1] / package


def version(package: str) -> str:
    """Return the version of an installed package."""
    site = str(environment(package)[1])
    return next((found.version for found in distributions(name=package, path=[site])), "")


def line_of(entry: Entry) -> str:
    """Return file:line of the text that is wrong, in the installed version; the file alone if the text is gone."""
    file, text = entry.place
    found = [
        n for n, line in enumerate((folder(entry.package) / file).read_text("utf-8").splitlines(), 1) if text in line
    ]
    return f"{entry.package}/{file}" + (f":{found[0]}" if found else "")


def tried(entry: Entry, seconds: float = 600) -> Outcome:
    """Run the command or the script of an entry in a process of its own."""
    arguments = [word.replace("PACKAGE", str(folder(entry.package))) for word in entry.command]
    code = entry.script or "import sys; from omni_kit.cli import main; sys.exit(main())"
    before = os.times()
    done = subprocess.run(
        [environment(entry.package)[0] if entry.script else sys.executable, "-W", "ignore", "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    output = " ".join((done.stdout + done.stderr).split())
    last = (done.stdout + done.stderr).strip().rpartition("\n")[2]
    after = os.times()
    seconds = after.children_user + after.children_system - before.children_user - before.children_system
    return Outcome(entry.shows in output, last, seconds)


def page(outcomes: list[tuple[Entry, Outcome]], day: datetime.date) -> str:
    """Return the page: one section per confirmed fault, then what is no longer shown."""
    names = sorted({entry.package for entry, _ in outcomes})
    versions = ", ".join(f"{name} {version(name)}" for name in names)
    lines = [
        "# Found in released frameworks",
        "",
        f"Written on {day:%Y-%m-%d} by `make found` with omni-kit {__version__} and {versions}.",
        "Each command and script ran on that day and showed the fault. PACKAGE stands for the directory of the",
        "installed package; scripts about SGLang need its own environment (`make sglang-env`).",
        "",
    ]
    for entry, outcome in outcomes:
        if outcome.shown:
            lines += [
                f"## {entry.title}",
                "",
                f"`{line_of(entry)}`. {entry.consequence}",
                "",
                "```python" if entry.script else "```bash",
                entry.script.rstrip() or f"omni-kit {' '.join(entry.command)}",
                "```",
                "",
                f"Prints `{entry.shows}` after {outcome.seconds:.0f} s of CPU time. Confirmed by {_BY[entry.by]}.",
                "",
            ]
    gone = [entry.title for entry, outcome in outcomes if not outcome.shown]
    if gone:
        lines += ["## No longer shown", "", *(f"- {title}" for title in gone), ""]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines))


_BY = {"run": "running the framework's code", "reading": "reading the source"}


def main(arguments: list[str] | None = None) -> None:
    """Run every entry and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("found", type=Path)
    parser.add_argument("--into", type=Path, required=True)
    options: Any = parser.parse_args(arguments)
    outcomes = []
    for entry in entries(options.found.read_text("utf-8")):
        outcome = tried(entry)
        print(f"{'shown' if outcome.shown else 'NOT SHOWN'}  {entry.title}  {outcome.seconds:.0f} s  {outcome.last}")
        outcomes.append((entry, outcome))
    options.into.write_text(page(outcomes, datetime.datetime.now(datetime.UTC).date()), "utf-8")


if __name__ == "__main__":
    main()
