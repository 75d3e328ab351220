"""Features lost where a plugin replaces VeOmni's own integration: VEO111."""

from omni_checkers.engine.rule import Finding, Findings, Rule, Severity
from omni_checkers.veomni.examples import REGISTER
from omni_kit.files import is_file
from omni_kit.pysource.source import read_text
from omni_kit.targets.veomni.model_dir import ModelDir, place_of
from omni_kit.targets.veomni.replaced import lost_by

_README = "README.md"


class ReplacedIntegrationKeepsAll(Rule):
    """Support in a replacing plugin what VeOmni's integration supports, or list the losses in its README.

    Why: importing the plugin replaces VeOmni's own code without a message. Users on NPUs, or of a kernel that the
    plugin has no slot for, find out from a failing or slower run.

    Fine when: nobody needs the lost feature; name it in the README.
    """

    id = "VEO111"
    name = "replaced-integration-keeps-all"
    severity = Severity.info
    target = "veomni"
    BAD = ({"__init__.py": REGISTER.replace('register("olmoe")', 'register("qwen3_moe")')},)
    GOOD = ({_README: "# OLMoE for VeOmni\n"},)

    def check(self, model_dir: ModelDir) -> Findings:
        readme = model_dir.path / _README
        said = read_text(readme) if is_file(readme) else ""
        if lost := [feature for feature in lost_by(model_dir) if feature not in said]:
            key = next(iter(model_dir.registered))
            path, line = place_of(model_dir, key)
            message = (
                f"VeOmni's own '{key}', which this replaces, also has {', '.join(lost)}; {_README} does not list it"
            )
            yield Finding(message, path, line)
