"""Runs configs: load, generate, check, format, and write or compare."""

import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from omni_kit.diagnostics.gate import Gate
from omni_kit.errors import BadInput
from omni_kit.files import write_atomic
from omni_kit.patchgen.checks import check_generated
from omni_kit.patchgen.codes import IDS
from omni_kit.patchgen.diagnostics import error, has_errors, strictly
from omni_kit.patchgen.generate import Generated, generate
from omni_kit.patchgen.loader import CannotLoad, LoadedConfig, find_config, load_config
from omni_kit.patchgen.locate import Libraries, package_of, unpacked_library
from omni_kit.patchgen.project import Project, find_project
from omni_kit.patchgen.result import ConfigResult, Draft, Loaded, Product, Rejected
from omni_kit.patchgen.source import read_source
from omni_kit.patchgen.write import compiles, diff_path, holds, in_the_way, is_ours, normalise, settings_of
from omni_kit.pysource.source import without_collection

_Pending = tuple[ConfigResult, Draft]


def run_config(
    config: str | Path,
    out_dir: Path | None = None,
    *,
    transformers: Path | None = None,
    write: bool = True,
    diff: bool = False,
    force: bool = False,
    gate: Gate | None = None,
) -> ConfigResult:
    """Generate the modeling file of one config.

    Args:
        config: a file or a dotted module.
        out_dir: where the file goes; `generated/` next to the config without it.
        transformers: an unpacked transformers to read instead of the installed one.
        write: False only says what would be written: status "stale" instead of "written".
        diff: also write the unified diff from upstream next to the file; one that lies there is kept up anyway.
        force: replace files that no patch generator wrote, too.
        gate: which diagnostics are reported; without it, all that no comment in the config ignores.

    Raises:
        BadInput: there is no such config. A config that fails to load or to generate is a result with status "error".
    """
    return run_configs([config], out_dir, transformers=transformers, write=write, diff=diff, force=force, gate=gate)[0]


def run_configs(
    configs: Sequence[str | Path],
    out_dir: Path | None = None,
    *,
    transformers: Path | None = None,
    write: bool = True,
    diff: bool = False,
    force: bool = False,
    gate: Gate | None = None,
) -> list[ConfigResult]:
    """Run several configs, formatting their files together; see `run_config`."""
    results = prepare(configs, out_dir, transformers, gate)
    for result in results:
        if isinstance(product := result.stage, Product):
            files = stale_files(product, diff)
            result.status = ("written" if write else "stale") if files else "unchanged"
            if may_be_written(result, files, out_dir, force) and write:
                for path, text in files:
                    write_atomic(path, text)
    return results


def stale_files(product: Product, diff: bool = False) -> list[tuple[Path, str]]:
    """Return the files of a product with outdated content, among them its diff if one exists."""
    beside = diff_path(product.output)
    wanted = product.files(diff or (beside.is_file() and is_ours(beside)))
    return [(path, text) for path, text in wanted if not holds(path, text)]


def may_be_written(
    result: ConfigResult, files: Sequence[tuple[Path, str]], out_dir: Path | None, force: bool = False
) -> bool:
    """Return whether nothing stands in the way of any of these files; what does is an error of the result."""
    assert result.path is not None
    root = out_dir or result.path.parent
    for path, _ in files:
        if why := in_the_way(path, root, force):
            result.diagnostics.append(error("foreign-file", why))
            result.status = "error"
            return False
    return True


def prepare(
    configs: Sequence[str | Path],
    out_dir: Path | None,
    transformers: Path | None,
    gate: Gate | None = None,
    *,
    run: bool = True,
) -> list[ConfigResult]:
    """Return everything up to writing: results with text and diff, or with status "error"; for `run` see
    `draft_configs`.
    """
    with without_collection():
        results = draft_configs(configs, out_dir, transformers=transformers, run=run, gate=gate)
        finish(results)
        return results


def draft_configs(
    configs: Sequence[str | Path],
    out_dir: Path | None = None,
    *,
    transformers: Path | None = None,
    unpacked: Mapping[str, Path] | None = None,
    run: bool = True,
    gate: Gate | None = None,
) -> list[ConfigResult]:
    """Generated and checked, but not formatted: `text` is raw, and `diff` empty.

    Without `run`, a config that cannot be read without running it has an error that says so ("unreadable").
    `unpacked` are the directories of other libraries to read instead of the installed ones.
    """
    unpacked = dict(unpacked or {})
    if transformers:
        unpacked["transformers"] = unpacked_library("transformers", transformers)
    gate = gate or Gate(IDS)
    return [_draft(config, out_dir, unpacked, run, gate) for config in configs]


def finish(results: Sequence[ConfigResult]) -> None:
    """Formats drafts, together where the same style holds, and makes their diffs; other results stay as they are."""
    drafts = [(result, result.stage) for result in results if isinstance(result.stage, Draft)]
    for place, group in _by_place(drafts).items():
        started = time.perf_counter()
        texts = _formatted(group, place)
        share = (time.perf_counter() - started) / len(group)
        for (result, draft), text in zip(group, texts, strict=True):
            if text is not None:
                _finish(result, draft, text, share)


def _draft(config: str | Path, out_dir: Path | None, unpacked: dict[str, Path], run: bool, gate: Gate) -> ConfigResult:
    started = time.perf_counter()
    project = _project_of(config)
    libraries = Libraries(unpacked, (project.import_root,) if project else ())
    path = find_config(config, libraries)
    libraries = Libraries(unpacked, (*libraries.roots, package_of(path)[0]))
    result = ConfigResult(package_of(path)[1], path)
    try:
        loaded = load_config(path, libraries, run=run)
        output = (out_dir or path.parent / "generated") / loaded.config.target_file
        result.stage, result.notes = Loaded(loaded, output), loaded.notes
        if _is_skipped(loaded, libraries):
            result.status = "ok"
            result.notes.append(f"{result.config} is skipped: it is optional, {result.source_module} is not installed")
            return result
        made = generate(loaded, read_source(loaded.config.source_module, libraries), libraries)
    except CannotLoad as why:
        result.diagnostics.append(error(why.code, why.message, why.origin))
    except BadInput as why:
        result.diagnostics.append(error("no-source-module", why.message))
    else:
        strict = loaded.config.strict or bool(project and project.strict)
        _judge(result, output, made, libraries, strict, gate)
    result.seconds = time.perf_counter() - started
    return result


def _is_skipped(loaded: LoadedConfig, libraries: Libraries) -> bool:
    return loaded.config.optional and libraries.file_of(loaded.config.source_module) is None


def _judge(result: ConfigResult, output: Path, made: Generated, libraries: Libraries, strict: bool, gate: Gate) -> None:
    """Check what was generated: it becomes a draft, or is rejected."""
    found = made.diagnostics + ([] if has_errors(made.diagnostics) else check_generated(made, libraries))
    found = strictly(found) if strict else found
    result.diagnostics = [one for one in found if gate.passes(result.finding(one))]
    if has_errors(result.diagnostics):
        result.stage = Rejected(made.loaded, output, made)
    else:
        result.stage, result.status = Draft(made.loaded, output, made), "ok"


def _formatted(group: Sequence[_Pending], place: Path) -> list[str | None]:
    """Return the formatted texts; None for a draft that is rejected, because ruff refuses it."""
    try:
        frameworks = {name for _, draft in group for name in draft.loaded.frameworks}
        return [*normalise([draft.text for _, draft in group], place, frameworks)]
    except BadInput as why:
        if len(group) > 1:
            return [text for pending in group for text in _formatted([pending], place)]
        ((result, draft),) = group
        result.reject(draft.rejected(), error("format-failed", why.message))
        return [None]


def _finish(result: ConfigResult, draft: Draft, text: str, seconds: float) -> None:
    started = time.perf_counter()
    wrong = compiles(text, result.target_file)
    if wrong is not None:
        result.reject(draft.rejected(), error("invalid-python", f"the result does not compile: {wrong}"))
        return
    result.stage = draft.product(text)
    result.seconds += seconds + time.perf_counter() - started


def _by_place(drafts: Iterable[_Pending]) -> dict[Path, list[_Pending]]:
    """Return the drafts by a directory whose style holds for them."""
    places: dict[Path | None, Path] = {}
    groups: dict[Path, list[_Pending]] = {}
    for result, draft in drafts:
        directory = draft.output.parent.resolve()
        place = places.setdefault(settings_of(directory), directory)
        groups.setdefault(place, []).append((result, draft))
    return groups


def _project_of(config: str | Path) -> Project | None:
    path = Path(config)
    return find_project(path.parent if path.is_file() else Path.cwd())
