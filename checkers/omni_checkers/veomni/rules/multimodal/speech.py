"""VEO612: what only speaks is left out of models that listen."""

from omni_checkers.engine.rule import Finding, Findings, NotApplicable, Rule, Severity
from omni_checkers.veomni.facts.generated import Generated
from omni_checkers.veomni.facts.upstream import config_names
from omni_kit.pysource.source import SourceFile
from omni_kit.upstream.kinds import Kind
from omni_kit.upstream.transformers.configs import ConfigClass
from omni_kit.upstream.transformers.defaults import as_config, sub_config

_FILE = "generated/patched_modeling_qwen2_5_omni_gpu.py"
_HEAD = """\
# Source: transformers.models.qwen2_5_omni.modeling_qwen2_5_omni
from transformers import PreTrainedModel
from transformers.models.qwen2_5_omni.configuration_qwen2_5_omni import (
    Qwen2_5OmniTalkerConfig,
    Qwen2_5OmniThinkerConfig,
)


class Qwen2_5OmniThinkerForConditionalGeneration(PreTrainedModel):
    config: Qwen2_5OmniThinkerConfig
"""
_TALKER = """\


class Qwen2_5OmniTalkerModel(PreTrainedModel):
    config: Qwen2_5OmniTalkerConfig
"""


class SpeechIsExcluded(Rule):
    """Exclude speech-only classes from the generated file of an omni model.

    Those are the classes whose config is not part of any `thinker_config`: talker, codec and vocoder.

    Why: training never builds them, but every transformers release requires generating, reviewing and fixing them.
    Their helpers import packages that training does not need.

    Fine when: you train the talker.
    """

    id = "VEO612"
    name = "speech-classes-are-excluded"
    severity = Severity.warning
    target = "veomni"
    kinds = frozenset({Kind.omni, Kind.omni_moe})
    obligations = ("VEO-OMNI-07", "VEO-PG-13")
    example_of = "qwen2_5_omni"
    BAD = ({_FILE: _HEAD + _TALKER},)
    GOOD = ({_FILE: _HEAD},)

    def check(self, generated: list[Generated]) -> Findings:
        judged = False
        for item in generated:
            configs = (item.config_class(name) for name in item.classes if "PreTrained" not in name)
            speaking = next((found for config in configs if config is not None and (found := _speaking(config))), set())
            judged = judged or bool(speaking)
            for name, node in item.classes.items():
                if "PreTrained" not in name and next(config_names(node), "") in speaking:
                    message = f"{name} only produces speech: exclude it from the output"
                    yield Finding(message, item.file.path, node.lineno)
        if not judged:
            raise NotApplicable("no config of a generated class has a thinker")


def _speaking(config: ConfigClass) -> set[str]:
    """Configs that the whole model's config leads to, and its thinker's does not."""
    whole = next((found for name in config.source.classes if (found := _with_thinker(config.source, name))), None)
    if whole is None:
        return set()
    others = (written for name, written in whole.sub_configs.items() if name != "thinker_config")
    spoken = set[str]().union(*(_below(whole, written) for written in others))
    return spoken - _below(whole, whole.sub_configs["thinker_config"])


def _with_thinker(source: SourceFile, name: str) -> ConfigClass | None:
    found = as_config(source, source.classes[name])
    return found if found is not None and "thinker_config" in found.sub_configs else None


def _below(owner: ConfigClass, written: str) -> set[str]:
    """The name of a config, and those of all configs inside it."""
    config = sub_config(owner, written)
    inner = config.sub_configs.values() if config is not None and config.name != owner.name else ()
    return {written}.union(*(_below(config, name) for name in inner if config is not None))
