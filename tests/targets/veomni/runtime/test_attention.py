"""Packed attention: where upstream's eager attention can judge it, and where upstream disagrees with itself."""

import pytest
from transformers import GPTJConfig, GPTJForCausalLM, MistralConfig, MistralForCausalLM

from omni_kit.targets.veomni.runtime.attention import takes_flash, window_in_dispute


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


def test_flash_attention_reaches_a_model_that_looks_functions_up_by_name() -> None:
    sizes = {"num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 20}
    looking_up = MistralForCausalLM(MistralConfig(hidden_size=16, intermediate_size=16, **sizes))
    selecting = GPTJForCausalLM(GPTJConfig(n_embd=16, n_layer=1, n_head=2, rotary_dim=4, vocab_size=20))
    assert looking_up._supports_flash_attn
    assert selecting._supports_flash_attn
    assert [takes_flash(one) for one in (looking_up, selecting)] == [True, False]
