"""A real bump, made by `patchgen upgrade`, beside what the maintainers made of it.

    python bench/upgrade.py PARENT THEIRS --from OLD [--to NEW] [--list]

PARENT is the checkout before the bump and THEIRS the one after it; both have the generated files. PARENT's configs are
copied, upgraded and generated; functions count that differ between the generated files of PARENT and THEIRS.
"""

import argparse
import ast
import shutil
import tempfile
import time
from collections import Counter
from pathlib import Path

from omni_kit.patchgen.project import find_configs
from omni_kit.patchgen.run import prepare
from omni_kit.patchgen.upgrade.configs import upgrade_configs


def functions(text: str) -> dict[str, str]:
    """The syntax tree of every function and method by its path, docstrings aside."""
    found: dict[str, str] = {}

    def walk(body: list[ast.stmt], prefix: str) -> None:
        for node in body:
            if isinstance(node, ast.ClassDef):
                walk(node.body, f"{prefix}{node.name}.")
            elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                for inner in ast.walk(node):
                    if isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef)) and ast.get_docstring(inner):
                        inner.body = inner.body[1:] or [ast.Pass()]
                found[prefix + node.name] = ast.dump(node)

    walk(ast.parse(text).body, "")
    return found


def main() -> None:
    """Prints how many functions are equal, and what became of the others."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parent", type=Path)
    parser.add_argument("theirs", type=Path)
    parser.add_argument("--from", dest="old", type=Path, required=True)
    parser.add_argument("--to", dest="new", type=Path)
    parser.add_argument("--list", action="store_true", help="name every function that differs")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        ours = Path(shutil.copytree(given.parent, Path(folder) / "ours"))
        started = time.perf_counter()
        configs = find_configs(ours)
        result = upgrade_configs(list(configs), given.old, given.new)
        seconds = time.perf_counter() - started
        counts: Counter[str] = Counter()
        for config, outcome in zip(prepare(configs, None, given.new), result.configs, strict=True):
            assert config.output is not None
            place = config.output.relative_to(ours.resolve())
            sides = [functions((root / place).read_text(encoding="utf-8")) for root in (given.parent, given.theirs)]
            made = functions(config.text) if config.text else {}
            status = {one.target: one.status for one in outcome.patches}
            for name, wanted in sides[1].items():
                if sides[0].get(name) == wanted:
                    if made.get(name) not in (None, wanted):
                        counts["left by the maintainers, merged here"] += 1
                    continue
                kind = "equal" if made.get(name) == wanted else status.get(name, "no patch: the maintainers added code")
                counts[kind] += 1
                if given.list and kind != "equal":
                    print(f"{kind:10} {place.name} {name}")
    changed = sum(count for kind, count in counts.items() if not kind.startswith("left by"))
    print(f"{len(configs)} configs in {seconds:.1f} s; the bump changed {changed} functions")
    for kind, count in counts.most_common():
        print(f"{count:5}  {kind}")


if __name__ == "__main__":
    main()
