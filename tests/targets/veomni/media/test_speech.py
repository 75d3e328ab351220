"""Code that only produces speech stays out of the generated file."""

from omni_kit.targets.veomni.media.speech import speech_only
from tests.conftest import Models


def test_talker_codec_and_what_only_they_use_are_left_out(model: Models) -> None:
    subject = model("qwen2_5_omni_thinker")
    left_out = speech_only(subject)
    assert {"Qwen2_5OmniTalkerModel", "Qwen2_5OmniToken2WavModel", "Qwen2_5OmniForConditionalGeneration"} <= {*left_out}
    assert "RungeKutta4ODESolver" in left_out  # a helper of the codec alone
    assert not {subject.class_name, "Qwen2_5OmniAudioEncoder", "Qwen2_5OmniThinkerTextModel"} & {*left_out}


def test_a_model_without_speech_keeps_all(model: Models) -> None:
    assert speech_only(model("qwen3_vl")) == ()
    assert speech_only(model("olmoe")) == ()


def test_a_base_class_of_what_stays_is_kept_with_all_that_it_initialises(model: Models) -> None:
    left_out = {*speech_only(model("qwen3_omni_moe_thinker"))}
    assert not {"Qwen3OmniMoePreTrainedModel", "Qwen3OmniMoeCode2Wav"} & left_out
    assert "Qwen3OmniMoeTalkerModel" in left_out
