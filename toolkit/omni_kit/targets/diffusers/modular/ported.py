"""The blocks of a pipeline that is not in the library yet: it is read as if it were."""

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from omni_kit.pysource.library import Library
from omni_kit.targets.diffusers.checkout import PACKAGE
from omni_kit.targets.diffusers.modular.plan import Proposal
from omni_kit.targets.protocol import NewFile, Request
from omni_kit.upstream.diffusers.classes import PIPELINES, TRANSFORMERS
from omni_kit.upstream.diffusers.pipelines import find_pipeline

FOLDER = "modular"
"""Folder of the blocks in the integration's own package."""
_TEMPLATES = "modular/"


def blocks_of(library: Library, request: Request, class_name: str, texts: Mapping[str, str]) -> list[NewFile]:
    """Return the modular pipeline next to a standard one.

    Args:
        library: the one that both are written for.
        class_name: of the standard pipeline.
        texts: path -> text of its package.

    Raises:
        Refusal: it cannot be divided; why.
    """
    name = request.name
    model, pipeline, output = f"transformer_{name}", f"pipeline_{name}", "pipeline_output"
    home = f"{PIPELINES}/{name}"
    placed = {f"{TRANSFORMERS}/{model}.py": texts[f"{name}/{model}.py"]}
    placed |= {f"{home}/{file}.py": texts[f"{name}/{file}.py"] for file in (pipeline, output)}
    there = f"{library.name}.{TRANSFORMERS}.{model}".replace("/", ".")
    placed[f"{home}/{pipeline}.py"] = placed[f"{home}/{pipeline}.py"].replace(f"from .{model} ", f"from {there} ")
    scheduling = f"scheduling_{name}"
    if (text := texts.get(f"{name}/{scheduling}.py")) is not None:
        placed[f"schedulers/{scheduling}.py"] = text
        placed[f"{home}/{pipeline}.py"] = placed[f"{home}/{pipeline}.py"].replace(
            f"from .{scheduling} ", f"from {library.name}.schedulers.{scheduling} "
        )
    own = {there: f"..{model}", f"{library.name}.{home}.{output}".replace("/", "."): f"..{output}"}
    own |= {f"{library.name}.schedulers.{scheduling}": f"..{scheduling}"}
    with _with(library, placed) as whole:
        found = find_pipeline(whole, class_name, {})
        return list(Proposal(found, request, f"{name}/{FOLDER}", _TEMPLATES, own).files())


def blocks_in_tree(
    library: Library, request: Request, class_name: str, base: str, texts: Mapping[str, str]
) -> list[NewFile]:
    """Return the modular pipeline of a standard one that goes into the same checkout, with its tests and its page.

    Args:
        library: the checkout's package, as it is now.
        base: the folder of the blocks.
        texts: path -> text of what is written into the checkout.

    Raises:
        Refusal: it cannot be divided; why.
    """
    placed = {path.removeprefix(f"{PACKAGE}/"): text for path, text in texts.items() if path.startswith(f"{PACKAGE}/")}
    with _with(library, {path: text for path, text in placed.items() if path.endswith(".py")}) as whole:
        return list(Proposal(find_pipeline(whole, class_name, {}), request, base, _TEMPLATES).plan().files)


@contextmanager
def _with(library: Library, files: Mapping[str, str]) -> Iterator[Library]:
    """The library with more files, for as long as it is read."""
    with tempfile.TemporaryDirectory() as place:
        root = Path(place, library.name)
        for file in library.root.rglob("*.py"):
            link = root / file.relative_to(library.root)
            if link.relative_to(root).as_posix() in files:
                continue  # a file is never written through a link
            link.parent.mkdir(parents=True, exist_ok=True)
            os.symlink(file, link)
        for relative, text in files.items():
            own = root / relative
            own.parent.mkdir(parents=True, exist_ok=True)
            own.write_text(text, encoding="utf-8")
        yield Library(library.name, root)
