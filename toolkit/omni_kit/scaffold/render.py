"""Renders planned files from the templates of a target's kind."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path, PurePosixPath

import jinja2

from omni_kit.documents import read_json, yaml_scalar
from omni_kit.errors import BadInput
from omni_kit.formatting import check_python, format_files
from omni_kit.resources import resource_dir
from omni_kit.targets.protocol import TODO_KEY, TODO_MARK, NewFile, Target, Todo, package_of

GROUP = "omni_kit.templates"
COMMENTED = frozenset({".json", ".py", ".toml", ".yaml", ".yml"})
"""Suffixes of the files that may hold to-dos."""


def render(files: Sequence[NewFile], templates: Path, rules: Path | None = None) -> dict[str, str]:
    """Return the text of every planned file, by path; Python is formatted.

    Args:
        templates: the folder of the kind's templates.
        rules: as `format_files` takes them.

    Raises:
        BadInput: a template is missing; InvalidPython, which is one: a file is not valid Python.
    """
    texts = {file.path: _render_file(file, templates) for file in files}
    made = [file.path for file in files if file.template is not None and file.path.endswith(".py")]
    formatted = format_files([(PurePosixPath(path).name, texts[path]) for path in made], rules)
    return texts | dict(zip(made, formatted, strict=True))


def _render_file(file: NewFile, templates: Path) -> str:
    """Return the text of one file, as its template has it.

    Raises:
        BadInput: there is no such template, or a file without one is not valid Python.
    """
    if file.template is None:
        if file.path.endswith(".py"):
            check_python(file.text, PurePosixPath(file.path).name)
        return file.text
    try:
        template = _environment(templates, (templates / file.template).parent).get_template(file.template)
        return template.render(file.context)
    except jinja2.TemplateNotFound as error:
        raise BadInput(f"{templates} has no template {error.name}", "reinstall the package that provides it") from error
    except jinja2.TemplateError as error:
        line = f":{error.lineno}" if isinstance(error, jinja2.TemplateSyntaxError) else ""
        raise BadInput(f"{file.template}{line} cannot be rendered: {error}", "fix the template") from error


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
    environment.filters["line"] = lambda text: " ".join(text.split())  # of a comment
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
    """Return the to-dos of files: comments `TODO(omni-kit): ...`, and in JSON the entries of the key `_todo`."""
    return [one for path, text in files.items() for one in _of_file(path, text)]


def _of_file(path: str, text: str) -> Iterator[Todo]:
    suffix = PurePosixPath(path).suffix
    if suffix == ".json" and f'"{TODO_KEY}"' in text:
        with suppress(ValueError):
            said = read_json(text)
            for what in said.get(TODO_KEY, []) if isinstance(said, dict) else []:
                before = text.partition(json.dumps(what))[0]
                yield Todo(path, before.count("\n") + 1, str(what))
    if suffix in COMMENTED and suffix != ".json":
        for number, line in enumerate(text.splitlines(), 1):
            comment, mark, what = line.partition(f"{TODO_MARK}: ")
            if mark and comment.rstrip().endswith("#"):
                yield Todo(path, number, what.strip())


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
