"""A real bump, made by `patchgen upgrade`, compared with what the maintainers made of it.

    python bench/upgrade.py PARENT THEIRS --from OLD [--to NEW] [--list] [--parity] [--only MODEL]

PARENT is the checkout before the bump and THEIRS the one after it; both have the generated files. PARENT's configs are
copied, upgraded and generated; functions count that differ between the generated files of PARENT and THEIRS.

`--parity` runs what the merge wrote differently from the maintainers: each such function replaces theirs in their own
generated file, and that model is compared with the newer upstream, with and without the replacement. A function is
carried wrongly when a level fails that passes with the maintainers' code; it counts as run when its lines ran.
"""

import argparse
import ast
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from omni_kit.parity import run_parity
from omni_kit.parity.report.report import LevelResult, ParityReport
from omni_kit.patchgen.imports import bound_by
from omni_kit.patchgen.project import find_configs
from omni_kit.patchgen.run import prepare
from omni_kit.patchgen.upgrade.configs import upgrade_configs
from omni_kit.patchgen.upgrade.versions import version_at

Function = ast.FunctionDef | ast.AsyncFunctionDef


def definitions(body: list[ast.stmt], prefix: str = "") -> Iterator[tuple[str, Function]]:
    """Every function and method with its path."""
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from definitions(node.body, f"{prefix}{node.name}.")
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield prefix + node.name, node


def functions(text: str) -> dict[str, str]:
    """The syntax tree of every function and method by its path, docstrings aside."""
    found: dict[str, str] = {}
    for name, node in definitions(ast.parse(text).body):
        for inner in ast.walk(node):
            if isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef)) and ast.get_docstring(inner):
                inner.body = inner.body[1:] or [ast.Pass()]
        found[name] = ast.dump(node)
    return found


def replaced(theirs: str, ours: str, names: list[str]) -> str:
    """The maintainers' generated file with some of our functions, and the imports that those need."""
    sides = [dict(definitions(ast.parse(text).body)) for text in (theirs, ours)]
    lines = theirs.splitlines()
    for name in sorted(names, key=lambda one: -sides[0][one].lineno):
        start, end = span(sides[0][name])
        mine = slice(*span(sides[1][name]))
        lines[start:end] = ours.splitlines()[mine]
    known = {bound for node in ast.parse(theirs).body for bound in imported(node)}
    missing = [ast.unparse(node) for node in ast.parse(ours).body if set(imported(node)) - known]
    last = max(
        node.end_lineno or 0 for node in ast.parse(theirs).body if isinstance(node, (ast.Import, ast.ImportFrom))
    )
    return "\n".join([*lines[:last], *missing, *lines[last:]]) + "\n"


def span(node: Function) -> tuple[int, int]:
    """The lines of a function with its decorators."""
    return min([node.lineno, *(one.lineno for one in node.decorator_list)]) - 1, node.end_lineno or node.lineno


def imported(node: ast.stmt) -> list[str]:
    """The names that an import binds."""
    return [bound_by(one, node) for one in node.names] if isinstance(node, (ast.Import, ast.ImportFrom)) else []


def compare(file: Path, text: str, names: list[str]) -> tuple[ParityReport, set[str]]:
    """Parity of the model whose generated file has this text; and which of the functions ran."""
    file.write_text(text, encoding="utf-8")
    report = run_parity(file.parent.parent, LEVELS, branches=True)
    ran = {line for arc in (report.executed or {}).get(str(file), ()) for line in arc}
    found = dict(definitions(ast.parse(text).body))
    inside = {name: range(found[name].body[0].lineno, (found[name].end_lineno or 0) + 1) for name in names}
    return report, {name for name, body in inside.items() if ran & set(body)}


def judge(file: Path, ours: str, names: list[str], known: dict[tuple[str, str], str]) -> None:
    """Run the functions that differ in the maintainers' file, and record parity's verdict on each.

    Args:
        known: verdicts by name and syntax tree; the same function of another device's file is not run again.
    """
    trees = functions(ours)
    fresh = [name for name in names if (name, trees[name]) not in known]
    theirs = file.read_text(encoding="utf-8")
    reference, _ = compare(file, theirs, [])
    report, ran = compare(file, replaced(theirs, ours, fresh), fresh)
    file.write_text(theirs, encoding="utf-8")
    pairs = list(zip(reference.levels, report.levels, strict=True))
    wrong = [mine for base, mine in pairs if base.status == "pass" and mine.status != "pass"]
    other = SAME if all(measured(base) == measured(mine) for base, mine in pairs) else UNDECIDED
    for name in fresh:
        passed = all(one.status == "pass" for one in report.levels if one.level in ("forward", "backward"))
        kind = WRONG if wrong else NOT_RUN if name not in ran else PASSES if passed else other
        known[name, trees[name]] = kind
    for name in names:
        print(f"{known[name, trees[name]]:31} {file.name} {name}", flush=True)
    for one in wrong:
        print(f"    {one.level}: {one.reason}")


def measured(level: LevelResult) -> tuple[str, float | None, float | None]:
    """Return the status and the figures of a level, which are equal for code that computes the same."""
    return level.status, level.max_abs, level.max_rel


WRONG, NOT_RUN, PASSES, SAME = "carried wrongly", "not run", "passes", "computes what the maintainers' does"
UNDECIDED = "the maintainers' does not pass"
LEVELS = ("import", "keys", "forward", "backward", "modules")


def main() -> None:
    """Prints how many functions are equal, and what became of the others."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parent", type=Path)
    parser.add_argument("theirs", type=Path)
    parser.add_argument("--from", dest="old", required=True)
    parser.add_argument("--to", dest="new", default=None)
    parser.add_argument("--list", action="store_true", help="name every function that differs")
    parser.add_argument("--parity", action="store_true", help="run each function that differs")
    parser.add_argument("--only", default="", metavar="MODEL", help="run only the files with this in their path")
    given = parser.parse_args()
    old, new = (version_at("transformers", one) if one else None for one in (given.old, given.new))
    assert old is not None
    with tempfile.TemporaryDirectory() as folder:
        ours = Path(shutil.copytree(given.parent, Path(folder) / "ours"))
        started = time.perf_counter()
        configs = find_configs(ours)
        result = upgrade_configs(list(configs), old, new)
        seconds = time.perf_counter() - started
        counts: Counter[str] = Counter()
        verdicts: dict[Path, dict[tuple[str, str], str]] = {}
        judged: Counter[str] = Counter()
        checkout = Path(shutil.copytree(given.theirs / "veomni", Path(folder) / "theirs" / "veomni")).parent
        for config, outcome in zip(prepare(configs, None, new), result.configs, strict=True):
            assert config.output is not None
            place = config.output.relative_to(ours.resolve())
            sides = [functions((root / place).read_text(encoding="utf-8")) for root in (given.parent, given.theirs)]
            made = functions(config.text) if config.text else {}
            status = {one.target: one.status for one in outcome.patches}
            differs: list[str] = []
            for name, wanted in sides[1].items():
                if sides[0].get(name) == wanted:
                    if made.get(name) not in (None, wanted):
                        counts["left by the maintainers, merged here"] += 1
                        differs.append(name)
                    continue
                kind = "equal" if made.get(name) == wanted else status.get(name, "no patch: the maintainers added code")
                counts[kind] += 1
                if kind in ("merged", "carried"):
                    differs.append(name)
                if given.list and kind != "equal":
                    print(f"{kind:10} {place.name} {name}")
            if given.parity and differs and given.only in str(place):
                known = verdicts.setdefault(place.parent, {})
                judge(checkout / place, config.text, differs, known)
                judged.update(known[name, made[name]] for name in differs)
    changed = sum(count for kind, count in counts.items() if not kind.startswith("left by"))
    print(f"{len(configs)} configs in {seconds:.1f} s; the bump changed {changed} functions")
    for kind, count in counts.most_common():
        print(f"{count:5}  {kind}")
    if given.parity:
        compared = judged.total() - judged[NOT_RUN] - judged[UNDECIDED]
        print(f"carried wrongly by parity: {judged[WRONG]} of {compared}")
        for kind, count in judged.most_common():
            print(f"{count:5}  {kind}")


if __name__ == "__main__":
    main()
