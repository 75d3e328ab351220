"""Diffusion objects: what authors sample with where a class of theirs holds betas and has the loop.

Such classes descend from one implementation: a constructor takes `betas`, `p_sample_loop` and `ddim_sample_loop` take
the model, the shape of the noise, and what else the model is told.
"""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from omni_kit.errors import BadInput
from omni_kit.pysource.eval import UNKNOWN
from omni_kit.pysource.reads import literal
from omni_kit.pysource.signatures import defaults, named, signature
from omni_kit.pysource.source import SourceFile, dotted, read_source
from omni_kit.upstream.repositories.names import Defined, resolve
from omni_kit.upstream.repositories.reference import Reference

ANCESTRAL, DETERMINISTIC = "p_sample_loop", "ddim_sample_loop"
_BETAS = "betas"
_MOST_FILES = 400
# How the settings of such an object are called by who makes one.
_SETTINGS = {
    "steps": ("diffusion_steps", "steps", "num_timesteps", "num_diffusion_timesteps"),
    "schedule": ("noise_schedule", "beta_schedule", "schedule"),
    "learned": ("learn_sigma", "learn_variance"), "small": ("sigma_small",), "start": ("predict_xstart",),
}  # fmt: skip


@dataclass(frozen=True)
class Diffusing:
    """How authors make and use a diffusion object.

    Attributes:
        where: file:line of the loop's call.
        module, maker: the function that makes one, as it is imported.
        respacing: its argument that says how many steps are gone; empty for the first one.
        loop: the method that samples.
        clipped: whether what is predicted is kept within -1 and 1.
        settings: of the process, by the names of this file.
    """

    where: str
    module: str
    maker: str
    respacing: str
    loop: str
    clipped: bool
    settings: Mapping[str, object]

    @property
    def config(self) -> dict[str, object] | None:
        """The scheduler that goes the same way, as a config of diffusers; None where its betas are not known."""
        steps, schedule = self.settings.get("steps", 1000), self.settings.get("schedule", "linear")
        if not isinstance(steps, int) or schedule not in ("linear", "squaredcos_cap_v2", "cosine"):
            return None
        betas: dict[str, object] = {"beta_schedule": "squaredcos_cap_v2"}
        if schedule == "linear":
            betas = {"beta_schedule": "linear", "beta_start": 0.1 / steps, "beta_end": 20 / steps}
        small = "fixed_small" if self.settings.get("small") else "fixed_large"
        return {
            "num_train_timesteps": steps, **betas, "clip_sample": self.clipped, "timestep_spacing": "linspace",
            "variance_type": "learned_range" if self.settings.get("learned") else small,
            "prediction_type": "sample" if self.settings.get("start") else "epsilon",
        }  # fmt: skip


def diffusing_of(reference: Reference) -> Diffusing | None:
    """The diffusion object that authors sample with; None without one."""
    found = [one for source in _sources(reference) for one in _uses(source)]
    return next((one for one in found if one.loop == ANCESTRAL), next(iter(found), None))


def _sources(reference: Reference) -> Iterator[SourceFile]:
    for file in reference.repository.files[:_MOST_FILES]:
        try:
            yield read_source(reference.repository, file)
        except BadInput:  # another Python's, or a template
            continue


def _uses(source: SourceFile) -> Iterator[Diffusing]:
    made = {}
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and isinstance(node.targets[0], ast.Name):
            meant = resolve(source, dotted(node.value.func) or "")
            if isinstance(meant, Defined) and isinstance(meant.node, ast.FunctionDef) and _makes(meant):
                made[node.targets[0].id] = (node.value, meant)
    for call in (node for node in ast.walk(source.tree) if isinstance(node, ast.Call) and made):
        head, _, loop = (dotted(call.func) or "").rpartition(".")
        if head in made and loop in (ANCESTRAL, DETERMINISTIC):
            maker, meant = made[head]
            given = {one.arg: literal(one.value) for one in call.keywords if one.arg}
            where, clipped = source.where(call), given.get("clip_denoised", True)
            yield Diffusing(
                where, meant.source.module, meant.name, _respacing(meant), loop, bool(clipped), _settings(maker, meant)
            )


def _makes(meant: Defined) -> bool:
    """Whether a function answers an object that is made of betas."""
    calls = [node for node in ast.walk(meant.node) if isinstance(node, ast.Return) and isinstance(node.value, ast.Call)]
    return any(_BETAS in {word.arg for word in one.value.keywords} for one in calls)  # type: ignore[union-attr]


def _respacing(meant: Defined) -> str:
    assert isinstance(meant.node, ast.FunctionDef)
    return next((name for name in named(signature(meant.node)) if "respac" in name), "")


def _settings(call: ast.Call, meant: Defined) -> dict[str, object]:
    """What the process is made with: as the call says, else by default."""
    assert isinstance(meant.node, ast.FunctionDef)
    order = list(named(signature(meant.node)))
    given = {name: literal(one) for name, one in defaults(signature(meant.node)).items()}
    given |= {name: literal(one) for name, one in zip(order, call.args, strict=False)}
    given |= {one.arg: literal(one.value) for one in call.keywords if one.arg}
    found = {}
    for key, names in _SETTINGS.items():
        known = [given[name] for name in names if given.get(name, UNKNOWN) is not UNKNOWN]
        if known:
            found[key] = known[0]
    return found
