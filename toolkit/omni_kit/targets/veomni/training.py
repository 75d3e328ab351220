"""Location of the model that an integration's training files use."""

import os
from dataclasses import dataclass
from pathlib import Path

from omni_kit.targets.protocol import Request
from omni_kit.upstream.hub import SCHEME, parse_hub
from omni_kit.upstream.subject import Subject


@dataclass(frozen=True)
class ModelPlace:
    """Location of SOURCE, as the training files name it.

    Attributes:
        path: the directory of the model or of the pipeline.
        download: the command that fetches it; empty if it is local.
        given: SOURCE names files; False for a model_type or a class alone.
    """

    path: str
    download: str = ""
    given: bool = True


def model_place(subject: Subject, request: Request) -> ModelPlace:
    """Return where the checkpoint lies: the directory that was given, or where its download goes.

    A relative path stays relative only where the integration is written to the working directory.
    """
    if subject.given.startswith(SCHEME):
        repo = parse_hub(subject.given)
        folder = f"./{repo.repo_id.rpartition('/')[2]}"
        return ModelPlace(folder, f"hf download {repo.repo_id} --local-dir {folder}")
    if subject.directory is None:
        return ModelPlace(f"./{request.name}_checkpoint", given=False)
    typed = Path(subject.given)
    place = typed if typed.is_dir() else typed.parent
    here = request.into.resolve() == Path.cwd()
    return ModelPlace(str(place) if here or place.is_absolute() else os.path.abspath(place))
