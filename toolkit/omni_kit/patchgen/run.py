"""Runs configs: load, generate, check, format, and write or compare."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from omni_kit.errors import BadInput
from omni_kit.files import write_atomic
from omni_kit.patchgen.apply import Applied
from omni_kit.patchgen.checks import check_generated
from omni_kit.patchgen.diagnostics import Diagnostic, error, has_errors, strictly
from omni_kit.patchgen.generate import Generated, generate
from omni_kit.patchgen.loader import find_config, load_config
from omni_kit.patchgen.locate import Libraries, package_of, unpacked_library
from omni_kit.patchgen.project import Project, find_project
from omni_kit.patchgen.source import read_source
from omni_kit.patchgen.write import compiles, diff_path, normalise, settings_of, unified_diff
from omni_kit.upstream.python.source import without_collection

Status = Literal["written", "unchanged", "ok", "stale", "orphan", "error"]


@dataclass
class ConfigResult:
    """What became of one config.

    `output` is where the generated file is or would be; `text` and `diff` are what was generated, empty after an
    error; `generated` is the unformatted result with all positions, for other rooms; `listed` are (kind, target) of a
    config that was only listed.
    """

    config: str
    source_module: str = ""
    target_file: str = ""
    output: Path | None = None
    status: Status = "error"
    patches: list[Applied] = field(default_factory=list)
    diagnostics: list[Diagnostic] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    text: str = ""
    diff: str = ""
    seconds: float = 0.0
    generated: Generated | None = field(default=None, repr=False)
    path: Path | None = None
    listed: list[tuple[str, str]] = field(default_factory=list)
    frameworks: set[str] = field(default_factory=set)


def run_config(
    config: str | Path,
    out_dir: Path | None = None,
    *,
    transformers: Path | None = None,
    write: bool = True,
    diff: bool = False,
) -> ConfigResult:
    """Generates the modeling file of one config.

    Args:
        config: a file or a dotted module.
        out_dir: where the file goes; `generated/` beside the config without it.
        transformers: an unpacked transformers to read instead of the installed one.
        write: False only says what would be written (status "written" or "unchanged" all the same).
        diff: also write the unified diff from upstream beside the file.

    Raises:
        BadInput: there is no such config. A config that fails to load or to generate is a result with status "error".
    """
    return run_configs([config], out_dir, transformers=transformers, write=write, diff=diff)[0]


def run_configs(
    configs: Sequence[str | Path],
    out_dir: Path | None = None,
    *,
    transformers: Path | None = None,
    write: bool = True,
    diff: bool = False,
) -> list[ConfigResult]:
    """The same for several, which are formatted together; see `run_config`."""
    results = prepare(configs, out_dir, transformers)
    for result in results:
        if result.text and result.output is not None:
            result.status = "unchanged" if _same(result, diff) else "written"
            if write and result.status == "written":
                write_atomic(result.output, result.text)
                if diff:
                    write_atomic(diff_path(result.output), result.diff)
    return results


def prepare(configs: Sequence[str | Path], out_dir: Path | None, transformers: Path | None) -> list[ConfigResult]:
    """Everything up to writing: results with text and diff, or with status "error"."""
    with without_collection():
        results = draft_configs(configs, out_dir, transformers=transformers)
        finish(results)
        return results


def draft_configs(
    configs: Sequence[str | Path], out_dir: Path | None = None, *, transformers: Path | None = None
) -> list[ConfigResult]:
    """Generated and checked, but not formatted: `text` is raw, and `diff` empty."""
    unpacked = {"transformers": unpacked_library("transformers", transformers)} if transformers else {}
    return [_generate(config, out_dir, unpacked) for config in configs]


def finish(results: Sequence[ConfigResult]) -> None:
    """Formats drafts, together where the same style holds, and makes their diffs."""
    for place, group in _by_place([r for r in results if r.text]).items():
        started = time.perf_counter()
        texts = _formatted(group, place)
        share = (time.perf_counter() - started) / len(group)
        for result, text in zip(group, texts, strict=True):
            _finish(result, text, share)


def _generate(config: str | Path, out_dir: Path | None, unpacked: dict[str, Path]) -> ConfigResult:
    started = time.perf_counter()
    project = _project_of(config)
    libraries = Libraries(unpacked, (project.import_root,) if project else ())
    path = find_config(config, libraries)
    libraries = Libraries(unpacked, (*libraries.roots, package_of(path)[0]))
    result = ConfigResult(config=_name(path), path=path)
    try:
        loaded = load_config(path, libraries)
        result.source_module, result.target_file = loaded.config.source_module, loaded.config.target_file
        result.notes, result.frameworks = loaded.notes, loaded.frameworks
        result.output = (out_dir or path.parent / "generated") / loaded.config.target_file
        if loaded.config.optional and libraries.file_of(loaded.config.source_module) is None:
            result.status = "ok"
            result.notes.append(f"{result.config} is skipped: it is optional, {result.source_module} is not installed")
            return result
        source = read_source(loaded.config.source_module, libraries)
        made = generate(loaded, source, libraries)
    except BadInput as why:
        code = "cannot-load" if not result.source_module else "no-source-module"
        result.diagnostics.append(error(code, why.message))
        result.seconds = time.perf_counter() - started
        return result
    result.generated, result.patches = made, made.applied
    found = made.diagnostics + ([] if has_errors(made.diagnostics) else check_generated(made, libraries))
    strict = loaded.config.strict or bool(project and project.strict)
    result.diagnostics = strictly(found) if strict else found
    if not has_errors(result.diagnostics):
        result.text, result.status = made.text, "ok"
    result.seconds = time.perf_counter() - started
    return result


def _formatted(group: list[ConfigResult], place: Path) -> list[str]:
    try:
        return normalise([r.text for r in group], place, {name for result in group for name in result.frameworks})
    except BadInput as why:
        if len(group) > 1:
            return [text for result in group for text in _formatted([result], place)]
        group[0].diagnostics.append(error("format-failed", why.message))
        return [""]


def _finish(result: ConfigResult, text: str, seconds: float) -> None:
    started = time.perf_counter()
    wrong = compiles(text, result.target_file)
    if not text or wrong is not None:
        if wrong is not None:
            result.diagnostics.append(error("invalid-python", f"the result does not compile: {wrong}"))
        result.text, result.status = "", "error"
        return
    assert result.generated is not None
    result.text = text
    result.diff = unified_diff(result.generated.source.text, text, result.source_module, result.target_file)
    result.seconds += seconds + time.perf_counter() - started


def _same(result: ConfigResult, diff: bool) -> bool:
    assert result.output is not None
    wanted = [(result.output, result.text)] + ([(diff_path(result.output), result.diff)] if diff else [])
    return all(path.is_file() and path.read_text(encoding="utf-8") == text for path, text in wanted)


def _by_place(results: list[ConfigResult]) -> dict[Path, list[ConfigResult]]:
    places: dict[Path | None, Path] = {}
    groups: dict[Path, list[ConfigResult]] = {}
    for result in results:
        assert result.output is not None
        settings = settings_of(result.output.parent.resolve())
        place = places.setdefault(settings, result.output.parent.resolve())
        groups.setdefault(place, []).append(result)
    return groups


def _project_of(config: str | Path) -> Project | None:
    path = Path(config)
    return find_project(path.parent if path.is_file() else Path.cwd())


def _name(path: Path) -> str:
    return package_of(path)[1]
