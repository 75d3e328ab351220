"""Find what detects each mistake of a list: `python -m tools.noticed MISTAKES.yaml ... --into docs/noticed.md`.

Each entry of a list is a fresh scaffold with a few words replaced. `wrong` entries must fail a stage of `verify`,
`harmless` ones must not. Stages run in rounds, the quick ones first, until one fails; all entries share the processes.
A failure that the unedited scaffold also has does not count. Results are stored in a file (`--kept FILE`); an
interrupted run continues from it. Entries with a row on the page are not run again, unless `--only` names them.

A list may say how many of its entries the first run detected, before rules and levels were repaired: `first_run`.
"""

import argparse
import json
import re
import shlex
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import ExitStack, redirect_stdout
from dataclasses import asdict, dataclass, replace
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Any

import yaml

from omni_checkers import all_rules, check
from omni_kit import __version__
from omni_kit.errors import OmniKitError
from omni_kit.parity import run_parity
from omni_kit.parity.levels import LEVELS
from omni_kit.parity.processes.workers import Sides
from omni_kit.patchgen import check_configs, run_configs
from omni_kit.scaffold import new_model
from omni_kit.verify.run import CHECK, GENERATED
from omni_kit.verify.thresholds import SEVERITIES

_FOLDERS = re.compile(r"(?<![\w.])(?:/[\w.+-]+)+/")  # of this machine
_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z][a-z]+")
_CONFIGS = "*_patch_gen_config.py"
_CELL, NOTHING = " | ", "nothing"
_SLOW = ("scenarios", "train")  # a round of their own each
_MESHES = ("steps", "lora", "sp", "fsdp", "ep", "stages")
_QUICK = tuple(level for level in LEVELS if level not in {*_SLOW, *_MESHES})
_ROUNDS: tuple[Sequence[str], ...] = (_QUICK, _MESHES, *((level,) for level in _SLOW))


@dataclass(frozen=True)
class Mistake:
    """One entry of a list.

    Attributes:
        wrong: must fail a stage; False for an edit that changes no result.
        model: SOURCE of the scaffold.
        edits: file -> pairs of a text and its replacement.
        target: the framework of the scaffold.
        pipeline: the pipelines to write; empty for the default ones.
    """

    id: str
    wrong: bool
    what: str
    model: str
    edits: Mapping[str, Sequence[Sequence[str]]]
    target: str = "veomni"
    pipeline: str = ""

    @property
    def title(self) -> str:
        """The first cell of its row."""
        return f"{self.model}: {self.what}".replace("|", "\\|")

    @property
    def scaffold(self) -> tuple[str, str, str]:
        """Arguments of its scaffold; entries with the same scaffold share it."""
        return self.model, self.target, self.pipeline

    @property
    def name(self) -> str:
        """The scaffold's name: the source, or the first word of a class."""
        words = _WORD.match(self.model.rpartition("::")[2])
        return words[0].lower() if words else self.model

    @property
    def in_generated(self) -> bool:
        """Return whether it edits generated code.

        The difference from what the patch config generates then does not count.
        """
        return any(Path(name).parts[0] == "generated" for name in self.edits)

    def inject(self, integration: Path) -> None:
        """Edit a scaffold, and run its edited patch configs again.

        Raises:
            ValueError: a text to replace is missing.
        """
        for name, pairs in self.edits.items():
            file = integration / name
            text = file.read_text(encoding="utf-8")
            for old, new in pairs:
                if old not in text:
                    raise ValueError(f"{self.id}: {name} has no {old!r}")
                text = text.replace(old, new)
            file.write_text(text, encoding="utf-8")
        if any(Path(name).match(_CONFIGS) for name in self.edits):
            run_configs(sorted(integration.glob(_CONFIGS)))


@dataclass(frozen=True)
class Result:
    """Result of `verify` for one entry: the failed stages, each with its reason."""

    id: str
    failed: Sequence[tuple[str, str]]
    not_tested: Sequence[str]

    @property
    def by(self) -> str:
        """Return the failed stages as the text of a table cell."""
        return ", ".join(stage for stage, _ in self.failed)


def main() -> None:
    """Run every entry without a stored result, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("lists", type=Path, nargs="+")
    parser.add_argument("--into", type=Path, required=True, help="page to write")
    parser.add_argument("--kept", type=Path, required=True, help="JSON Lines file of results to continue")
    parser.add_argument("--only", default="", help="run only entries whose ID contains this, even with a stored result")
    given = parser.parse_args()
    listed = [entry for file in given.lists for entry in read_list(file)]
    rows = _rows(given.into)
    waiting = [entry for entry in listed if given.only or entry.title not in rows]
    entries = [*_fresh(waiting), *sorted(waiting, key=lambda entry: not entry.wrong)]
    known = {one.id: one for one in _kept(given.kept)}
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="noticed-")))
        sides = stack.enter_context(Sides(place / "logs"))
        for entry in entries:
            if (entry.id in known and not given.only) or given.only not in entry.id:
                continue
            known[entry.id] = result = judged(entry, place, sides, _failures(known.get(_id_of_fresh(entry))))
            with given.kept.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(result)) + "\n")
            print(f"{entry.id}: {result.by or 'nothing failed'}", flush=True)
    found = _beyond_fresh(listed, known)
    rows |= {entry.title: _row(entry, found[entry.id]) for entry in listed if entry.id in found}
    given.into.write_text(page(listed, rows, [*filter(None, map(_first_run, given.lists))]), encoding="utf-8")


def _rows(page: Path) -> dict[str, str]:
    """Return the rows of a page that was written before: title of an entry -> its row."""
    lines = page.read_text(encoding="utf-8").splitlines() if page.is_file() else ()
    found = (line for line in lines if line.startswith("| ") and _CELL in line)
    return {line[2:].partition(_CELL)[0]: line for line in found}


def _first_run(file: Path) -> str:
    """Return the note on the first run of a list; empty without one."""
    counts = yaml.safe_load(file.read_text(encoding="utf-8")).get("first_run")
    return f"`{file.name}`: {', '.join(f'{count} {what}' for what, count in counts.items())}." if counts else ""


def read_list(file: Path) -> Iterator[Mistake]:
    """Yield the entries of a list."""
    found = yaml.safe_load(file.read_text(encoding="utf-8"))
    for kind in ("wrong", "harmless"):
        for entry in found.get(kind, ()):
            yield Mistake(wrong=kind == "wrong", **entry)


def _fresh(entries: Sequence[Mistake]) -> list[Mistake]:
    """Return an entry without an edit for each scaffold."""
    scaffolds = {entry.scaffold: entry for entry in entries}.values()
    return [replace(entry, id=_id_of_fresh(entry), wrong=False, what="no edit", edits={}) for entry in scaffolds]


def _id_of_fresh(entry: Mistake) -> str:
    target = "" if entry.target == "veomni" else f" in {entry.target}"
    return f"fresh {entry.model}{target}"


def _beyond_fresh(entries: Sequence[Mistake], results: Mapping[str, Result]) -> dict[str, Result]:
    """Return the results without the failures that the unedited scaffold also has."""
    found = {}
    for entry in entries:
        own = _failures(results.get(_id_of_fresh(entry)))
        if (result := results.get(entry.id)) is not None:
            found[entry.id] = replace(result, failed=[one for one in result.failed if one not in own])
    return found


def _failures(result: Result | None) -> set[tuple[str, str]]:
    return set(result.failed) if result is not None else set()


def _kept(file: Path) -> Iterator[Result]:
    for line in file.read_text(encoding="utf-8").splitlines() if file.is_file() else ():
        kept: dict[str, Any] = json.loads(line)
        yield Result(kept["id"], [(stage, why) for stage, why in kept["failed"]], kept["not_tested"])


def judged(entry: Mistake, place: Path, sides: Sides, before: Set[tuple[str, str]] = frozenset()) -> Result:
    """Run the rounds until one has a failure that is not in `before`; return the failed and the untested stages."""
    fresh, compared = _scaffolded(*entry.scaffold, entry.name, place)
    own = place / "edited"
    integration = shutil.copytree(fresh, own) / entry.name
    try:
        entry.inject(integration)
        failed, untested = _static(integration, entry.in_generated), []
        for levels in _ROUNDS:
            if not set(failed) <= before:
                break
            for path in compared:
                report = run_parity(own / path, levels, sides=sides)
                failed += [(level.level, level.reason) for level in report.levels if level.status == "fail"]
                untested += [level.level for level in report.levels if level.status != "pass" and level.applicable]
        return Result(entry.id, failed, untested)
    except OmniKitError as error:
        return Result(entry.id, [("refused", error.message)], [])
    finally:
        shutil.rmtree(own)


@cache
def _scaffolded(model: str, target: str, pipeline: str, name: str, place: Path) -> tuple[Path, Sequence[Path]]:
    """Return the folder of a fresh scaffold, and in it what its last commands compare."""
    fresh = place / "scaffolds" / "-".join((model, target, pipeline)).replace("/", "-")
    with redirect_stdout(StringIO()):
        made = new_model(name, model, target=target, into=fresh, kind=pipeline or None)
        run_configs(sorted((fresh / name).glob(_CONFIGS)))
    commands = map(shlex.split, made.plan.next)
    return fresh, [Path(command[-1]).relative_to(fresh) for command in commands if command[1] == "parity"]


def _static(integration: Path, in_generated: bool) -> list[tuple[str, str]]:
    """Return the static stages of `verify` that fail, with the reason; see `Mistake.in_generated`."""
    stale = {rule.id for rule in all_rules() if rule.staleness and in_generated}
    found = [
        one
        for one in check([integration], level="import").findings
        if one.severity in SEVERITIES and one.rule.partition(".")[0] not in stale
    ]
    configs = [] if in_generated else sorted(integration.glob(_CONFIGS))
    wrong = [one for one in check_configs(configs) if not one.ok] if configs else []
    failed: list[tuple[str, str]] = [(GENERATED, wrong[0].status)] if wrong else []
    return [*failed, (CHECK, f"{found[0].rule}: {found[0].message}")] if found else failed


def page(entries: Sequence[Mistake], rows: Mapping[str, str], first_runs: Sequence[str]) -> str:
    """Return the page: counts, and for each entry the failed stages and the first reason, or what was not tested.

    Args:
        rows: title of an entry -> its row.
        first_runs: sentences about the first run of lists.
    """
    lines = [
        "# Injected mistakes and the stages that detect them",
        "",
        f"Written by `python -m tools.noticed` with omni-kit {__version__}. Each row is a fresh scaffold with one",
        "mistake of `bench/mistakes`, and the stages of `omni-kit verify` that failed. The static stages run first;",
        f"then {_listed(_QUICK)};",
        f"then {_listed(_MESHES)}; then {_listed(_SLOW)}. The first failing round ends an entry. Fault",
        "injection does not run, because it tests the levels, not the integration. For an edit of generated code, the",
        "difference from its patch config does not count as a failure.",
        "",
        *(
            ["First runs, before rules and levels were repaired:", "", *(f"- {one}" for one in first_runs), ""]
            if first_runs
            else ()
        ),
    ]
    for wrong, title in ((True, "Mistakes"), (False, "Harmless edits")):
        titles = dict.fromkeys(entry.title for entry in entries if entry.wrong == wrong)  # once, if two lists have it
        chosen = [rows[title] for title in titles if title in rows]
        noticed = sum(_CELL.join(("", NOTHING, "")) not in row for row in chosen)
        lines += [
            f"## {title}",
            "",
            f"{len(chosen)} tried, {noticed} failed a stage.",
            "",
            "| edit | failed stages | first reason |",
        ]
        lines += ["|---|---|---|", *chosen, ""]
    return "\n".join(lines)


def _listed(levels: Sequence[str]) -> str:
    return f"{', '.join(levels[:-1])} and {levels[-1]}"


def _row(entry: Mistake, result: Result) -> str:
    untested = f"not tested: {', '.join(result.not_tested)}" if result.not_tested else ""
    words = " ".join(result.failed[0][1].split()) if result.failed else untested
    reason = _FOLDERS.sub("", words)[:160].replace("|", "\\|")
    return f"| {_CELL.join((entry.title, result.by or NOTHING, reason))} |"


if __name__ == "__main__":
    main()
