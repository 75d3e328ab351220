"""Options that several commands share, so that they read the same everywhere."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from omni_kit.output import Format


class Device(StrEnum):
    """A device to compute on."""

    cpu = "cpu"
    cuda = "cuda"


class FindingsFormat(StrEnum):
    """Output formats of findings."""

    human = "human"
    json = "json"
    sarif = "sarif"
    github = "github"


FindingsFormatOption = Annotated[FindingsFormat, typer.Option("--format", help="Output format.")]
SelectOption = Annotated[
    list[str] | None,
    typer.Option("--select", metavar="IDS", help="Only IDs that start with one of these prefixes (comma-separated)."),
]
IgnoreOption = Annotated[
    list[str] | None,
    typer.Option("--ignore", metavar="IDS", help="No IDs that start with one of these prefixes (comma-separated)."),
]
BaselineOption = Annotated[
    Path | None, typer.Option("--baseline", metavar="FILE", help="Baseline of known findings to ignore.")
]
WriteBaselineOption = Annotated[
    Path | None, typer.Option("--write-baseline", metavar="FILE", help="Write the findings of this run as a baseline.")
]
FormatOption = Annotated[Format, typer.Option("--format", help="Output format: human, or json for scripts and agents.")]
DeviceOption = Annotated[Device, typer.Option("--device", help="Device to compute on.")]
StrictOption = Annotated[bool, typer.Option("--strict", help="Fail on warnings, too.")]
ToOption = Annotated[
    str | None,
    typer.Option("--to", metavar="NEW", help="Newer version: a number or a path; by default the installed one."),
]
LibraryOption = Annotated[str, typer.Option("--library", metavar="L", help="The library: transformers or diffusers.")]
FullOption = Annotated[bool, typer.Option("--full", help="Print long lists in full.")]
SourceArgument = Annotated[
    str,
    typer.Argument(
        metavar="SOURCE",
        help="A checkpoint directory, config.json, *.safetensors, *.safetensors.index.json, "
        "model_index.json, a pipeline's or a component's directory, a model_type or a class of diffusers "
        "(transformers:NAME and diffusers:NAME if a file has its name), "
        "a class of its authors' repository as PATH::Class, a file that defines a pipeline, or hf://org/name.",
    ),
]
TransformersOption = Annotated[
    Path | None,
    typer.Option(
        "--transformers", metavar="PATH", help="Read this unpacked transformers instead of the installed one."
    ),
]
DiffusersOption = Annotated[
    Path | None,
    typer.Option("--diffusers", metavar="PATH", help="Read this unpacked diffusers instead of the installed one."),
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Print what would be written; write nothing.")]
DiffOption = Annotated[bool, typer.Option("--diff", help="Print changes as a unified diff; write nothing.")]
