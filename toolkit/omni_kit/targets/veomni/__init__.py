"""VeOmni as a target."""

from pathlib import Path

from omni_kit.errors import BadInput
from omni_kit.layout import LayoutVerdict
from omni_kit.targets import INSTALL_TORCH, Checkout, NewFile, Plan, Request, Requirement
from omni_kit.targets.builder import DIFFUSERS, TRANSFORMERS, Candidate
from omni_kit.targets.veomni.checkout import find_checkout
from omni_kit.targets.veomni.checkout import model_dirs as find_model_dirs
from omni_kit.targets.veomni.converter import class_prefix, converter_context, layout_of
from omni_kit.targets.veomni.plan import make_plan
from omni_kit.targets.veomni.transformer_dir import denoiser_class, find_transformer

__all__ = ["INSTALL_VEOMNI", "VeOmni"]

# Its own requirements pull a CUDA build of torch; these are what it imports on a CPU.
INSTALL_VEOMNI = (
    "pip install --no-deps veomni && pip install psutil einops packaging datasets torchdata tiktoken blobfile"
)
TOY_CONFIG = "toy_config.json"
_MODEL = "omni_kit.targets.veomni.build:VeOmniBuilder"
_DENOISER = "omni_kit.targets.veomni.diffusion:VeOmniDiffusionBuilder"


class VeOmni:
    """Training on transformers v5: generated modeling, fused experts, OpSlot kernels."""

    name = "veomni"
    kinds = frozenset({"llm", "moe"})
    rules = "omni_checkers.veomni"
    requirements = (
        Requirement("veomni", "parity", INSTALL_VEOMNI),
        Requirement("torch", "parity", INSTALL_TORCH),
        Requirement("accelerate", "parity", INSTALL_TORCH),
    )

    def detect(self, path: Path) -> Checkout | None:
        return find_checkout(path)

    def plan(self, request: Request) -> Plan:
        if request.profile.kind not in self.kinds:
            raise BadInput(
                f"{request.profile.model_type} is of kind '{request.profile.kind}'; "
                f"VeOmni integrations are scaffolded for {', '.join(sorted(self.kinds))}"
            )
        return make_plan(request)

    def converter(self, name: str, path: str, verdict: LayoutVerdict) -> NewFile | str:
        layout = layout_of(verdict, canonical=True)
        if not layout.needs_converter or verdict.model is None:
            return layout.reason
        context = {"name": name, "class_name": class_prefix(name), "veomni_models": "veomni.models."}
        context |= converter_context(verdict.model, layout)
        return NewFile(path, "text/checkpoint_tensor_converter.py.jinja", context=context)

    def model_dirs(self, path: Path) -> list[Path]:
        return find_model_dirs(path)

    def candidate(self, path: Path) -> Candidate:
        found = find_transformer(path)
        toy = found.path / TOY_CONFIG
        denoiser = denoiser_class(found)
        return Candidate(
            path=found.path,
            source=str(toy) if toy.is_file() else denoiser or next(iter(found.registered)),
            builder=_DENOISER if denoiser else _MODEL,
            options={
                "path": str(found.path),
                "style": found.style,
                "import_name": found.import_name,
                "sys_path": str(found.sys_path),
                "registered": list(found.registered),
            },
            framework="veomni",
            reference=DIFFUSERS if denoiser else TRANSFORMERS,
            requires={} if found.style == "in-tree" else {"veomni": INSTALL_VEOMNI},
            editable=found.style == "plugin",
        )
