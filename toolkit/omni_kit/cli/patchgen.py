"""omni-kit patchgen: generated modeling files from patch configs, and what has become of them."""

from pathlib import Path
from typing import Annotated

import typer

from omni_kit.cli.app import app
from omni_kit.cli.options import DryRunOption, FormatOption, FullOption, TransformersOption
from omni_kit.errors import BadInput
from omni_kit.output import Format, Output

patchgen_app = typer.Typer(
    name="patchgen",
    help="Generate modeling files from upstream's by patch configs; nothing fails silently.",
    no_args_is_help=True,
)

ConfigsArgument = Annotated[
    list[str] | None, typer.Argument(metavar="[CONFIG]...", help="Patch configs: files or dotted modules.")
]
OutOption = Annotated[
    Path | None,
    typer.Option("-o", "--output-dir", help="Where generated files lie, instead of generated/ beside each config."),
]
AllOption = Annotated[bool, typer.Option("--all", help="Every *_patch_gen_config.py below the root.")]
RootOption = Annotated[
    Path | None,
    typer.Option("--root", help="The directory to search, instead of [tool.patchgen] search_root or the current one."),
]


@patchgen_app.command("run")
def run_command(
    configs: ConfigsArgument = None,
    output_dir: OutOption = None,
    diff: Annotated[
        bool, typer.Option("--diff", help="Also write a unified diff from upstream beside each file.")
    ] = False,
    all_configs: AllOption = False,
    root: RootOption = None,
    fix: Annotated[
        bool, typer.Option("--fix", help="Add to the config what its excludes leave dead (exclude_from_output).")
    ] = False,
    dry_run: DryRunOption = False,
    transformers: TransformersOption = None,
    output_format: FormatOption = Format.human,
    full: FullOption = False,
) -> None:
    """Generate the modeling file of each config.

    A file is written only when nothing is wrong with its config, in one stroke; on failure the old file stands.
    Exit 1 when a config has an error.
    """
    from omni_kit.patchgen.excludes import add_excludes
    from omni_kit.patchgen.run import run_configs

    output = Output("patchgen", output_format, full)
    chosen = _chosen(configs, all_configs, root)
    notes = []
    if fix:
        for result in run_configs(chosen, output_dir, transformers=transformers, write=False):
            notes += add_excludes(result)
    results = run_configs(chosen, output_dir, transformers=transformers, write=not dry_run, diff=diff)
    _finish(output, results, ["nothing was written: --dry-run", *notes] if dry_run else notes)


@patchgen_app.command("check")
def check_command(
    configs: ConfigsArgument = None,
    output_dir: OutOption = None,
    all_configs: AllOption = False,
    root: RootOption = None,
    fix: Annotated[bool, typer.Option("--fix", help="Write what is stale, and the diff beside it.")] = False,
    transformers: TransformersOption = None,
    output_format: FormatOption = Format.human,
    full: FullOption = False,
) -> None:
    """Check that every generated file is what its config generates.

    Stale or missing files, configs that fail to load, and generated files that no config makes are errors (exit 1).
    Without CONFIG it looks at all configs below the root; no config at all is exit 2.
    """
    from omni_kit.patchgen.check import check_configs

    output = Output("patchgen", output_format, full)
    everything = all_configs or not configs
    place = _root(root)
    chosen = _chosen(configs, everything, root)
    results = check_configs(chosen, output_dir, transformers=transformers, root=place if everything else None, fix=fix)
    _finish(output, results, [])


@patchgen_app.command("list")
def list_command(root: RootOption = None, output_format: FormatOption = Format.human, full: FullOption = False) -> None:
    """List the patch configs below the root, with their targets.

    Exit 1 when one cannot be loaded, 2 when there is none.
    """
    from omni_kit.patchgen.check import list_configs

    place = _root(root)
    results = list_configs(place)
    if not results:
        raise BadInput(f"there are no patch configs below {place}", "give the directory that holds them with --root")
    _finish(Output("patchgen", output_format, full), results, [])


@patchgen_app.command("drift")
def drift_command(
    configs: ConfigsArgument = None,
    before: Annotated[
        Path | None,
        typer.Option(
            "--from", help="The unpacked version that the patches were written against; else recorded hashes."
        ),
    ] = None,
    after: Annotated[
        Path | None, typer.Option("--to", help="The newer unpacked version; else the installed one.")
    ] = None,
    library: Annotated[str, typer.Option("--library", help="The package that both are versions of.")] = "transformers",
    all_configs: AllOption = False,
    root: RootOption = None,
    output_dir: Annotated[
        Path | None,
        typer.Option("-o", "--output-dir", help="Write then, now, patch and merge of each changed target below here."),
    ] = None,
    output_format: FormatOption = Format.human,
    full: FullOption = False,
) -> None:
    """Say what a newer upstream means for each patch, worst first.

    Vanished targets, changed signatures, bodies of which the patch copies changed lines, other bodies, decorators,
    cosmetic changes. --full shows each change, with patch> before the lines that the patch still has. Exit 1 when a
    target changed.
    """
    from omni_kit.patchgen.drift import drift_report, write_targets
    from omni_kit.patchgen.report import drift_json, print_drift

    output = Output("patchgen", output_format, full)
    report = drift_report(_chosen(configs, all_configs or not configs, root), before, after, library)
    notes = list(report.notes)
    if output_dir is not None:
        notes.append(f"{len(write_targets(report, output_dir))} files written below {output_dir}")
    output.finish(
        drift_json(report, full), ok=report.ok, human=lambda console: print_drift(console, report, full), notes=notes
    )


def _root(root: Path | None) -> Path:
    from omni_kit.patchgen.project import find_project

    if root is not None:
        return root
    project = find_project(Path.cwd())
    return project.search_root if project else Path.cwd()


def _chosen(configs: list[str] | None, all_configs: bool, root: Path | None) -> list[str | Path]:
    from omni_kit.patchgen.project import find_configs

    if configs and all_configs:
        raise BadInput("CONFIG and --all exclude each other", "name configs, or give --all")
    if configs:
        return list(configs)
    if not all_configs:
        raise BadInput("no config is named", "name configs (files or dotted modules), or give --all")
    found = find_configs(_root(root))
    if not found:
        raise BadInput(
            f"there are no patch configs below {_root(root)}", "give the directory that holds them with --root"
        )
    return list(found)


def _finish(output: Output, results: list, notes: list[str]) -> None:  # type: ignore[type-arg]
    from omni_kit.patchgen.diagnostics import Severity
    from omni_kit.patchgen.report import all_fine, as_json, print_results

    said = Severity.info if len(results) == 1 else Severity.warning
    output.finish(
        {"configs": [as_json(result) for result in results]},
        ok=all_fine(results),
        human=lambda console: print_results(console, results, said),
        notes=notes + [note for result in results for note in result.notes],
    )


app.add_typer(patchgen_app, name="patchgen")
