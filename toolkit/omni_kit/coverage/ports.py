"""Public repositories of diffusion transformers, ported into diffusers as they are."""

import re
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from omni_kit.coverage.case import CELLS
from omni_kit.documents import read_mapping
from omni_kit.errors import BadInput, OmniKitError
from omni_kit.files import cache_directory, identifier_of
from omni_kit.isolation.programs import run_program
from omni_kit.isolation.worker import StepError
from omni_kit.parity.run import run_parity
from omni_kit.scaffold import new_model
from omni_kit.verify.own_tests import own_tests, run_own_tests
from omni_kit.verify.unfinished import left_to_do

TARGET = "diffusers"
LIST = Path(__file__).resolve().parent / "ports.json"
_HOST = "https://github.com/"
_FETCHING = 600.0
_LONGEST = 240
_RAISES = "raise NotImplementedError"  # a pipeline, where the authors' loop was not read
_TITLES = {False: "Repositories that the tool was written with", True: "Repositories kept aside"}
_ASSEMBLED = "Assembled from single runs of"
PROVEN, NOT_TESTED = "proven", "not fetched"


@dataclass(frozen=True)
class Repository:
    """One line of the list.

    Attributes:
        name: "owner/name" on GitHub.
        commit: all forty digits.
        model: "PATH::Class", from the repository's root.
        aside: nobody looked into it while this was written.
    """

    name: str
    commit: str
    model: str
    aside: bool = False


@dataclass(frozen=True)
class Ported:
    """The result of one port.

    Attributes:
        seconds: what new-model took.
        todo: how many to-dos its files have.
        parity: of the default levels, in short.
        pipeline: whether whole trajectories equal those of the authors' loop; where that was not read, that it raises;
            empty if it was, and is not called.
        tests: the counts of the tests that were written.
        reason: why it is not proven.
    """

    repository: Repository
    verdict: str
    seconds: float = 0.0
    todo: int = 0
    parity: str = ""
    pipeline: str = ""
    tests: str = ""
    reason: str = ""


def repositories(names: Sequence[str] = ()) -> list[Repository]:
    """Return the list, or those of it with these names."""
    every = [Repository(**one) for one in read_mapping(LIST)["repositories"]]
    return [one for one in every if not names or one.name in names]


def fetched(repository: Repository) -> Path | None:
    """Return the files of a repository at its commit; None if they are not here and cannot be fetched."""
    place = cache_directory() / "ports" / repository.name / repository.commit
    if place.is_dir():
        return place
    with tempfile.TemporaryDirectory(prefix="omni-kit-fetch-") as given:
        git = ["git", "-C", given, "-c", "core.longpaths=true"]
        wanted = ["fetch", "--quiet", "--depth=1", f"{_HOST}{repository.name}", repository.commit]
        for arguments in (["init", "--quiet"], wanted, ["checkout", "--quiet", "FETCH_HEAD"]):
            try:
                if run_program([*git, *arguments], timeout=_FETCHING).code:
                    return None
            except (OSError, TimeoutError):
                return None
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(given, place, ignore=shutil.ignore_patterns(".git"))
    return place


def cover(wanted: Sequence[Repository]) -> Iterator[Ported]:
    """Port one after the other, as a user would: without an edit."""
    for repository in wanted:
        found = fetched(repository)
        if found is None:
            yield Ported(repository, NOT_TESTED)
            continue
        with tempfile.TemporaryDirectory(prefix="omni-kit-ports-") as place:
            done = _ported(repository, found, Path(place))
        print(f"{repository.name}: {done.verdict} {done.reason}", file=sys.stderr, flush=True)
        yield done


def _ported(repository: Repository, source: Path, place: Path) -> Ported:
    name = identifier_of(repository.name.rpartition("/")[2]).lower()
    started = time.monotonic()
    try:
        new_model(name, f"{source / repository.model}", target=TARGET, into=place)
    except OmniKitError as error:
        return Ported(repository, "refused", reason=_told(error))
    seconds, package = time.monotonic() - started, place / name
    todo = len(left_to_do(package))
    parity, why = _compared(package, None, ["steps"])
    tests, failed = _tested(package)
    file = package / f"pipeline_{name}.py"
    pipeline = "raises" if _RAISES in file.read_text(encoding="utf-8") else ""
    if not pipeline and (package / "authors_sampling.py").is_file():
        pipeline, odd = _compared(file, None)
        why = why or (f"pipeline: {odd}" if odd else "")
    why = why or failed
    return Ported(repository, "not proven" if why else PROVEN, seconds, todo, parity, pipeline, tests, why)


def _compared(path: Path, *wanted: Sequence[str] | None) -> tuple[str, str]:
    """Return the levels that passed, of those that ran; and why one did not.

    Args:
        wanted: the levels of one comparison after the other; None for the default ones.
    """
    try:
        levels = [level for some in wanted for level in run_parity(path, some).levels]
    except OmniKitError as error:
        return "-", _told(error)
    passed = [one for one in levels if one.status == "pass"]
    wrong = next((f"{one.level}: {one.reason}" for one in levels if one.status not in ("pass", "skip")), "")
    return f"{len(passed)} of {len(levels)}", wrong


def _told(error: OmniKitError) -> str:
    """Return an error with what to do about it."""
    return "; ".join(filter(None, (error.message, error.hint)))


def _tested(package: Path) -> tuple[str, str]:
    if not own_tests(package):
        return "", ""
    try:
        found = run_own_tests(package)
    except (StepError, OmniKitError) as error:
        return "-", f"tests: {error}"
    every = sum(found.get(what, 0) for what in ("passed", "failed", "error"))
    return f"{found.get('passed', 0)} of {every}", f"tests: {found['last']}" if found["code"] else ""


def page(ported: Sequence[Ported], before: str = "") -> str:
    """Return the number of verified ports, and a table.

    Args:
        before: an earlier page, of which other models keep their rows.
    """
    rows = _rows(before)
    for one in ported:
        cells = _cells(one)
        rows[one.repository.aside][cells[0], cells[1]] = cells
    if not any(rows.values()):
        raise BadInput("no repository is selected")
    lines = [
        "# Public repositories, ported into diffusers",
        "",
        f"{_ASSEMBLED if before else 'Made by'} `make coverage-ports`. Each repository is fetched at its commit;"
        " `new-model` writes the port, and",
        "nobody edits it. A port is proven when the default levels of `parity` pass (with `steps`, where a row has",
        "seven), its own tests pass, and, where the authors' sampling loop was found, the pipeline's whole trajectory",
        "equals it. A pipeline that raises has no denoising steps yet: the loop was not read or not proven; one to-do",
        "says so. Of models that diffusers has ported itself, [conversions](conversions.md) are compared with its own.",
        "",
    ]
    for aside, some in rows.items():
        if some:
            counts = Counter(cells[-1].partition(":")[0] for cells in some.values())
            said = ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items()))
            lines += [f"## {_TITLES[aside]}", "", f"Of {len(some)}: {said}.", "", *_table(some.values()), ""]
    return "\n".join(lines)


def _rows(page: str) -> dict[bool, dict[tuple[str, ...], Sequence[str]]]:
    """Return the rows of a page by repository and model; of those that were kept aside by themselves."""
    found: dict[bool, dict[tuple[str, ...], Sequence[str]]] = {False: {}, True: {}}
    aside = False
    for line in page.splitlines():
        if line.startswith("## "):
            aside = line == f"## {_TITLES[True]}"
        if line.startswith("| ["):
            cells = [one.strip() for one in CELLS.split(line)[1:-1]]
            found[aside][cells[0], cells[1]] = cells
    return found


def _table(rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield "| repository | model | seconds | to-dos | parity | pipeline | tests | verdict |"
    yield "|---|---|---|---|---|---|---|---|"
    yield from (f"| {' | '.join(cells)} |" for cells in rows)


def _cells(one: Ported) -> Sequence[str]:
    given = one.repository
    link = f"[{given.name}]({_HOST}{given.name}/tree/{given.commit})"
    model = given.model.rpartition("::")[2]
    reason = one.reason.replace(f"{given.commit}/", "")  # that the folder of its files is called after
    why = f"{one.verdict}: {_shown(reason)}" if reason else one.verdict
    return link, model, f"{one.seconds:.0f}", str(one.todo), one.parity, one.pipeline, one.tests, why


def _shown(reason: str) -> str:
    """Return one cell, without the places of the machine that it was found on."""
    text = re.sub(r"(?<![\w.+-])(/[\w.+-]+)+/", "", reason).replace("|", "\\|")
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
