"""diffusers as a target: models of their authors' repositories become its own, and its pipelines modular."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from omni_kit.targets.diffusers.finding import at, find
from omni_kit.targets.diffusers.installing import INSTALL_DIFFUSERS
from omni_kit.targets.diffusers.modular.handler import ModularHandler
from omni_kit.targets.diffusers.transformer.drawing import DrawingHandler
from omni_kit.targets.diffusers.transformer.handler import TransformerHandler
from omni_kit.targets.protocol import INSTALL_TORCH, Integration, KindHandler, Requirement
from omni_kit.upstream.kinds import Kind


class Diffusers:
    """The framework as omni-kit asks it; see `omni_kit.targets.protocol.Target`."""

    name = "diffusers"
    reads = ("repository", "diffusers")
    rules = "omni_checkers.diffusers"
    requirements = (
        Requirement("diffusers", "new-model", INSTALL_DIFFUSERS),
        Requirement("torch", "parity", INSTALL_TORCH),
    )
    kinds: Mapping[Kind, KindHandler] = {
        Kind.dit: TransformerHandler(), Kind.modular: ModularHandler(), Kind.pipeline: DrawingHandler()
    }  # fmt: skip

    def at(self, path: Path) -> Integration | None:
        """Return a package with a model or a modular pipeline of its own, or the folder of a pipeline in a checkout."""
        return at(path)

    def find(self, path: Path) -> Sequence[Integration]:
        """Integrations at `path`: itself, or those in a folder or a checkout."""
        return find(path)


TARGET = Diffusers()
