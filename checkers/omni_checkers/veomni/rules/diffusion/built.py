"""The rule about a diffusion model that is really built: VEO638."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from omni_checkers.engine.rule import Finding, Findings, NotApplicable, Rule, Severity
from omni_checkers.veomni.examples_diffusion import CONFIG, CONFIGURATION, MODEL, MODELING
from omni_checkers.veomni.facts.diffusion import Diffusion
from omni_kit.upstream.kinds import Kind

_MILD = ("put back", "times")


class BuiltAsDiffusersBuilds(Rule):
    """The wrapper builds on the meta device and matches diffusers' class.

    The rule imports the package and calls its functions as the trainer does. It builds the class once and checks that
    its weights have diffusers' names, that its config is VeOmni's, that it saves in diffusers' format even after a
    failed write, and that the import leaves diffusers unchanged.

    Why: diffusers' checkpoints do not load, or diffusers cannot read the saved ones, after hours of training.

    Fine when: the model needs a package that is not installed; the rule then does not apply.
    """

    id = "VEO638"
    name = "wrapper-is-built-as-diffusers-builds"
    target = "veomni"
    kinds = frozenset({Kind.dit})
    level = "import"
    requires = ("torch", "veomni", "diffusers")
    obligations = ("DIT-04", "DIT-06", "DIT-08", "DIT-09", "DIT-38")
    failure_modes = ("nonstrict-load", "missing-self-attribute")
    example_of = "wan_t2v"
    BAD = (
        {
            MODEL: MODELING.replace(
                "self.config = config\n        self.config.tie",
                "self.adapter = torch.nn.Linear(2, 2)\n        self.config = config\n        self.config.tie",
            )
        },
        {CONFIG: CONFIGURATION.replace('if key != "self"}', 'if key not in ("self", "eps")}')},
    )
    GOOD = ({MODEL: MODELING, CONFIG: CONFIGURATION},)

    def check(self, imported: Mapping[str, Any], diffusion: Diffusion, path: Path) -> Findings:
        if imported["lacks"] or imported["error"]:
            raise NotApplicable(f"the package cannot be imported here: {imported['lacks'] or imported['error']}")
        sides = {"transformer": diffusion.transformer, "condition": diffusion.condition}
        for which, what in imported["denoiser"]:
            side = sides[which]
            model = side.model if side is not None else None
            place = (model.module.path, model.node.lineno) if model is not None else (path / "__init__.py", 1)
            mild = Severity.warning if what.endswith(_MILD) or _MILD[0] in what else None
            yield Finding(what, *place, severity=mild)
