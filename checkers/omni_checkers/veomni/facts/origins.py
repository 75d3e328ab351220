"""From a line of a generated file to the line of the patch config that it came from."""

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

from omni_checkers.engine.facts import fact
from omni_checkers.veomni.facts.generated import Generated
from omni_checkers.veomni.facts.regenerate import Regenerated
from omni_kit.patchgen.fragment import Fragment
from omni_kit.patchgen.spec import Origin
from omni_kit.pysource.source import parse_file

Place = tuple[Path, int]


@fact
def written_at(generated: list[Generated], regenerated: list[Regenerated]) -> Callable[[Path, int], Place | None]:
    """Return a function that finds where a line of a generated file was written; None for a file that no config makes.

    Code that is upstream's own leads to the line of the config itself, and that of another model's config to the line
    that takes it over.
    """
    items = {item.file.path: item for item in generated if item.config is not None}
    runs = {run.config.file.path: run for run in regenerated}

    def place(path: Path, line: int) -> Place | None:
        item = items.get(path)
        if item is None or item.config is None:
            return None
        own = item.config.file.path
        run = runs.get(own)
        around = list(_around(item.file.tree, line))
        fragments = dict(_fragments(run)) if run is not None else {}
        for name, node in reversed(around):
            if (found := fragments.get(name)) is not None:
                fragment, origin = found
                if fragment.path.is_relative_to(own.parent):
                    return fragment.path, _line_in(fragment, item, node, line)
                if origin is not None and origin.path == str(own):
                    return own, origin.line
        return own, item.config.line

    return place


def _around(tree: ast.Module | None, line: int) -> Iterator[tuple[str, ast.stmt]]:
    """("C", class), ("C.m", method) of the definitions around a line, outermost first."""
    body, prefix = tree.body if tree is not None else [], ""
    while True:
        inside = next((n for n in body if n.lineno <= line <= (n.end_lineno or n.lineno) and hasattr(n, "name")), None)
        if inside is None:
            return
        prefix = f"{prefix}.{inside.name}" if prefix else inside.name
        yield prefix, inside
        body = getattr(inside, "body", [])


def _fragments(run: Regenerated) -> Iterator[tuple[str, tuple[Fragment, Origin | None]]]:
    """Yield the name of each definition that the config brings, with its text and the line that registers it."""
    for applied in run.result.patches:
        if applied.fragment is not None:
            owner = f"{applied.owner_path}." if applied.owner_path else ""
            name = "__init__" if applied.patch.kind == "init_modification" else applied.name
            yield owner + name, (applied.fragment, applied.patch.origin)
    for helper in run.result.generated.helpers if run.result.generated is not None else ():
        yield helper.name, (helper, None)


def _line_in(fragment: Fragment, item: Generated, node: ast.stmt, line: int) -> int:
    """Return the line of the config that says the same, nearest to where it should be; else the one where it
    should be.
    """
    lines = parse_file(fragment.path)[0].split("\n")
    first = fragment.line
    while not lines[first - 1].lstrip().startswith(("def ", "class ", "async ")) and first < len(lines):
        first += 1
    last = first + fragment.text.count("\n")
    wanted, said = first + line - node.lineno, item.source.lines[line - 1].strip()
    same = [number for number in range(first, min(last, len(lines)) + 1) if lines[number - 1].strip() == said]
    return min(same, key=lambda number: abs(number - wanted)) if same else max(first, min(wanted, last))
