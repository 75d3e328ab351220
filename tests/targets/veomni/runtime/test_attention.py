"""Packed attention: where upstream's eager attention can judge it, and where upstream disagrees with itself."""

import pytest
from transformers import DiffLlamaConfig, DiffLlamaForCausalLM, MistralConfig, MistralForCausalLM

from omni_kit.targets.veomni.runtime.attention import takes_flash, window_in_dispute

SIZES = {
    "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
    "num_key_value_heads": 2, "vocab_size": 20, "pad_token_id": None,
}  # fmt: skip


def test_a_model_with_attention_of_its_own_takes_no_flash_attention() -> None:
    mistral, diffllama = MistralForCausalLM(MistralConfig(**SIZES)), DiffLlamaForCausalLM(DiffLlamaConfig(**SIZES))
    assert diffllama._supports_flash_attn  # by a class that the config's own names choose
    assert [takes_flash(model) for model in (mistral, diffllama)] == [True, False]


@pytest.mark.parametrize(
    ("fields", "disputed"),
    [
        ({"sliding_window": 6}, False),
        ({"sliding_window": None, "is_causal": False}, False),
        ({"sliding_window": 6, "is_causal": False}, True),
    ],
)
def test_only_a_window_without_causality_is_in_dispute(fields: dict[str, object], disputed: bool) -> None:
    config = MistralConfig(
        hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1,
        vocab_size=20, **fields,
    )  # fmt: skip
    assert bool(window_in_dispute(MistralForCausalLM(config))) is disputed
