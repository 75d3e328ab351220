"""ModelProfile: frozen facts about a Subject, each with its evidence."""

from dataclasses import asdict, dataclass
from typing import Any

from omni_kit.upstream.kinds import Kind


@dataclass(frozen=True)
class Trait:
    """One property of a model that decides how it is integrated."""

    name: str
    value: Any
    evidence: str


@dataclass(frozen=True)
class Experts:
    """The routed experts: their number, how many a token uses, their width, and how many are shared."""

    count: int
    top_k: int | None
    intermediate_size: int | None
    shared: int


@dataclass(frozen=True)
class Component:
    """One part of a pipeline.

    Attributes:
        name: as the pipeline calls it.
        library, class_name: what it is of.
        role: denoiser, autoencoder, encoder, tokenizer, processor, scheduler, controlnet, guider or other.
        optional: the pipeline works without it.
        evidence: where that was read.
    """

    name: str
    library: str
    class_name: str
    role: str = "other"
    optional: bool = False
    evidence: str = ""


@dataclass(frozen=True)
class ModelProfile:
    """Report of inspect; every later step starts from it.

    Attributes:
        model_type: of transformers; of diffusers, the class.
        library, library_version: whose classes it is of.
        kind_evidence: what told the kind.
        components: the parts of the pipeline that it is of, its own part first.
    """

    model_type: str
    library: str
    library_version: str
    architectures: tuple[str, ...]
    kind: Kind
    kind_evidence: str
    traits: tuple[Trait, ...] = ()
    experts: Experts | None = None
    components: tuple[Component, ...] = ()

    def trait(self, name: str) -> Trait | None:
        """Return the trait of that name, or None."""
        return next((trait for trait in self.traits if trait.name == name), None)

    def as_json(self) -> dict[str, Any]:
        """Return the fields of inspect's JSON object."""
        return asdict(self)
