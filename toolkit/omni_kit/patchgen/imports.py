"""The import section: upstream's imports as absolute ones, without dropped names, then the config's additions."""

import ast
import re
import textwrap

from omni_kit.patchgen.source import SourceModule
from omni_kit.patchgen.spans import Edit
from omni_kit.patchgen.spec import ImportSpec, PatchConfig
from omni_kit.pysource.nodes import blocks

_INDENTED_RELATIVE = re.compile(r"(?:^[ \t]+|[:;]\s*)from\s*\.", re.MULTILINE)
_Import = ast.Import | ast.ImportFrom


def import_edits(source: SourceModule, dropped: set[str]) -> list[Edit]:
    """Edits that make every relative import absolute, and take `dropped` names out of module-level imports.

    An if or try whose only effect is to bind dropped names goes as a whole; one that binds others keeps them.
    """
    edits: list[Edit] = []
    removed: list[tuple[int, int]] = []
    for node in source.tree.body:
        if dropped and _only_binds(node, dropped):
            removed.append((source.start_of(node), source.end_of(node)))
            edits.append(Edit(*removed[-1], ""))
        elif dropped:
            edits += _drop_inside([node], source, dropped, alone=False)
    gone = [*removed, *((edit.start, edit.end) for edit in edits)]
    for node in _from_imports(source):
        if node.level:
            start = source.start_of(node)
            if not any(first <= start < last for first, last in gone):
                edits.append(_absolute_edit(node, source))
    return edits


def _from_imports(source: SourceModule) -> list[ast.ImportFrom]:
    """Return all from-imports, those inside functions and guards too; few modules have a relative one there."""
    if _INDENTED_RELATIVE.search(source.text):
        return [node for _, node in source.nodes[ast.ImportFrom]]
    return [node for node in source.tree.body if isinstance(node, ast.ImportFrom)]


def insertion_line(source: SourceModule) -> int:
    """Return the line after which added imports, blocks and helpers go: behind the last import before the first
    definition.
    """
    last = 0
    for index, node in enumerate(source.tree.body):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            break
        docstring = index == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if docstring or any(isinstance(inner, (ast.Import, ast.ImportFrom)) for inner in ast.walk(node)):
            last = node.end_lineno or node.lineno
    return last


def added_imports(config: PatchConfig) -> str:
    """Return the imports and blocks that the config adds, as text; empty when it adds none."""
    parts = []
    if config.additional_imports:
        parts += ["", "# Additional imports for patches", *map(import_line, config.additional_imports)]
    blocks = [textwrap.dedent(block).strip("\n").rstrip() for block in config.post_import_blocks]
    if any(blocks):
        parts += ["", "# Additional import blocks for patches", *(f"{block}\n" for block in blocks if block)]
    return "\n".join(parts) + "\n" if parts else ""


def import_line(spec: ImportSpec) -> str:
    """Return the import statement of an added import, on one line."""
    if not spec.is_from_import:
        return f"import {spec.module} as {spec.alias}" if spec.alias else f"import {spec.module}"
    if spec.alias and spec.names and len(spec.names) == 1:
        return f"from {spec.module} import {spec.names[0]} as {spec.alias}"
    return f"from {spec.module} import {', '.join(spec.names) if spec.names else '*'}"


def absolute(node: ast.ImportFrom, module: str, is_package: bool = False) -> str:
    """Return the absolute module that a from-import inside `module` means."""
    if not node.level:
        return node.module or ""
    parts = module.split(".")
    base = parts[: len(parts) - node.level + (1 if is_package else 0)]
    return ".".join([*base, node.module] if node.module else base)


def bound_by(alias: ast.alias, node: _Import) -> str:
    """Return the name that one alias of an import statement binds."""
    return alias.asname or (alias.name if isinstance(node, ast.ImportFrom) else alias.name.partition(".")[0])


def _absolute_edit(node: ast.ImportFrom, source: SourceModule) -> Edit:
    start = source.start_of(node)
    keyword = source.text.index("import", source.text.index("." * 1, start) + 1)
    while not source.text[keyword - 1].isspace() or not _ends_word(source.text, keyword + len("import")):
        keyword = source.text.index("import", keyword + 1)
    module = absolute(node, source.name, source.path.name == "__init__.py")
    return Edit(start, keyword, f"from {module} ")


def _ends_word(text: str, at: int) -> bool:
    return at >= len(text) or not (text[at].isalnum() or text[at] == "_")


def _is_dropped(alias: ast.alias, dropped: set[str]) -> bool:
    return not dropped.isdisjoint({alias.name, alias.name.rpartition(".")[2], alias.asname})


def _only_binds(node: ast.stmt, dropped: set[str]) -> bool:
    """Return whether a guard does nothing but bind dropped names, in every branch."""
    if not isinstance(node, (ast.If, ast.Try)):
        return False
    leaves = _leaves(node)
    return bool(leaves) and all(_binds_only(leaf, dropped) for leaf in leaves if not isinstance(leaf, ast.Pass))


def _leaves(node: ast.stmt) -> list[ast.stmt]:
    inside = list(blocks(node))
    return [leaf for block in inside for inner in block for leaf in _leaves(inner)] if inside else [node]


def _binds_only(leaf: ast.stmt, dropped: set[str]) -> bool:
    match leaf:
        case ast.Import() | ast.ImportFrom():
            return all(_is_dropped(alias, dropped) for alias in leaf.names)
        case ast.Assign():
            names = [n for target in leaf.targets for n in ast.walk(target) if isinstance(n, (ast.Name, ast.Attribute))]
            return all(isinstance(name, ast.Name) and name.id in dropped for name in names)
    return False


def _drop_inside(body: list[ast.stmt], source: SourceModule, dropped: set[str], *, alone: bool) -> list[Edit]:
    edits = []
    for node in body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            kept = [alias for alias in node.names if not _is_dropped(alias, dropped)]
            if len(kept) < len(node.names):
                edits.append(Edit(source.start_of(node), source.end_of(node), _without(node, kept, source, alone)))
        elif isinstance(node, (ast.If, ast.Try, ast.With)):
            for block in blocks(node):
                edits += _drop_inside(block, source, dropped, alone=True)
    return edits


def _without(node: _Import, kept: list[ast.alias], source: SourceModule, alone: bool) -> str:
    if not kept:
        return "pass" if alone else ""
    names = ", ".join(ast.unparse(alias) for alias in kept)
    if isinstance(node, ast.Import):
        return f"import {names}"
    return f"from {absolute(node, source.name, source.path.name == '__init__.py')} import {names}"
