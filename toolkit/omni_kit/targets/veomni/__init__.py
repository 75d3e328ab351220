"""VeOmni as a target: training on transformers v5, with generated modeling, fused experts and kernel slots."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from omni_kit.errors import BadInput
from omni_kit.layout import LayoutVerdict
from omni_kit.layout.consumer import ConvertingConsumer
from omni_kit.layout.loading import Loading
from omni_kit.targets.protocol import INSTALL_TORCH, Integration, KindHandler, NewFile, Requirement
from omni_kit.targets.veomni.dit.handler import DitHandler
from omni_kit.targets.veomni.finding import at, find
from omni_kit.targets.veomni.installing import (
    INSTALL_AV,
    INSTALL_TORCH_TO_EXPORT,
    INSTALL_TORCHVISION,
    INSTALL_VEOMNI,
    exporting_torch,
)
from omni_kit.targets.veomni.pinned import pinned_versions
from omni_kit.targets.veomni.text.handler import TextHandler
from omni_kit.upstream.kinds import MULTIMODAL, Kind
from omni_kit.upstream.transformers.models import UpstreamModel


def _needed(verdict: LayoutVerdict) -> Loading:
    from omni_kit.targets.veomni.text.converter import layout_of  # not for whoever only looks for integrations

    return layout_of(verdict)


class VeOmni:
    """The framework as omni-kit asks it; see `omni_kit.targets.protocol.Target`."""

    name = "veomni"
    reads = ("transformers", "diffusers")
    rules = "omni_checkers.veomni"
    requirements = (
        Requirement("veomni", "parity", INSTALL_VEOMNI),
        Requirement("torch", "parity", INSTALL_TORCH),
        Requirement("accelerate", "parity", INSTALL_TORCH),
        Requirement("veomni", "training text", INSTALL_VEOMNI, "veomni.trainer.text_trainer", apart=True),
        Requirement("av", "training diffusion", INSTALL_AV, apart=True),
        Requirement("torchvision", "training diffusion", INSTALL_TORCHVISION, apart=True),
        Requirement("veomni", "training diffusion", INSTALL_VEOMNI, "veomni.trainer.dit_trainer", apart=True),
        Requirement("torch", "export", INSTALL_TORCH_TO_EXPORT, apart=True, accepts=exporting_torch),
    )
    consumer = ConvertingConsumer("veomni", _needed)
    kinds: Mapping[Kind, KindHandler] = {
        Kind.llm: TextHandler(),
        Kind.moe: TextHandler(),
        Kind.other: TextHandler(),
        **dict.fromkeys(sorted(MULTIMODAL), TextHandler()),
        Kind.dit: DitHandler(),
    }

    @property
    def versions(self) -> Mapping[str, str]:
        """The versions of transformers that VeOmni's own modeling files state."""
        return pinned_versions()

    def at(self, path: Path) -> Integration | None:
        """Return a model directory: a package that registers a model."""
        return at(path)

    def find(self, path: Path) -> Sequence[Integration]:
        """Model directories at `path`: itself, those of a folder of plugins, or those of a checkout."""
        return find(path)

    def converter(self, name: str, path: str, verdict: LayoutVerdict) -> NewFile | str:
        """Return the converter module of a model of transformers, of whatever kind."""
        from omni_kit.targets.veomni.text.converter import converter_context, layout_of

        layout = layout_of(verdict)
        if not layout.needs_converter or not isinstance(verdict.model, UpstreamModel):
            return layout.reason
        context = converter_context(verdict.model, layout, name)
        return NewFile(path, "text/checkpoint_tensor_converter.py.jinja", context=vars(context))

    def exporter(self, path: str, integration: Integration) -> NewFile:
        """Return the exporting module of a model of transformers; denoisers are exported as diffusers stores them."""
        if integration.kind is Kind.dit:
            raise BadInput(f"{integration.path} is a denoiser, which VeOmni exports as diffusers stores it")
        options = self.kinds[integration.kind].candidate(integration.path).options
        package = "" if options["style"] == "in-tree" else options["import_name"]
        context = {"file": Path(path).name, "package": package, "veomni": "veomni.", "veomni_models": "veomni.models."}
        return NewFile(path, "text/export.py.jinja", context=context)


TARGET = VeOmni()
