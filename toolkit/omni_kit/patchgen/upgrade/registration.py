"""Edits of a config file: the text of a patch, its target, its registration, and comments about conflicts."""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from omni_kit.patchgen.source import SourceModule, read_module
from omni_kit.patchgen.spans import Edit, first_line, last_line, shift
from omni_kit.patchgen.upgrade.expressions import arguments
from omni_kit.patchgen.upgrade.outcome import Clash
from omni_kit.patchgen.upgrade.parts import Item, insertion, removal


class ConfigFile:
    """A config's file, and the edits that an upgrade makes of it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.source: SourceModule = read_module(path.stem, path)
        self.edits: list[Edit] = []

    def definition(self, line: int) -> ast.stmt | None:
        """Return the definition that begins at a line, decorators included."""
        return next(
            (one for one in ast.walk(self.source.tree) if isinstance(one, DEFINING) and first_line(one) == line), None
        )

    def calls(self, line: int) -> Iterator[tuple[ast.stmt, ast.Call]]:
        """The registering calls of a line, each with the statement or the decorated definition around it."""
        for statement in ast.walk(self.source.tree):
            if isinstance(statement, DEFINING):
                calls = [one for one in statement.decorator_list if isinstance(one, ast.Call)]
            elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
                calls = [statement.value]
            else:
                continue
            yield from ((statement, one) for one in calls if one.lineno <= line <= (one.end_lineno or one.lineno))

    def rewrite(self, line: int, text: str, decorators: tuple[Sequence[str], Sequence[str]] = ((), ())) -> None:
        """Give the definition at a line a new text, from `def` or `class` on."""
        node = self.definition(line)
        assert node is not None
        start = self.source.line_start(node.lineno)
        end = self.source.line_start(last_line(self.source, node) + 1)
        added = "".join(f"{' ' * node.col_offset}@{one}\n" for one in decorators[0])
        new = added + shift(text.rstrip() + "\n", 0, node.col_offset)
        if self.source.text[start:end] != new:
            self.edits.append(Edit(start, end, new))
        for one in getattr(node, "decorator_list", ()):
            if ast.unparse(one) in decorators[1]:
                at, to = self.source.line_start(one.lineno), self.source.line_start((one.end_lineno or one.lineno) + 1)
                self.edits.append(Edit(at, to, ""))

    def retarget(self, line: int, old: str, new: str) -> bool:
        """Name another target in the call that registers a patch; False where the call does not spell the old one."""
        for _, call in self.calls(line):
            for value in [
                *call.args[:1],
                *(one.value for one in call.keywords if one.arg and one.arg.startswith("target")),
            ]:
                if isinstance(value, ast.Constant) and value.value == old:
                    start, end = self.source.start_of(value), self.source.end_of(value)
                    self.edits.append(Edit(start, end, self.source.of(value).replace(old, new)))
                    return True
        return False

    def map_names(self, line: int, names: Mapping[str, str]) -> None:
        """Add names to the `name_map` of a registration that has one."""
        for _, call in self.calls(line):
            for one in (one.value for one in call.keywords if one.arg == "name_map"):
                if isinstance(one, ast.Dict) and one.values:
                    at = self.source.end_of(one.values[-1])
                    text = "".join(f', "{was}": "{now}"' for was, now in sorted(names.items()))
                    self.edits.append(Edit(at, at, text))

    def inject(self, line: int) -> None:
        """Say that a method is meant to be new to its class."""
        for _, call in self.calls(line):
            if not any(one.arg == "inject" for one in call.keywords):
                given = arguments(self.source, call.args, call.keywords)
                self.edits.append(insertion(self.source, given, len(given) - 1, ["inject=True"], 0))

    def as_helper(self, line: int, name: str, config: str = "config") -> bool:
        """Turn the replacement of a function into a helper that stands where an import was."""
        for statement, call in self.calls(line):
            if isinstance(statement, DEFINING) and len(statement.decorator_list) == 1:
                start, end = self.source.start_of(call), self.source.end_of(call)
                owner = ast.unparse(call.func).rpartition(".")[0] or config
                self.edits.append(Edit(start, end, f"{owner}.add_helper"))
                at = self.source.line_start(first_line(statement))
                self.edits.append(Edit(at, at, f'{owner}.drop_import_names("{name}")\n\n\n'))
                if statement.name != name:
                    found = re.compile(rf"\b{statement.name}\b").search(
                        self.source.text, self.source.line_start(statement.lineno)
                    )
                    assert found is not None
                    self.edits.append(Edit(found.start(), found.end(), name))
                return True
        return False

    def drop(self, line: int, *, whole: bool) -> bool:
        """Take a registration out; with `whole`, the decorated definition as well."""
        for statement, call in self.calls(line):
            decorated = isinstance(statement, DEFINING)
            if decorated and not (whole and len(statement.decorator_list) == 1):  # type: ignore[attr-defined]
                start = self.source.line_start(call.lineno)
                self.edits.append(Edit(start, self.source.line_start((call.end_lineno or 0) + 1), ""))
                return True
            first = first_line(statement)
            while first > 1 and self.source.lines[first - 2].startswith("#"):
                first -= 1
            start, end = self.source.line_start(first), self.source.line_start(last_line(self.source, statement) + 1)
            while self.source.text[end : end + 1] == "\n" and self.source.text[:start].endswith("\n\n"):
                end += 1
            self.edits.append(Edit(start, end, ""))
            return True
        return False

    def exclude(self, names: Mapping[str, str]) -> None:
        """Name what `exclude_from_output` excludes as upstream does now; a name without a newer one goes."""
        for statement in self.source.tree.body:
            match statement:
                case ast.Expr(value=ast.Call(func=ast.Attribute(attr="exclude_from_output"), args=args)):
                    self._exclude(statement, args, names)

    def _exclude(self, statement: ast.Expr, args: Sequence[ast.expr], names: Mapping[str, str]) -> None:
        items = [Item(ast.unparse(one), "", self.source.start_of(one), self.source.end_of(one), one) for one in args]
        given = [one.value if isinstance(one, ast.Constant) else None for one in args]
        gone = {index for index, name in enumerate(given) if names.get(str(name)) == ""}
        if gone and len(gone) == len(args):
            end = self.source.line_start((statement.end_lineno or statement.lineno) + 1)
            self.edits.append(Edit(self.source.line_start(statement.lineno), end, ""))
            return
        self.edits += removal(self.source, items, gone)
        renamed = ((item, names[str(name)]) for item, name in zip(items, given, strict=True) if names.get(str(name)))
        self.edits += [Edit(item.start, item.end, f'"{new}"') for item, new in renamed]

    def rebase(self, classes: Mapping[str, str], there: Mapping[str, bool]) -> None:
        """Let helper classes that extend a class that upstream dropped extend its newer one, and stand behind that.

        Args:
            classes: upstream's older classes, each with its newer one.
            there: whether the newer module defines a newer class itself; else it imports it.
        """
        edits: list[tuple[ast.expr, str]] = []
        for node in self.source.tree.body:
            calls = node.decorator_list if isinstance(node, ast.ClassDef) else [getattr(node, "value", None)]
            for call in calls:
                match call:
                    case ast.Call(func=ast.Attribute(attr="add_helper_after"), args=[ast.Constant(value=at), *given]):
                        if at in classes:
                            edits += self._behind(call, str(classes[at]), given, there)  # type: ignore[index]
                            bases = node.bases if isinstance(node, ast.ClassDef) else []
                            named = [one for one in bases if isinstance(one, ast.Name) and one.id in classes]
                            edits += [(one, classes[one.id]) for one in named]
        self.edits += [Edit(self.source.start_of(one), self.source.end_of(one), text) for one, text in edits]

    def _behind(
        self, call: ast.Call, new: str, given: Sequence[ast.expr], there: Mapping[str, bool]
    ) -> Iterator[tuple[ast.expr, str]]:
        """Yield the edits that anchor a helper at another class, or at none that the newer module does not define."""
        if there[new]:
            yield call.args[0], f'"{new}"'
        else:
            func = f"{self.source.of(call.func).removesuffix('_after')}"
            yield call, f"{func}({self.source.of(given[0])})" if given else func

    def mark(self, line: int, text: str) -> None:
        """Put a mark above the statement that registers a patch, and above its comments."""
        for statement, _ in self.calls(line):
            first = first_line(statement)
            while first > 1 and self.source.lines[first - 2].strip().startswith("#"):
                first -= 1
            at = self.source.line_start(first)
            self.edits.append(Edit(at, at, shift_comments(text, statement.col_offset) + "\n"))
            return


DEFINING = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def shift_comments(text: str, column: int) -> str:
    """Comment lines, indented."""
    return "".join(f"{' ' * column}{line}\n" for line in text.splitlines())


def effects_of(clashes: Sequence[Clash], ours: ast.AST, target: str, versions: tuple[str, str]) -> list[str]:
    """Return the effects on training of keeping the patch and of taking upstream's code."""
    names = {name for clash in clashes for part in (clash.was, clash.now, clash.patch) for name in _bound(part)}
    reached = _reaches(ours, names)
    to = f", which reaches {', '.join(reached)}" if reached else ""
    what = ", ".join(sorted(names)[:4]) or "this"
    return [
        f"Keep the patch: {target} computes {what} as with {versions[0]}{to}.",
        f"Take upstream's: {target} computes {what} as {versions[1]} does, without the patch's change of it.",
    ]


def _bound(code: str) -> set[str]:
    try:
        tree = ast.parse(code)
    except SyntaxError:
        return set()
    found = {one.id for one in ast.walk(tree) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}
    return found or {one.id for one in ast.walk(tree) if isinstance(one, ast.Name)} - {"self", "torch"}


def _reaches(node: ast.AST, names: set[str]) -> list[str]:
    """Return the outputs of a function that these names flow into."""
    tainted = set(names)
    for _ in range(2):
        for one in ast.walk(node):
            if isinstance(one, (ast.Assign, ast.AugAssign, ast.AnnAssign)) and one.value is not None:
                read = {n.id for n in ast.walk(one.value) if isinstance(n, ast.Name)}
                if read & tainted:
                    targets = one.targets if isinstance(one, ast.Assign) else [one.target]
                    tainted |= {n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)} - {"self"}
    found: list[str] = []
    for one in ast.walk(node):
        if isinstance(one, ast.Return) and isinstance(one.value, ast.Call):
            pairs = [(k.arg, k.value) for k in one.value.keywords]
            found += [
                name
                for name, value in pairs
                if name and tainted & {n.id for n in ast.walk(value) if isinstance(n, ast.Name)}
            ]
        elif isinstance(one, ast.Return) and one.value is not None:
            values = one.value.elts if isinstance(one.value, ast.Tuple) else [one.value]
            found += [v.id for v in values if isinstance(v, ast.Name) and v.id in tainted]
    return list(dict.fromkeys(found))
