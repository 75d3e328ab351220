"""A batch of text: rows padded on the left count their positions as the same rows do alone."""

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from omni_kit.toys.batches.language import as_named, language_model, text_inputs, text_tokens  # noqa: E402

_SIZES = {
    "gpt2": {"n_embd": 32, "n_head": 4, "n_layer": 1, "vocab_size": 64, "n_positions": 32},
    "llama": {"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 1, "vocab_size": 64},
    "opt": {"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 1, "vocab_size": 64, "ffn_dim": 32},
}


@pytest.mark.parametrize("model_type", _SIZES)
def test_rows_padded_on_the_left_equal_the_same_rows_alone(model_type: str) -> None:
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(model_type, **_SIZES[model_type], pad_token_id=0)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    inputs = text_inputs(list(range(3, 64)))
    batch, alone = (language_model(model, inputs, as_named, apart=apart)["logits"] for apart in (False, True))
    torch.testing.assert_close(batch, alone, rtol=1e-4, atol=1e-5)


def test_words_that_a_config_names_are_no_text_unless_it_names_all() -> None:
    """Chameleon forbids its image words, so that as labels they give a loss without bound."""
    words = {"<image>": 30, "IMGIMGAZ": 4, "IMGIMGBZ": 5}
    config = transformers.ChameleonConfig(vocab_size=32, vocabulary_map=words, image_token_id=30)
    assert not {4, 5, 30} & {*text_tokens(config)}
    assert 6 in text_tokens(config)
    config.vocabulary_map = {str(number): number for number in range(32)}
    assert 6 in text_tokens(config)
