"""`omni-kit patchgen upgrade`: rewrite patch configs for another version of upstream."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

from omni_kit.cli.options import DiffOption, DryRunOption, FormatOption, FullOption, LibraryOption, ToOption
from omni_kit.cli.patchgen import AllOption, ConfigsArgument, RootOption, chosen_configs, patchgen_app
from omni_kit.output import Format, Output
from omni_kit.plurals import counted

if TYPE_CHECKING:
    from omni_kit.patchgen.upgrade.outcome import UpgradeResult

_COLOURS = {"conflict": "yellow", "error": "red", "dropped": "cyan", "merged": "green", "carried": "green"}


@patchgen_app.command("upgrade")
def upgrade_command(
    configs: ConfigsArgument = None,
    before: Annotated[
        str | None,
        typer.Option("--from", metavar="OLD", help="Version that the patches are written for: a number or a path."),
    ] = None,
    after: ToOption = None,
    library: LibraryOption = "transformers",
    all_configs: AllOption = False,
    root: RootOption = None,
    dry_run: DryRunOption = False,
    diff: DiffOption = False,
    fmt: FormatOption = Format.human,
    full: FullOption = False,
) -> None:
    """Merge every patch three-way with a newer upstream.

    The merge takes upstream's changes to code that the patch left alone, follows renamed, moved and inherited targets,
    and removes patches that upstream made unnecessary. If both changed the same code, or the patch no longer fits its
    callees, the patch is left unchanged, and a comment above it shows both versions. Exit 1 if a conflict is left.
    """
    from omni_kit.errors import BadInput
    from omni_kit.patchgen.upgrade.configs import upgrade_configs
    from omni_kit.patchgen.upgrade.versions import version_at

    output = Output("patchgen", fmt, full)
    if before is None:
        raise BadInput("patchgen upgrade needs the older version", "pass it with --from, as a number or a path")
    named = chosen_configs(configs, all_configs or not configs, root)
    with output.status("merging patches"):
        old = version_at(library, before)
        new = version_at(library, after) if after else None
        result = upgrade_configs(named, old, new, library, write=not (dry_run or diff))
        toys = _toys(result, (old, new), write=not (dry_run or diff)) if library == "transformers" else []
    data: dict[str, object] = {"before": result.before, "after": result.after}
    data["configs"] = [one.as_json() for one in result.configs]
    data["toys"] = toys
    if diff:
        data["diff"] = "\n".join(one.diff(Path.cwd()) for one in result.configs if one.text != one.before)
    notes = [f"{toy} {'would follow' if dry_run or diff else 'follows'} the newer defaults" for toy in toys]
    notes += ["nothing was written"] if dry_run or diff else []
    output.finish(data, ok=result.ok, human=partial(_render, result, str(data.get("diff", ""))), notes=notes)


def _toys(result: "UpgradeResult", versions: tuple[Path, Path | None], *, write: bool) -> list[str]:
    """Return the toy configs next to the configs that change with upstream's defaults."""
    from omni_kit.pysource.library import find_library
    from omni_kit.upgrade.toys import follow_toys

    old, new = (find_library("transformers", one) for one in versions)
    folders = sorted({one.path.parent for one in result.configs})
    return [toy for folder in folders for toy in follow_toys(folder, Path.cwd(), old, new, write=write)]


def _render(result: "UpgradeResult", diff: str, console: Console) -> None:
    if diff:
        console.print(escape(diff), soft_wrap=True)
    console.print(f"{result.before} -> {result.after}")
    for config in result.configs:
        colour = _COLOURS.get(config.status, "dim")
        counts = ", ".join(f"{n} {one}" for one, n in config.counts.items() if n)
        said = config.error or counts
        console.print(
            f"[{colour}]{config.status:<9}[/{colour}] {escape(config.config)}  [dim]{escape(said)}[/dim]",
            soft_wrap=True,
        )
        for patch in config.patches:
            if patch.status != "carried":
                where = f"{patch.path.name}:{patch.line} " if patch.path and patch.status == "conflict" else ""
                tint = _COLOURS[patch.status]
                line = f"{where}{patch.target}: {patch.reason}"
                console.print(f"  [{tint}]{patch.status}[/{tint}] {escape(line)}", soft_wrap=True)
        for note in config.notes:
            console.print(f"  {escape(note)}", soft_wrap=True)
    total = ", ".join(f"{n} {one}" for one, n in result.counts.items())
    console.print(f"{counted(result.configs, 'config')}: {total}")
