"""The gate: what is committed equals what the configs generate, and nothing lies about that no config made."""

import ast
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from omni_kit.diagnostics.gate import Gate
from omni_kit.errors import BadInput
from omni_kit.files import files_matching, write_atomic
from omni_kit.patchgen.checks.imports import absent_imports
from omni_kit.patchgen.codes import IDS
from omni_kit.patchgen.diagnostics import error, has_errors
from omni_kit.patchgen.loader import UNREADABLE, CannotLoad, load_config
from omni_kit.patchgen.locate import Libraries, package_of
from omni_kit.patchgen.project import find_configs, find_project
from omni_kit.patchgen.result import ConfigResult, Listed, Orphan, Product
from omni_kit.patchgen.run import may_be_written, prepare, stale_files
from omni_kit.patchgen.source import read_source
from omni_kit.patchgen.staleness import differences
from omni_kit.patchgen.write import is_ours
from omni_kit.pysource.source import parse_file

_COMPARED = "PGN7"


def check_configs(
    configs: Sequence[str | Path],
    out_dir: Path | None = None,
    *,
    transformers: Path | None = None,
    root: Path | None = None,
    fix: bool = False,
    gate: Gate | None = None,
) -> list[ConfigResult]:
    """Regenerates each config in memory and compares; orphans next to the outputs (and below `root`) are results too.

    Configs are read, and never run: one that cannot be read has an error.

    Args:
        configs: files or dotted modules.
        out_dir: where the generated files lie; `generated/` next to each config without it.
        transformers: an unpacked transformers to read instead of the installed one.
        root: also look for orphans in every `generated/` below this directory.
        fix: write what is stale, and the diff next to it where there is one.
        gate: which diagnostics are reported; without it, all that no comment in a config ignores.

    Raises:
        BadInput: `configs` is empty, or one of them does not exist.
    """
    if not configs:
        raise BadInput("no patch configs to check", "name configs, or pass --all with the --root that contains them")
    gate = gate or Gate(IDS)
    results = prepare(configs, out_dir, transformers, gate, run=False)
    for result in results:
        if isinstance(result.stage, Product):
            _compare(result, result.stage, out_dir, fix)
    _same_outputs(results)
    places = {result.output.parent for result in results if result.output is not None}
    if root is not None:
        places |= {place for place in root.rglob("generated") if place.is_dir()}
    results += [orphan for place in sorted(places) for orphan in _orphans(place, results)]
    return [result for result in results if _passes(result, gate)]


def _passes(result: ConfigResult, gate: Gate) -> bool:
    """Leave out what the comparison found and is not reported; False for an orphan of which nothing is left."""
    compared = [one for one in result.diagnostics if one.id.startswith(_COMPARED)]
    gone = [one for one in compared if not gate.passes(result.finding(one))]
    result.diagnostics = [one for one in result.diagnostics if one not in gone]
    if gone and not has_errors(result.diagnostics):
        result.status = "ok"
    return not (gone and result.path is None)


def check_config(config: str | Path, out_dir: Path | None = None, *, transformers: Path | None = None) -> ConfigResult:
    """Return one config of `check_configs`, without looking for orphans."""
    return check_configs([config], out_dir, transformers=transformers)[0]


def list_configs(root: Path) -> list[ConfigResult]:
    """Return every config below `root`, loaded but not generated: status "ok", or "error" with the reasons."""
    project = find_project(root)
    libraries = Libraries(roots=(project.import_root,) if project else ())
    results = []
    for path in find_configs(root):
        result = ConfigResult(package_of(path)[1], path)
        try:
            loaded = load_config(path, libraries)
        except CannotLoad as why:
            result.diagnostics.append(error(why.code, why.message, why.origin))
        else:
            result.stage = Listed(loaded, path.parent / "generated" / loaded.config.target_file)
            result.notes = loaded.notes
            own = Libraries(roots=(package_of(path)[0], *libraries.roots))
            if own.file_of(loaded.config.source_module) is not None:
                source = read_source(loaded.config.source_module, own)
                result.diagnostics += absent_imports(loaded, own, source)
            result.status = "error" if has_errors(result.diagnostics) else "ok"
        results.append(result)
    return results


def ungenerated(directory: Path) -> list[Path]:
    """Return files that configs below a directory generate, that modules there import, and that do not exist.

    Configs that cannot be read are left to `check_configs`.
    """
    absent = {}
    for path in find_configs(directory):
        with suppress(CannotLoad):
            file = load_config(path, Libraries(), run=False).config.target_file
            absent[file.removesuffix(".py")] = path.parent / "generated" / file
    absent = {name: file for name, file in absent.items() if not file.is_file()}
    imported = {name for file in files_matching(directory, "**/*.py") if absent for name in _imported(file)}
    return [file for name, file in absent.items() if name in imported]


def _imported(file: Path) -> Iterator[str]:
    """Yield the last parts of modules and the names that a file imports, also inside functions."""
    with suppress(SyntaxError, OSError, UnicodeDecodeError):
        for node in ast.walk(parse_file(file)[1]):
            if isinstance(node, ast.Import | ast.ImportFrom):
                yield from (alias.name.rpartition(".")[2] for alias in node.names)
            if isinstance(node, ast.ImportFrom) and node.module:
                yield node.module.rpartition(".")[2]


def _compare(result: ConfigResult, product: Product, out_dir: Path | None, fix: bool) -> None:
    changed = stale_files(product)
    result.status = "ok"
    if fix and changed:
        if may_be_written(result, changed, out_dir):
            for path, text in changed:
                write_atomic(path, text)
            result.status = "written"
    elif changed:
        _judge(result, product)


def _judge(result: ConfigResult, product: Product) -> None:
    """Report files that are not, byte for byte, what the config generates."""
    assert result.path is not None
    if not product.output.is_file():
        result.status = "stale"
        result.diagnostics.append(error("not-generated", f"{product.output.name} does not exist; run the config"))
        return
    found = differences(product, result.path.name)
    if not found:
        result.notes.append(
            f"comments or layout of {product.output.name} changed: run `omni-kit patchgen run` to update them"
        )
    for one in found:
        result.status = "stale"
        message = f"{one.path.name}:{one.line}: {one.message} from {product.generated.upstream}"
        result.diagnostics.append(error("stale", f"{message}; run the config, and do not edit the file"))


def _same_outputs(results: list[ConfigResult]) -> None:
    first: dict[Path, ConfigResult] = {}
    for result in results:
        if result.output is None:
            continue
        other = first.setdefault(result.output.resolve(), result)
        if other is not result and other.path != result.path:
            message = f"{result.config} and {other.config} both write {result.output.name}"
            result.diagnostics.append(error("same-output", message))
            result.status = "error"


def _orphans(place: Path, results: list[ConfigResult]) -> list[ConfigResult]:
    """Generated files in `place` that no config next to it makes."""
    claimed = {result.output.resolve() for result in results if result.output is not None}
    files = [*files_matching(place, "*.py"), *files_matching(place, "patched_*.diff")]
    unclaimed = [f for f in files if f.with_suffix(".py").resolve() not in claimed and is_ours(f)]
    if not unclaimed:
        return []
    siblings = _outputs_beside(place)
    if siblings is None:
        return []
    left = [f for f in unclaimed if f.with_suffix(".py").resolve() not in siblings]
    return [
        ConfigResult(
            config="",
            path=None,
            stage=Orphan(file),
            status="orphan",
            diagnostics=[error("orphan", f"no config makes {file.name}; delete it, or restore its config")],
        )
        for file in sorted(left)
    ]


def _outputs_beside(place: Path) -> set[Path] | None:
    """Return the files that configs next to a directory make; None if one of them cannot be read."""
    outputs = set()
    for path in find_configs(place.parent):
        if path.parent == place.parent:
            try:
                loaded = load_config(path, Libraries(), run=False)
            except CannotLoad as why:
                if why.code == UNREADABLE:
                    return None
                continue
            outputs.add((place / loaded.config.target_file).resolve())
    return outputs
