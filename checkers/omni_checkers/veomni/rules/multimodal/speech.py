"""VEO612: what only speaks is left out of models that listen."""

from omni_checkers.engine.rule import Finding, Findings, NotApplicable, Rule, Severity
from omni_checkers.veomni.facts.generated import Generated
from omni_kit.upstream.kinds import Kind
from omni_kit.upstream.transformers.speech import speech_classes, speech_configs

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
            speaking = next(
                (found for config in configs if config is not None and (found := speech_configs(config))), set()
            )
            judged = judged or bool(speaking)
            for name in speech_classes(item.classes, speaking):
                message = f"{name} only produces speech: exclude it from the output"
                yield Finding(message, item.file.path, item.classes[name].lineno)
        if not judged:
            raise NotApplicable("no config of a generated class has a thinker")
