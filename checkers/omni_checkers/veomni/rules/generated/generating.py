"""Rules about patch configs: VEO404, VEO405 and VEO414."""

from pathlib import Path
from typing import TYPE_CHECKING

from omni_checkers.engine.rule import Detector, Finding, Findings, NotApplicable, Rule, Severity
from omni_checkers.veomni.examples import (
    GPU_CONFIG,
    LOSS,
    NPU_CONFIG,
    OUTPUT,
    REGISTER_BOTH,
    loss_contract,
    patch_config,
)
from omni_checkers.veomni.facts.generated import Generated, PatchConfigFile
from omni_checkers.veomni.facts.regenerate import Regenerated
from omni_kit.patchgen.codes import DEFINITIONS

if TYPE_CHECKING:
    from omni_kit.patchgen.diagnostics import Diagnostic

_NOTHING: list[Generated] = []
# One detector for each diagnostic of patchgen that can keep a config from generating, or doubts it: with its number.
_DIAGNOSTICS = {
    one: Detector(int(one.id[3:]), code, one.documentation.summary, f"See {one.id}.")
    for code, one in DEFINITIONS.items()
    if one.severity is not Severity.info and one.id < "PGN7"
}
_PACKED = '''\


@config.override_method("OlmoeForCausalLM.forward", description="packed sequences")
def olmoe_for_causal_lm_forward(self, input_ids=None, packed=None, **kwargs):
    """Runs the model."""
    return self.model(input_ids)
'''


class ConfigsAreFound(Rule):
    """Name a patch config and its output as the generator expects.

    The config is `<model>_<device>_patch_gen_config.py` and generates `patched_modeling_<model>_<device>.py`.

    Why: commands that process all configs find them by this name. Under another name nothing checks the config, and its
    generated file goes stale.

    Fine when: never; rename the file.
    """

    id = "VEO404"
    name = "patch-config-named-so-that-it-is-found"
    severity = Severity.warning
    target = "veomni"
    obligations = ("VEO-REG-18",)
    BAD = ({"patches.py": patch_config()},)
    GOOD = ({GPU_CONFIG: patch_config()},)

    def check(self, patch_configs: list[PatchConfigFile]) -> Findings:
        if not patch_configs:
            raise NotApplicable("the directory has no patch config")
        for config in patch_configs:
            name = config.file.path.name
            if not name.endswith("_patch_gen_config.py"):
                yield Finding(f"{name} is not found: name it <model>_<device>_patch_gen_config.py", config.file.path, 1)
            target = config.target_file
            if target is not None and not (target.startswith("patched_modeling_") and target.endswith(".py")):
                message = f"it generates {target}; name it patched_modeling_<model>_<device>.py"
                yield Finding(message, config.file.path, config.line)


class ConfigsRaiseNoWarning(Rule):
    """Write patch configs that patchgen generates without warnings.

    Why: a warning means that a patch does less or more than it declares: `@auto_docstring` complains about a parameter
    at every import, a decorator applies twice, or a helper has no callers left.

    Fine when: the warning is about upstream's code and the config cannot fix it.
    """

    id = "VEO405"
    name = "patch-config-generates-without-warnings"
    severity = Severity.warning
    target = "veomni"
    obligations = (
        "VEO-PG-05",
        "VEO-PG-38",
        "VEO-PG-17",
        "VEO-PG-39",
        "VEO-PG-40",
        "VEO-PG-08",
        "VEO-PG-10",
        "VEO-PG-15",
        "VEO-PG-18",
    )
    failure_modes = (
        "autodoc-undocumented",
        "router-logits-dropped",
        "override-signature-drift",
    )
    detectors = tuple(detector for one, detector in _DIAGNOSTICS.items() if one.suppressible)
    BAD = ({GPU_CONFIG: patch_config(_PACKED)},)
    GOOD = ({GPU_CONFIG: patch_config(loss_contract(f"    loss, logits, aux = {LOSS}\n{OUTPUT}"))},)

    def check(self, regenerated: list[Regenerated]) -> Findings:
        said = set()
        for item in regenerated:
            for found in item.result.diagnostics:
                if found.severity == "warning":
                    finding = Finding(f"{found.code}: {found.message}", *placed(item, found), detector=found.code)
                    if finding not in said:
                        said.add(finding)
                        yield finding


class ConfigsGenerate(Rule):
    """Write patch configs that generate and that patchgen can read without running them.

    The reader accepts calls of PatchConfig's methods with plain values, and loops and small functions around them. It
    does not infer values computed elsewhere. VEO402 reports the problems of a config whose generated file exists.

    Why: the generated code cannot be compared with the config, so a gate would pass anything. The next run fails, or
    writes code that nobody reviewed.

    Fine when: the config computes its patches, and the gate runs `omni-kit patchgen check`, which may execute it; state
    that in an ignore comment on the line of the finding.
    """

    id = "VEO414"
    name = "patch-config-generates"
    target = "veomni"
    obligations = ("VEO-PG-37",)
    detectors = tuple(_DIAGNOSTICS.values())
    BAD = (
        {NPU_CONFIG: patch_config("\nconfig.exclude_from_output(*open('names'))\n", device="npu")},
        {NPU_CONFIG: patch_config("\nconfig.exclude_from_output('OlmoeNorm')\n", device="npu")},
    )
    GOOD = (
        {
            NPU_CONFIG: patch_config("\nconfig.exclude_from_output('OlmoeMLP')\n", device="npu"),
            GPU_CONFIG: patch_config(),
            "__init__.py": REGISTER_BOTH,
        },
    )

    def check(self, regenerated: list[Regenerated], generated: list[Generated] = _NOTHING) -> Findings:
        judged = {item.config.file.path for item in generated if item.config is not None}
        for item in regenerated:
            why = next((found for found in item.result.diagnostics if found.severity == "error"), None)
            if why is not None and item.config.file.path not in judged:
                yield Finding(f"{why.code}: {why.message}", *placed(item, why), detector=why.code)


def placed(item: Regenerated, found: "Diagnostic") -> tuple[Path, int]:
    """(file, line) that a diagnostic of the generator speaks of: of the config, or of one that it extends."""
    own = item.config.file.path
    path = own.parent / found.path if found.path else own
    return (path, max(1, found.line)) if path.is_file() else (own, item.config.line)
