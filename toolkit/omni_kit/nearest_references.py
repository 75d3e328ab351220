"""The reference models that resemble a model most: the integrations to read first."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from omni_kit.errors import OmniKitError
from omni_kit.examples import FOLDER
from omni_kit.record import ANSWERS, load_answers
from omni_kit.resources import resource_dir
from omni_kit.targets.protocol import package_of
from omni_kit.targets.registry import targets
from omni_kit.upstream.kinds import Kind
from omni_kit.upstream.profile import ModelProfile
from omni_kit.upstream.repositories.reference import names_reference
from omni_kit.upstream.subject import Subject, open_name, open_source

_SHOWN = 3


@dataclass(frozen=True)
class Nearest:
    """A reference model that integrates a similar model.

    Attributes:
        name: as `omni-kit reference show` accepts it.
        shared: the traits that both models have; `missing`, those that the reference's model lacks.
    """

    name: str
    model_type: str
    kind: Kind
    shared: tuple[str, ...]
    missing: tuple[str, ...]

    @property
    def path(self) -> str:
        """Its directory, relative to the data of the installation."""
        return f"{FOLDER}/{self.name}"

    def to_json(self) -> dict[str, Any]:
        """Return its fields in the form that inspect prints."""
        return {**asdict(self), "shared": list(self.shared), "missing": list(self.missing), "path": self.path}


def nearest(subject: Subject) -> list[Nearest]:
    """Return at most three reference models, the most similar first.

    The same model comes first, then models of the same kind, then those with the most traits in common. A model of
    another kind is included if one handler of its target extends the other.
    """
    facts = subject.profile
    values = {(trait.name, str(trait.value)) for trait in facts.traits}
    ranked = []
    for found, profile in _comparable(subject):
        same = profile is not None and profile.model_type == facts.model_type
        equal = values & {(trait.name, str(trait.value)) for trait in profile.traits} if profile else ()
        ranked.append((not same, found.kind != facts.kind, -len(equal), len(found.missing), found))
    return [row[-1] for row in sorted(ranked, key=lambda row: row[:-1])[:_SHOWN]]


def _comparable(subject: Subject) -> Iterator[tuple[Nearest, ModelProfile | None]]:
    """Reference models whose target integrates them as it would this subject, each with the profile of its model."""
    root = resource_dir(FOLDER).resolve()
    names = list(dict.fromkeys(trait.name for trait in subject.profile.traits))
    for target in targets().values():
        folder = root / package_of(target)
        handlers = {type(target.kinds[kind]) for kind in subject.kinds if kind in target.kinds}
        for one in target.find(folder) if handlers and folder.is_dir() else ():
            own = type(target.kinds[one.kind])
            if any(issubclass(own, handler) or issubclass(handler, own) for handler in handlers):
                profile = _profile(one.path)
                known = {trait.name for trait in profile.traits} if profile else set()
                shared = tuple(name for name in names if name in known)
                missing = tuple(name for name in names if name not in known)
                model_type = profile.model_type if profile else one.path.name
                yield Nearest(one.path.relative_to(root).as_posix(), model_type, one.kind, shared, missing), profile


def _profile(path: Path) -> ModelProfile | None:
    """Of the model that a reference integrates; None if the installed library does not have it."""
    file = path / ANSWERS
    source = load_answers(file).answers.get("source", "") if file.is_file() else path.name
    try:
        if names_reference(source):  # a class of a repository beside the reference models
            return open_source(str(resource_dir(FOLDER).parent / source)).profile
        return open_name(source).profile  # whatever lies in the working directory
    except OmniKitError:
        return None
