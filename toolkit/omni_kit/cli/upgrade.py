"""`omni-kit upgrade`: move integrations to a newer version of their upstream library."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

from omni_kit.cli.app import app
from omni_kit.cli.options import DiffOption, DryRunOption, FormatOption, FullOption, LibraryOption, ToOption
from omni_kit.errors import BadInput
from omni_kit.output import Format, Output, table

if TYPE_CHECKING:
    from omni_kit.upgrade.result import Bump


@app.command("upgrade")
def upgrade_command(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A checkout, a folder of plugins, or one integration.")],
    before: Annotated[
        str | None,
        typer.Option("--from", metavar="OLD", help="Version in use: a number or an unpacked version's path."),
    ] = None,
    after: ToOption = None,
    library: LibraryOption = "transformers",
    dry_run: DryRunOption = False,
    diff: DiffOption = False,
    report: Annotated[
        Path | None,
        typer.Option(
            "--report", metavar="FILE", help="Write the report as Markdown, or as HTML if FILE ends in .html."
        ),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Reuse passed stages of models unchanged since the last run."),
    ] = False,
    parity: Annotated[
        bool, typer.Option("--parity/--no-parity", help="Compare each model with the newer upstream.")
    ] = True,
    fmt: FormatOption = Format.human,
    full: FullOption = False,
) -> None:
    """Move integrations to a newer upstream: merge, generate, check, compare.

    Each model's patches are merged three ways, its modeling file is generated again, its rules run, and it is compared
    with the newer upstream. A scaffold without patch configs is rendered again and merged with what people changed.
    What the framework's own code has to change is listed with file and line. Levels that failed before the upgrade are
    named: each model is compared with the older upstream first, unless a card next to it has its levels.

    Exit 0 only when every model is verified; 1 when something failed or needs a decision; 3 when something was not
    tested. Saved checkpoints follow with `omni-kit patchgen drift --apply`.
    """
    from omni_kit.files import check_replaceable, refuse_no_folder, write_atomic
    from omni_kit.patchgen.upgrade.versions import companions_of, version_at
    from omni_kit.pysource.library import find_library, used_instead

    output = Output("upgrade", fmt, full)
    if before is None:
        raise BadInput("upgrade needs the version that is in use", "pass it with --from, as a number or a path")
    write = not (dry_run or diff)
    if report is not None and report.suffix == ".html":
        check_replaceable(report, "omni-kit upgrade")
    elif report is not None:
        refuse_no_folder(report)
    old = version_at(library, before)
    new = version_at(library, after) if after else find_library(library).root
    with used_instead({library: new if after else None}) as libraries:
        from omni_kit.upgrade import upgrade

        result = upgrade(
            path, old, new, library, write=write, resume=resume, compare=parity,
            libraries=[*libraries, *(companions_of(new) if write and parity else [])],
            say=output.say,
        )  # fmt: skip
    data = result.as_json()
    if diff:
        texts = [one for model in result.models for one in model.configs if one.text != one.before]
        data["diff"] = "\n".join(one.diff(path.resolve()) for one in texts)
    if report is not None and write:
        write_atomic(report, result.page() if report.suffix == ".html" else result.markdown())
        output.say(f"wrote {report}")
    notes = [] if write else ["nothing was written, so nothing was generated, checked or compared"]
    human = partial(_render, result, str(data.get("diff", "")))
    output.finish(data, ok=result.exit_code == 0, human=human, notes=notes, exit_code=result.exit_code)


def _render(result: "Bump", diff: str, console: Console) -> None:
    from omni_kit.upgrade.result import HEAD

    if diff:
        console.print(escape(diff), soft_wrap=True)
    console.print(f"{result.before} -> {result.after}")
    shown = table(*HEAD)
    for model in result.models:
        shown.add_row(*map(escape, model.row()))
    console.print(shown)
    console.print(result.verdict)
    for title, rows in result.sections():
        console.print(f"[bold]{title}[/bold]")
        for row in rows:
            console.print(f"  {escape(row)}", soft_wrap=True)
