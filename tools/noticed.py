"""What notices each mistake of a list: `python -m tools.noticed MISTAKES.yaml ... --into docs/noticed.md`.

Each entry of a list is a fresh scaffold with a few words replaced. `wrong` entries must fail `verify`, `harmless` ones
must not. What a scaffold fails without an edit counts for neither. Results are kept in a file beside the page
(`--kept FILE`), so that an interrupted run goes on.
"""

import argparse
import json
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass, replace
from io import StringIO
from pathlib import Path
from typing import Any

import yaml

from omni_kit import __version__
from omni_kit.errors import OmniKitError
from omni_kit.patchgen import run_configs
from omni_kit.scaffold import new_model
from omni_kit.verify import Card, verify

_FOLDERS = re.compile(r"(?<![\w.])(?:/[\w.+-]+)+/")  # of this machine
_CONFIGS = "*_patch_gen_config.py"


@dataclass(frozen=True)
class Mistake:
    """One entry of a list.

    Attributes:
        wrong: must be noticed; False for an edit that changes nothing.
        model: SOURCE of the scaffold.
        edits: file -> pairs of a text and its replacement.
    """

    id: str
    wrong: bool
    what: str
    model: str
    edits: Mapping[str, Sequence[Sequence[str]]]

    def plant(self, integration: Path) -> None:
        """Edit a scaffold, and generate again what its patch configs generate.

        Raises:
            ValueError: a text to replace is not there.
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
    """What `verify` says of one entry: the stages that failed, each with the first words of its reason."""

    id: str
    failed: Sequence[tuple[str, str]]
    not_tested: Sequence[str]

    @property
    def by(self) -> str:
        """The stages, for a cell of a table."""
        return ", ".join(stage for stage, _ in self.failed)


def main() -> None:
    """Judge every entry that was not judged before, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("lists", type=Path, nargs="+")
    parser.add_argument("--into", type=Path, required=True, help="page to write")
    parser.add_argument("--kept", type=Path, required=True, help="JSON Lines file of results, read and continued")
    parser.add_argument("--only", default="", help="judge only entries whose id contains this, again")
    given = parser.parse_args()
    listed = [entry for file in given.lists for entry in read_list(file)]
    entries = [*_fresh(listed), *listed]
    known = {one.id: one for one in _kept(given.kept)}
    with tempfile.TemporaryDirectory(prefix="noticed-") as place:
        for entry in entries:
            if (entry.id in known and not given.only) or given.only not in entry.id:
                continue
            known[entry.id] = result = judged(entry, Path(place))
            with given.kept.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(result)) + "\n")
            print(f"{entry.id}: {result.by or 'nothing failed'}", flush=True)
    given.into.write_text(page(listed, _beyond_fresh(listed, known)), encoding="utf-8")


def read_list(file: Path) -> Iterator[Mistake]:
    """Yield the entries of a list."""
    found = yaml.safe_load(file.read_text(encoding="utf-8"))
    for kind in ("wrong", "harmless"):
        for entry in found.get(kind, ()):
            yield Mistake(wrong=kind == "wrong", **entry)


def _fresh(entries: Sequence[Mistake]) -> list[Mistake]:
    """An entry without an edit for each model."""
    models = dict.fromkeys(entry.model for entry in entries)
    return [Mistake(f"fresh {model}", wrong=False, what="no edit", model=model, edits={}) for model in models]


def _beyond_fresh(entries: Sequence[Mistake], results: Mapping[str, Result]) -> dict[str, Result]:
    """The results without the stages that fail for the same reason where nothing was edited."""
    found = {}
    for entry in entries:
        before = results.get(f"fresh {entry.model}")
        own = set(map(tuple, before.failed)) if before is not None else set()
        if (result := results.get(entry.id)) is not None:
            found[entry.id] = replace(result, failed=[one for one in result.failed if tuple(one) not in own])
    return found


def _kept(file: Path) -> Iterator[Result]:
    for line in file.read_text(encoding="utf-8").splitlines() if file.is_file() else ():
        kept: dict[str, Any] = json.loads(line)
        yield Result(kept["id"], [(stage, why) for stage, why in kept["failed"]], kept["not_tested"])


def judged(entry: Mistake, place: Path) -> Result:
    """The static stages and the default levels; all stages where none of those fails."""
    name = entry.model if entry.model.islower() else "wan"
    fresh = place / "scaffolds" / entry.model
    if not fresh.is_dir():
        with redirect_stdout(StringIO()):
            new_model(name, entry.model, target="veomni", into=fresh)
            run_configs(sorted((fresh / name).glob(_CONFIGS)))
    own = place / entry.id
    integration = shutil.copytree(fresh, own) / name
    try:
        entry.plant(integration)
        card = verify(integration, quick=True)
        if card.passed:
            card = verify(integration)
    except OmniKitError as error:
        return Result(entry.id, [("refused", error.message)], [])
    finally:
        shutil.rmtree(own)
    return _result(entry.id, card)


def _result(name: str, card: Card) -> Result:
    failed = [(stage.stage, stage.reason) for stage in card.stages if stage.status == "failed"]
    return Result(name, failed, [stage.stage for stage in card.stages if stage.status == "not tested"])


def page(entries: Sequence[Mistake], results: Mapping[str, Result]) -> str:
    """The page: counts, and for each entry the stages that failed and the reason of the first."""
    lines = [
        "# What notices a mistake",
        "",
        f"Written by `python -m tools.noticed` with omni-kit {__version__}. Each line is a fresh scaffold with one",
        "mistake, as `bench/mistakes` lists it, and the stages of `omni-kit verify` that failed. A mistake that the",
        "static stages and the default levels notice is not judged by the others.",
        "",
    ]
    for wrong, title in ((True, "Mistakes"), (False, "Harmless edits")):
        chosen = [entry for entry in entries if entry.wrong == wrong and entry.id in results]
        noticed = sum(bool(results[entry.id].failed) for entry in chosen)
        lines += [f"## {title}", "", f"{len(chosen)} tried, {noticed} failed.", "", "| edit | failed | first reason |"]
        lines += ["|---|---|---|", *(_row(entry, results[entry.id]) for entry in chosen), ""]
    return "\n".join(lines)


def _row(entry: Mistake, result: Result) -> str:
    words = " ".join(result.failed[0][1].split()) if result.failed else ""
    reason = _FOLDERS.sub("", words)[:160].replace("|", "\\|")
    return f"| {entry.model}: {entry.what} | {result.by or 'nothing'} | {reason} |"


if __name__ == "__main__":
    main()
