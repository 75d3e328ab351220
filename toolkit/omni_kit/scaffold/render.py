"""Renders planned files from a target's templates."""

from importlib.metadata import entry_points
from pathlib import Path

import jinja2

from omni_kit.errors import BadInput
from omni_kit.files import format_python
from omni_kit.resources import resource_dir
from omni_kit.targets import NewFile, Plan


def render(plan: Plan, target: str, family: str) -> dict[str, str]:
    """The text of every planned file, by path; Python is formatted.

    Args:
        family: the template folder of the kind ("text").

    Raises:
        BadInput: there is no such template, or a rendered file is not valid Python.
    """
    return {file.path: render_file(file, target, family) for file in plan.files}


def render_file(file: NewFile, target: str, family: str) -> str:
    """The text of one file.

    Raises:
        BadInput: there is no such template, or the rendered file is not valid Python.
    """
    if file.template is None:
        return file.text
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_templates(target) / family),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    try:
        text = environment.get_template(file.template).render(file.context)
    except jinja2.TemplateNotFound as error:
        raise BadInput(f"there is no template {error.name}", "reinstall omni-kit") from error
    return format_python(text, Path(file.path).name) if file.path.endswith(".py") else text


def _templates(target: str) -> Path:
    """The template folder of a target: ours, or the one that an entry point `omni_kit.templates` gives as a path."""
    for entry in entry_points(group="omni_kit.templates"):
        if entry.name == target:
            return Path(entry.load())
    return resource_dir("templates") / target
