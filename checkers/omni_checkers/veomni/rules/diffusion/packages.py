"""The rule about the two packages of a diffusion model: VEO621."""

from collections.abc import Iterator
from pathlib import Path

from omni_checkers.engine.rule import Finding, Findings, Rule
from omni_checkers.symbolic import Class, Function
from omni_checkers.veomni.examples_diffusion import CONFIG as CONFIG_FILE
from omni_checkers.veomni.examples_diffusion import CONFIGURATION, REGISTER, REGISTERS
from omni_checkers.veomni.facts.constants import veomni_package
from omni_checkers.veomni.facts.diffusion import Diffusion, Side
from omni_checkers.veomni.facts.diffusion.sides import COMPANION
from omni_checkers.veomni.facts.registry import CONFIG, MODELING
from omni_kit.pysource.signatures import named, required, star
from omni_kit.targets.veomni.checkout import registrants
from omni_kit.targets.veomni.model_dir import ModelDir
from omni_kit.upstream.kinds import Kind

_NAMED = '    condition_model_type = "WanTransformer3DConditionModel"\n'


class TwoSidesFindEachOther(Rule):
    """Register a diffusion model as two models, and name the condition model in the transformer's config.

    Each key has a config and a model. The model's `config_class` is the registered config. `condition_model_type` of
    the transformer's config is a registered key, whose model has `get_condition` and `process_condition`. The register
    functions accept the trainer's calls: those of the condition model without arguments.

    Why: DiTTrainer looks both models up by these names before it reads any data. A mistake raises KeyError or
    TypeError, or passes the config of one model to the other's constructor.

    Fine when: another integration that VeOmni registers provides the condition model; then its key is known.
    """

    id = "VEO621"
    name = "diffusion-packages-find-each-other"
    target = "veomni"
    kinds = frozenset({Kind.dit})
    obligations = ("DIT-01", "DIT-03", "DIT-15", "DIT-17", "DIT-23", "DIT-38", "DIT-43")
    example_of = "wan_t2v"
    BAD = (
        {CONFIG_FILE: CONFIGURATION.replace(_NAMED, "")},
        {CONFIG_FILE: CONFIGURATION.replace("ConditionModel", "Condition")},
        {REGISTER: REGISTERS.replace("@MODEL_CONFIG_REGISTRY", "# @MODEL_CONFIG_REGISTRY")},
    )
    GOOD = ({CONFIG_FILE: CONFIGURATION, REGISTER: REGISTERS},)

    def check(self, diffusion: Diffusion, model_dir: ModelDir) -> Findings:
        for side in diffusion.sides:
            yield from _registered_twice(diffusion, side)
        yield from _callable(diffusion)
        yield from _named(diffusion, model_dir)


def _registered_twice(diffusion: Diffusion, side: Side) -> Iterator[Finding]:
    """A key has both a config and a model, and they belong together."""
    for registry in (CONFIG, MODELING):
        if registry not in side.registered:
            yield Finding(f"'{side.key}' is not registered with {registry}", *side.place)
    said = diffusion.attribute(side.model, "config_class")
    if side.model is not None and side.config is not None and isinstance(said, Class) and said != side.config:
        message = f"{side.model.name} takes {said.name}, but '{side.key}' is registered with {side.config.name}"
        yield Finding(message, side.model.module.path, side.model.node.lineno)


def _callable(diffusion: Diffusion) -> Iterator[Finding]:
    """Yield the trainer asks for the condition model without an argument, and for the transformer with one."""
    for side in diffusion.sides:
        found = side.registered.get(MODELING)
        function = found.function if found is not None else None
        if found is None or not isinstance(function, Function) or not hasattr(function.node, "name"):
            continue
        node = function.node
        needed = required(function.signature)
        if side is diffusion.condition and needed:
            message = f"the function of '{side.key}' requires '{needed[0]}', but the trainer calls it without arguments"
            yield Finding(message, found.path, node.lineno)
        if side is diffusion.transformer and not named(function.signature) and star(function.signature) is None:
            message = f"the function of '{side.key}' takes no argument, but is called with an architecture"
            yield Finding(message, found.path, node.lineno)


def _named(diffusion: Diffusion, model_dir: ModelDir) -> Iterator[Finding]:
    """Require the class that the transformer's config names to exist and to make conditions."""
    side = diffusion.transformer
    config = side.config if side is not None else None
    if side is None or config is None:
        return
    said = diffusion.attribute(config, COMPANION)
    place = config.module.path, config.node.lineno
    if said is None and not diffusion.inherits_unseen(config) and not _set_later(config):
        yield Finding(f"{config.name} has no {COMPANION}: the trainer looks it up there", *place)
    if not isinstance(said, str):
        return
    other = next((one for one in diffusion.sides if one.key == said), None)
    if other is None and not _registered_elsewhere(model_dir, said):
        yield Finding(f"{COMPANION} is '{said}', which nothing registers", *place)
    model = other.model if other is not None else None
    if model is not None and not diffusion.inherits_unseen(model):
        lost = [one for one in ("get_condition", "process_condition") if diffusion.method(model, one) is None]
        if lost:
            yield Finding(f"{COMPANION} is '{said}', but {model.name} has no {lost[0]}", *_place(model))


def _set_later(config: Class) -> bool:
    """Return whether the name is set on instances."""
    return any(getattr(item, "name", "") == COMPANION for item in config.node.body)


def _place(model: Class) -> tuple[Path, int]:
    return model.module.path, model.node.lineno


def _registered_elsewhere(model_dir: ModelDir, key: str) -> bool:
    """Return whether VeOmni itself, or a directory next to this one, registers a key."""
    package = veomni_package(model_dir)
    folders = [model_dir.path.parent, *([package / "models" / "diffusers"] if package is not None else [])]
    return any(registrants(folder, key) for folder in folders if folder.is_dir())
