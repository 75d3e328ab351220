"""omni-kit patchgen: generate modeling files from patch configs, and compare them with upstream."""

from collections import Counter
from collections.abc import Callable, Sequence
from difflib import unified_diff
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer
from rich.console import Console
from rich.markup import escape

from omni_kit.cli.app import app
from omni_kit.cli.commands import Commands
from omni_kit.cli.gating import finish, gate_of
from omni_kit.cli.options import (
    BaselineOption,
    DryRunOption,
    FindingsFormat,
    FindingsFormatOption,
    FormatOption,
    FullOption,
    IgnoreOption,
    LibraryOption,
    SelectOption,
    ToOption,
    TransformersOption,
    WriteBaselineOption,
)
from omni_kit.errors import BadInput
from omni_kit.output import Format, Output
from omni_kit.plurals import counted

if TYPE_CHECKING:
    from omni_kit.convert import RenamedCheckpoint
    from omni_kit.diagnostics.gate import Gate
    from omni_kit.patchgen.diagnostics import Diagnostic
    from omni_kit.patchgen.drift import DriftReport, TargetDrift
    from omni_kit.patchgen.result import ConfigResult

_COLOURS = {"error": "red", "stale": "red", "orphan": "red", "warning": "yellow", "info": "dim"}

patchgen_app = Commands(
    name="patchgen",
    help="Generate modeling files by patching upstream's.",
    no_args_is_help=True,
)

ConfigsArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="CONFIG", help="Patch configs: files, dotted modules, or directories of configs."),
]
OutOption = Annotated[
    Path | None,
    typer.Option("-o", "--output-dir", help="Directory of generated files, instead of generated/ next to each config."),
]
AllOption = Annotated[bool, typer.Option("--all", help="Take every *_patch_gen_config.py below the root.")]
RootOption = Annotated[
    Path | None,
    typer.Option(
        "--root", help="Directory to search; by default [tool.patchgen] search_root or the current directory."
    ),
]


@patchgen_app.command("run")
def run_command(
    configs: ConfigsArgument = None,
    output_dir: OutOption = None,
    diff: Annotated[
        bool, typer.Option("--diff", help="Also write a unified diff from upstream next to each file.")
    ] = False,
    all_configs: AllOption = False,
    root: RootOption = None,
    fix: Annotated[
        bool, typer.Option("--fix", help="Add definitions that its excludes leave unused to exclude_from_output.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Also replace files that patchgen did not write.")] = False,
    dry_run: DryRunOption = False,
    transformers: TransformersOption = None,
    select: SelectOption = None,
    ignore: IgnoreOption = None,
    baseline: BaselineOption = None,
    write_baseline: WriteBaselineOption = None,
    output_format: FindingsFormatOption = FindingsFormat.human,
    full: FullOption = False,
) -> None:
    """Generate the modeling file of each config.

    Files are written atomically, and only for configs without errors; on failure the old file is kept. patchgen does
    not replace files that it did not write, nor follow links. It updates existing diffs. Exit 1 on a config error.
    """
    from omni_kit.patchgen.codes import IDS
    from omni_kit.patchgen.excludes import add_excludes
    from omni_kit.patchgen.run import run_configs

    gate = gate_of(list(IDS.values()), select, ignore, baseline)
    chosen = chosen_configs(configs, all_configs, root)
    notes = []
    if fix and not dry_run:
        for result in run_configs(chosen, output_dir, transformers=transformers, write=False):
            notes += add_excludes(result)
    results = run_configs(
        chosen, output_dir, transformers=transformers, write=not dry_run, diff=diff, force=force, gate=gate
    )
    fine = ("stale",) if dry_run else ()
    notes = ["nothing was written: --dry-run"] if dry_run else notes
    before = _made_from_another(chosen, transformers)
    _finish(gate, results, notes, output_format, full, fine, write_baseline, before)


@patchgen_app.command("check")
def check_command(
    configs: ConfigsArgument = None,
    output_dir: OutOption = None,
    all_configs: AllOption = False,
    root: RootOption = None,
    fix: Annotated[bool, typer.Option("--fix", help="Rewrite stale files and their diffs.")] = False,
    transformers: TransformersOption = None,
    select: SelectOption = None,
    ignore: IgnoreOption = None,
    baseline: BaselineOption = None,
    write_baseline: WriteBaselineOption = None,
    output_format: FindingsFormatOption = FindingsFormat.human,
    full: FullOption = False,
) -> None:
    """Check that every generated file matches its config; exit 1 if one does not.

    A file is stale when its code or its diff differs from what the config generates; comments and formatting do not
    count. Stale or missing files, configs that fail to load, and generated files without a config are errors.
    Without CONFIG, check all configs below the root; exit 2 if there is none.
    """
    from omni_kit.patchgen.check import check_configs
    from omni_kit.patchgen.codes import IDS

    gate = gate_of(list(IDS.values()), select, ignore, baseline)
    everything = all_configs or not configs
    place = _root(root)
    chosen = chosen_configs(configs, everything, root)
    root = place if everything else None
    results = check_configs(chosen, output_dir, transformers=transformers, root=root, fix=fix, gate=gate)
    _finish(gate, results, [], output_format, full, write_baseline=write_baseline)


@patchgen_app.command("list")
def list_command(root: RootOption = None, output_format: FormatOption = Format.human, full: FullOption = False) -> None:
    """List the patch configs below the root, with their targets.

    Exit 1 if one cannot be loaded, 2 if there is none.
    """
    from omni_kit.patchgen.check import list_configs

    place = _root(root)
    results = list_configs(place)
    if not results:
        raise BadInput(f"no patch config below {place}", "pass their directory with --root")
    from omni_kit.diagnostics.gate import Gate
    from omni_kit.patchgen.codes import IDS

    _finish(Gate(IDS), results, [], FindingsFormat(output_format.value), full)


@patchgen_app.command("drift")
def drift_command(
    configs: ConfigsArgument = None,
    before: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="OLD",
            help="Version that the patches are written for: a number or a path; by default the recorded hashes.",
        ),
    ] = None,
    after: ToOption = None,
    library: LibraryOption = "transformers",
    all_configs: AllOption = False,
    root: RootOption = None,
    output_dir: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output-dir",
            help="Write old, new, patched and merged code of each changed target here, and maps of renamed keys.",
        ),
    ] = None,
    apply: Annotated[
        str | None,
        typer.Option(
            metavar="CHECKPOINT",
            help="Rename the keys of this checkpoint (safetensors or DCP) and write it to the --into directory. "
            "Requires --from.",
        ),
    ] = None,
    into: Annotated[
        Path | None, typer.Option(metavar="DIR", help="With --apply: output directory; must be empty or not exist.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="With --apply: count renamed keys; write nothing.")
    ] = False,
    output_format: FormatOption = Format.human,
    full: FullOption = False,
) -> None:
    """Report how a newer upstream affects each patch, worst first.

    Ranks: vanished targets, changed signatures, changed lines that the patch copies, other bodies, decorators,
    cosmetic changes. --full shows each change, with patch> before the lines that the patch still has. With --from, also
    list parameters that were renamed, removed, added or reshaped, which affects checkpoints saved in training.
    Exit 1 if anything changed.

    --apply rewrites a checkpoint, model and optimizer, under the newer names; tensors stay bit-identical.
    Exit 1 if removed, added or reshaped parameters still keep it from loading.
    """
    from omni_kit.patchgen.drift import drift_report, write_targets
    from omni_kit.patchgen.keys import write_rename_maps
    from omni_kit.patchgen.report import drift_json
    from omni_kit.patchgen.upgrade.versions import version_at
    from omni_kit.pysource.library import find_library

    output = Output("patchgen", output_format, full)
    _check_apply(apply, into, before, dry_run)
    if not after:
        find_library(library)
    old, new = (version_at(library, one) if one else None for one in (before, after))
    report = drift_report(chosen_configs(configs, all_configs or not configs, root), old, new, library)
    notes = list(report.notes)
    if output_dir is not None:
        written = [*write_targets(report, output_dir), *write_rename_maps(report.keys, output_dir)]
        notes.append(f"{counted(written, 'file')} written below {output_dir}")
    answer, ok, human = drift_json(report, full), report.ok, partial(_render_drift, report, full)
    if apply is not None and into is not None:
        from omni_kit.convert import apply_renames

        maps = {one.model_type: one.renamed for one in report.keys if one.renamed}
        done = apply_renames(apply, maps, into, dry_run=dry_run, progress=output.progress)
        answer["applied"] = done.as_json()
        ok = not report.failed and all(one.settled for one in report.keys if one.model_type == done.model_type)
        notes += done.notes
        human = partial(_render_applied, human, done)
    output.finish(answer, ok=ok, human=human, notes=notes)


def _check_apply(apply: str | None, into: Path | None, before: str | None, dry_run: bool) -> None:
    """Raise BadInput where options of --apply stand alone."""
    if apply is None and (into is not None or dry_run):
        raise BadInput("--into and --dry-run require --apply", "name the checkpoint with --apply")
    if apply is not None and into is None:
        raise BadInput("--apply writes a new checkpoint", "pass --into DIR")
    if apply is not None and before is None:
        raise BadInput("--apply needs both versions: which names changed", "pass the older one with --from")


def _root(root: Path | None) -> Path:
    from omni_kit.patchgen.project import find_project

    if root is not None:
        return root
    project = find_project(Path.cwd())
    return project.search_root if project else Path.cwd()


def _made_from_another(configs: Sequence[str | Path], transformers: Path | None) -> list[str]:
    """Return one line for each directory that was made from another transformers than the one that is read."""
    from omni_kit.pysource.library import find_library
    from omni_kit.targets.provenance import other_version

    library = find_library("transformers", transformers)
    found = (other_version(path.parent, library) for path in map(Path, configs) if path.is_file())
    return list(dict.fromkeys(filter(None, found)))


def chosen_configs(configs: list[str] | None, all_configs: bool, root: Path | None) -> list[str | Path]:
    """Return the configs that a command is about.

    Raises:
        BadInput: both kinds of choice are made or none, or there is no config.
    """
    from omni_kit.patchgen.project import find_configs

    if configs and all_configs:
        raise BadInput("CONFIG and --all exclude each other", "name configs, or pass --all")
    if configs:
        return [found for config in configs for found in _named(config)]
    if not all_configs:
        raise BadInput("no config was named", "name configs (files or dotted modules), or pass --all")
    found = find_configs(_root(root))
    if not found:
        raise BadInput(f"no patch config below {_root(root)}", "pass their directory with --root")
    return list(found)


def _named(config: str) -> list[str | Path]:
    """Return the config of that name, or every one below a directory."""
    from omni_kit.patchgen.project import find_configs

    if not Path(config).is_dir():
        return [config]
    found = find_configs(Path(config))
    if not found:
        raise BadInput(f"no patch config below {config}", "their names end with _patch_gen_config.py")
    return list(found)


def _finish(
    gate: "Gate",
    results: list["ConfigResult"],
    notes: list[str],
    fmt: FindingsFormat,
    full: bool,
    fine: Sequence[str] = (),
    write_baseline: Path | None = None,
    before: Sequence[str] = (),
) -> NoReturn:
    """End the command; a status in `fine` is not a fault, and the notes in `before` come first for a person."""
    from omni_kit.patchgen.report import as_json

    if fmt is FindingsFormat.human:
        Output("patchgen", Format.human).note(before)
    else:
        notes = [*before, *notes]
    gate.findings = [result.finding(one) for result in results for one in result.diagnostics]
    finish(
        "patchgen",
        {"configs": [as_json(result) for result in results]},
        gate=gate,
        ok=all(result.ok or result.status in fine for result in results),
        human=partial(_render, results, fine),
        fmt=fmt,
        full=full,
        notes=notes + [note for result in results for note in result.notes],
        write_baseline=write_baseline,
    )


def _render(results: Sequence["ConfigResult"], fine: Sequence[str], console: Console) -> None:
    """One line a config, then what there is to say about it; information only for a config that was asked for alone."""
    for result in results:
        console.print(_result_line(result, fine), soft_wrap=True)
        for found in result.diagnostics:
            if found.severity != "info" or len(results) == 1:
                console.print(f"  {_diagnostic_line(found)}", soft_wrap=True)
    good = sum(result.ok or result.status in fine for result in results)
    console.print(f"{len(results)} checked: {good} passed, {len(results) - good} failed")


def _result_line(result: "ConfigResult", fine: Sequence[str]) -> str:
    colour = _COLOURS.get(result.status, "green")
    where = _short(result.output) if result.output else ""
    counts = ", ".join(f"{n} {status}" for status, n in Counter(a.status for a in result.patches).items())
    name = result.config or "(no config)"
    status = "to write" if result.status in fine else result.status
    return f"[{colour}]{status:<9}[/{colour}] {escape(name)}  {escape(where)}  [dim]{counts}[/dim]"


def _diagnostic_line(found: "Diagnostic") -> str:
    colour = _COLOURS[found.severity.value]
    at = f"{found.path}:{found.line} " if found.line else ""
    message = found.message.removeprefix(f"{found.path} ") if at else found.message
    return f"[{colour}]{found.severity}[/{colour}] {found.code}: {escape(f'{at}{message} [{found.id}]')}"


def _short(path: Path) -> str:
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def _render_drift(report: "DriftReport", full: bool, console: Console) -> None:
    """Changed targets by rank; with `full` also what upstream changed in each."""
    from omni_kit.patchgen.drift import RANKS

    for rank in RANKS[:-1]:
        group = [t for t in report.targets if t.rank == rank]
        if not group:
            continue
        console.print(f"[bold]{rank}[/bold] ({len(group)})")
        for target in group:
            console.print(f"  {escape(_drift_line(target))}", soft_wrap=True)
            if full and target.now:
                _render_change(target, console)
    for one in report.keys:
        if not one.same:
            console.print(f"[bold]keys[/bold] {one.model_type}: {escape(one.summary)}", soft_wrap=True)
    for config, why in report.failed:
        console.print(f"[red]error[/red] {escape(config)}: {escape(why)}", soft_wrap=True)
    counts = ", ".join(f"{n} {rank}" for rank, n in report.counts().items())
    looked_at = f"{counted(report.configs, 'config')}, {counted(report.targets, 'target')}"
    proposed = sum(t.proposed is not None for t in report.targets)
    console.print(f"{looked_at}: {counts}; {counted(proposed, 'merge')} proposed")


def _render_applied(before: Callable[[Console], None], done: "RenamedCheckpoint", console: Console) -> None:
    """Print the drift, then the changes to the checkpoint."""
    before(console)
    verb, keys = "wrote" if done.written else "would write", done.keys
    moved = f"{keys.renamed} of {keys.read} keys renamed as {done.model_type}'s, {keys.copied} copied"
    console.print(f"{verb} {escape(done.into)} ({done.form}): {moved}", soft_wrap=True)
    for name in done.missing:
        console.print(f"  not in it: {escape(name)}", soft_wrap=True)


def _drift_line(target: "TargetDrift") -> str:
    copied = f"; the patch copies {counted(target.copied, 'changed line')}" if target.copied else ""
    merged = "; clean merge" if target.proposed is not None else ""
    name = target.config_name.removesuffix("_patch_gen_config")
    return f"{target.target} [{name}] {target.detail}{copied}{merged}"


def _render_change(target: "TargetDrift", console: Console) -> None:
    lines = unified_diff(
        target.then.splitlines(), target.now.splitlines(), "upstream then", "upstream now", lineterm="", n=1
    )
    kept = {line.strip() for line in target.patch.splitlines()}
    for line in lines:
        mark = "patch>" if line.startswith("-") and line[1:].strip() in kept and line[1:].strip() else "      "
        console.print(f"    {mark} {escape(line)}", soft_wrap=True)


app.add_typer(patchgen_app, name="patchgen")
