"""Pipelines, denoisers and autoencoders that SGLang has itself, read from its source with their places.

SGLang is read where it is installed, and in a checkout that is written to. Where it is not there, what a version had is
read from a record: `python -m omni_kit.targets.sglang_diffusion.built_in` writes it from the installed SGLang.
"""

import ast
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from omni_kit.files import files_matching, write_atomic
from omni_kit.pysource.source import dotted, parse_file
from omni_kit.targets.protocol import Decision
from omni_kit.targets.sglang_diffusion.checkout import Checkout, find_checkout, pipeline_places
from omni_kit.upstream.subject import Subject

_RECORD = Path(__file__).with_name("own.json")
_MODELS, _VAE_CONFIGS = "runtime/models", "configs/models/vaes"
_ENTRY, _ALIASES = "EntryClass", "_aliases"
_ANY_VAE = "VAEConfig"  # a class that takes any config says nothing of its own
_ROLES = {"denoiser": "denoiser", "autoencoder": "autoencoder"}


@dataclass(frozen=True)
class Own:
    """Built-in classes of one version of SGLang.

    Attributes:
        version: of SGLang.
        here: it was read from SGLang's source; False where it comes from the record.
        pipelines: pipeline_name -> FILE:LINE.
        models: class of a denoiser, an autoencoder or an encoder, also by its aliases -> FILE:LINE.
        vae_configs: class of an autoencoder -> the config that its constructor takes, as MODULE:NAME.
    """

    version: str
    here: bool
    pipelines: dict[str, str]
    models: dict[str, str]
    vae_configs: dict[str, str]

    @property
    def called(self) -> str:
        """Name in messages."""
        return f"SGLang {self.version}" + ("" if self.here else " (not installed here)")

    def decisions(self, subject: Subject) -> Iterator[Decision]:
        """Yield what SGLang already has of a subject's pipeline and its parts."""
        pipeline = subject.pipeline
        name = pipeline.cls.node.name if pipeline is not None else ""
        if name in self.pipelines:
            yield Decision(
                "SGLang has", f"the pipeline {name}", f"{self.called} serves it itself", self.pipelines[name]
            )
        parts = pipeline.components if pipeline is not None else ()
        classes = {one.class_name: one.role for one in parts if one.role in _ROLES}
        if pipeline is None:
            classes = {subject.profile.model_type: "denoiser"}
        for class_name, role in classes.items():
            if class_name in self.models:
                yield Decision("SGLang has", f"the {role} {class_name}", f"{self.called} has its own class for it",
                               self.models[class_name])  # fmt: skip


def own(into: Path | None = None) -> Own:
    """Return SGLang's built-in classes: from the checkout at `into`, else the installed SGLang, else the record."""
    checkout = find_checkout(into) if into is not None else None
    if checkout is None and (spec := find_spec("sglang")) is not None and spec.submodule_search_locations:
        checkout = find_checkout(Path(next(iter(spec.submodule_search_locations))).parent)
    return _read(checkout) if checkout is not None else _recorded()


@cache
def _recorded() -> Own:
    return Own(**json.loads(_RECORD.read_text(encoding="utf-8")))


@cache
def _read(checkout: Checkout) -> Own:
    models: dict[str, str] = {}
    configs: dict[str, str] = {}
    for file in files_matching(checkout.package / _MODELS, "*/*.py"):
        for node in _entry_classes(file):
            place = _place(checkout, file, node.lineno)
            models |= dict.fromkeys((node.name, *_strings(node, _ALIASES)), place)
            if file.parent.name == "vaes" and (config := _config_taken(node)):
                configs[node.name] = config
    where = dict(_config_modules(checkout))
    return Own(
        version=_version(),
        here=True,
        pipelines={name: _place(checkout, *at) for name, at in sorted(pipeline_places(checkout).items())},
        models=dict(sorted(models.items())),
        vae_configs={name: f"{where[one]}:{one}" for name, one in sorted(configs.items()) if one in where},
    )


def _version() -> str:
    try:
        return version("sglang")
    except PackageNotFoundError:
        return "of the checkout"


def _place(checkout: Checkout, file: Path, line: int) -> str:
    return f"sglang/multimodal_gen/{file.relative_to(checkout.package).as_posix()}:{line}"


def _entry_classes(file: Path) -> Iterator[ast.ClassDef]:
    """Yield the classes that a file's EntryClass names."""
    try:
        if _ENTRY.encode() not in file.read_bytes():
            return
        _, tree = parse_file(file)
    except (OSError, SyntaxError, UnicodeDecodeError):  # not ours to mend
        return
    assigned = (node.value for node in tree.body if isinstance(node, ast.Assign) and _names(node) == [_ENTRY])
    entries = {name.id for value in assigned for name in ast.walk(value) if isinstance(name, ast.Name)}
    yield from (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name in entries)


def _names(node: ast.Assign) -> list[str]:
    return [target.id for target in node.targets if isinstance(target, ast.Name)]


def _strings(cls: ast.ClassDef, name: str) -> list[str]:
    """Return the texts of a list that a class assigns."""
    values = (node.value for node in cls.body if isinstance(node, ast.Assign) and _names(node) == [name])
    return [one.value for value in values for one in ast.walk(value)
            if isinstance(one, ast.Constant) and isinstance(one.value, str)]  # fmt: skip


def _config_taken(cls: ast.ClassDef) -> str:
    """Return the config that the constructor is annotated with; empty if that is any."""
    methods = (node for node in cls.body if isinstance(node, ast.FunctionDef) and node.name == "__init__")
    arguments = (one for method in methods for one in method.args.args if one.arg == "config")
    named = (dotted(one.annotation) or "" for one in arguments if one.annotation is not None)
    return next((name for name in named if name != _ANY_VAE), "")


def _config_modules(checkout: Checkout) -> Iterator[tuple[str, str]]:
    """Yield each class in SGLang's configs of autoencoders, and its module."""
    for file in files_matching(checkout.package / _VAE_CONFIGS, "*.py"):
        _, tree = parse_file(file)
        dotted_name = ".".join(("sglang.multimodal_gen", *_VAE_CONFIGS.split("/"), file.stem))
        yield from ((node.name, dotted_name) for node in tree.body if isinstance(node, ast.ClassDef))


if __name__ == "__main__":
    write_atomic(_RECORD, json.dumps({**asdict(own()), "here": False}, indent=1) + "\n")
