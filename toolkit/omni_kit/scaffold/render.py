"""Renders planned files from the templates of a target's kind."""

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path

import jinja2

from omni_kit.documents import yaml_scalar
from omni_kit.errors import BadInput
from omni_kit.formatting import format_python
from omni_kit.resources import resource_dir
from omni_kit.targets.protocol import TODO_MARK, NewFile, Target, Todo, package_of

GROUP = "omni_kit.templates"


def render(files: Sequence[NewFile], templates: Path, rules: Path | None = None) -> dict[str, str]:
    """Return the text of every planned file, by path; Python is formatted.

    Args:
        templates: the folder of the kind's templates.
        rules: as `format_python` takes them.

    Raises:
        BadInput: there is no such template, or a rendered file is not valid Python.
    """
    return {file.path: render_file(file, templates, rules) for file in files}


def render_file(file: NewFile, templates: Path, rules: Path | None = None) -> str:
    """Return the text of one file.

    Raises:
        BadInput: there is no such template, or the rendered file is not valid Python.
    """
    if file.template is None:
        return file.text
    try:
        text = (
            _environment(templates, (templates / file.template).parent).get_template(file.template).render(file.context)
        )
    except jinja2.TemplateNotFound as error:
        raise BadInput(f"{templates} has no template {error.name}", "reinstall the package that provides it") from error
    except jinja2.TemplateError as error:
        line = f":{error.lineno}" if isinstance(error, jinja2.TemplateSyntaxError) else ""
        raise BadInput(f"{file.template}{line} cannot be rendered: {error}", "fix the template") from error
    return format_python(text, Path(file.path).name, rules) if file.path.endswith(".py") else text


@cache
def _environment(*folders: Path) -> jinja2.Environment:
    """Return the compiled templates of folders: all files of a scaffold share macros."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folders),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    environment.filters["yaml"] = yaml_scalar
    return environment


def with_marks(files: Mapping[str, str], todo: Sequence[Todo]) -> dict[str, str]:
    """Rendered files with a comment `TODO(omni-kit): ...` for each to-do of a plan whose line has none.

    What only a plan says is lost as soon as the files are written, and the integration would pass for finished.
    """
    marked = dict(files)
    for one in sorted((one for one in todo if one.path in files), key=lambda one: -one.line):
        lines = marked[one.path].splitlines(keepends=True)
        at = min(one.line, len(lines)) - 1
        if one.path.endswith(".py") and TODO_MARK not in lines[at]:
            pad = lines[at][: len(lines[at]) - len(lines[at].lstrip())]
            lines.insert(at, f"{pad}# {TODO_MARK}: {one.what}\n")
            marked[one.path] = "".join(lines)
    return marked


def left_open(files: Mapping[str, str]) -> list[Todo]:
    """Return the to-dos of rendered files: their lines with a comment `TODO(omni-kit): ...`."""
    return [
        Todo(path, number, line.partition(TODO_MARK)[2].strip(" :"))
        for path, text in files.items()
        for number, line in enumerate(text.splitlines(), 1)
        if TODO_MARK in line and line.lstrip().startswith("#")
    ]


def templates_of(target: Target, folder: str = "") -> Path:
    """Return the templates of a target, or of one of its kinds: ours, or those of an entry point `omni_kit.templates`.

    Args:
        folder: that of a kind, below the target's.

    Raises:
        BadInput: this installation has none.
    """
    for entry in entry_points(group=GROUP):
        if entry.name == target.name:
            return Path(entry.load()) / folder
    own = resource_dir("templates") / package_of(target)
    if not own.is_dir():
        raise BadInput(f"{target.name} has no templates", f"an entry point of the group {GROUP} is named as the target")
    return own / folder
