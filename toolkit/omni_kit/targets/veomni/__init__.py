"""VeOmni as a target."""

from pathlib import Path

from omni_kit.errors import BadInput
from omni_kit.targets import INSTALL_TORCH, Checkout, Plan, Request, Requirement
from omni_kit.targets.builder import Candidate
from omni_kit.targets.veomni.checkout import find_checkout
from omni_kit.targets.veomni.checkout import model_dirs as find_model_dirs
from omni_kit.targets.veomni.model_dir import find_model_dir
from omni_kit.targets.veomni.plan import make_plan

__all__ = ["INSTALL_VEOMNI", "VeOmni"]

# Its own requirements pull a CUDA build of torch; these are what it imports on a CPU.
INSTALL_VEOMNI = (
    "pip install --no-deps veomni && pip install psutil einops packaging datasets torchdata tiktoken blobfile"
)
TOY_CONFIG = "toy_config.json"


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

    def model_dirs(self, path: Path) -> list[Path]:
        return find_model_dirs(path)

    def candidate(self, path: Path) -> Candidate:
        found = find_model_dir(path)
        toy = found.path / TOY_CONFIG
        return Candidate(
            path=found.path,
            source=str(toy) if toy.is_file() else next(iter(found.registered)),
            builder="omni_kit.targets.veomni.build:VeOmniBuilder",
            options={
                "path": str(found.path),
                "style": found.style,
                "import_name": found.import_name,
                "sys_path": str(found.sys_path),
                "registered": list(found.registered),
            },
            framework="veomni",
            requires={} if found.style == "in-tree" else {"veomni": INSTALL_VEOMNI},
            editable=found.style == "plugin",
        )
