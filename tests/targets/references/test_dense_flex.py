"""Flex attention in plain operations: as torch's own computes it, with the gradients of torch's kernel."""

from typing import Any

import pytest
import torch
from torch.nn.attention import flex_attention as flex
from torch.nn.functional import scaled_dot_product_attention

from omni_kit.targets.references.dense_flex import attend, create_block_mask

TOKENS = 37
Three = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def earlier_blocks(b: Any, h: Any, query: Any, key: Any) -> Any:
    """The first five queries see no key at all."""
    return key // 5 < query // 5


def further_away(score: Any, b: Any, h: Any, query: Any, key: Any) -> Any:
    return score + (query - key) * (h + 1) * 0.1


def tensors(heads: int = 4, tokens: int = TOKENS) -> Three:
    torch.manual_seed(0)
    query, key, value = (torch.randn(2, count, tokens, 16) for count in (4, heads, heads))
    return query, key, value


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("score_mod", [None, further_away])
def test_as_torch_computes_it(masked: bool, score_mod: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flex, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)  # traced for seconds otherwise
    mask = create_block_mask(earlier_blocks, None, None, TOKENS, TOKENS, device="cpu", _compile=True)
    given: dict[str, Any] = {"score_mod": score_mod, "scale": 0.3, "enable_gqa": True, "return_lse": True}
    given |= {"block_mask": mask} if masked else {}
    query, key, value = tensors(2)
    own, total = attend(query, key, value, **given)
    wanted, theirs = flex.flex_attention(query, key, value, **given)
    torch.testing.assert_close(own, wanted)
    torch.testing.assert_close(total, theirs)


def test_gradients_are_those_of_a_dense_mask() -> None:
    mask = create_block_mask(earlier_blocks, None, None, TOKENS, TOKENS, device="cpu")
    dense = flex.create_mask(earlier_blocks, 1, 1, TOKENS, TOKENS, device="cpu")
    query, key, value = (one.requires_grad_() for one in tensors())
    answer = attend(query, key, value, block_mask=mask)
    wanted = scaled_dot_product_attention(query, key, value, attn_mask=dense)
    torch.testing.assert_close(answer, wanted)
    assert not answer[:, :, :5].any()
    ours, theirs = (torch.autograd.grad(one.square().sum(), [query, key, value]) for one in (answer, wanted))
    for own, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(own, other)


def test_blocks_that_a_mask_leaves_out_are_not_seen() -> None:
    first = torch.ones(1, 1, 2, dtype=torch.int32), torch.zeros(1, 1, 2, 1, dtype=torch.int32)
    mask = flex.BlockMask.from_kv_blocks(*first, BLOCK_SIZE=32, seq_lengths=(64, 32))
    query, key, value = tensors(tokens=64)
    answer = attend(query, key[:, :, :32], value[:, :, :32], block_mask=mask)
    both = flex.BlockMask.from_kv_blocks(first[0], torch.tensor([[[[0, 1], [0, 1]]]], dtype=torch.int32), BLOCK_SIZE=32)
    torch.testing.assert_close(attend(query, key, value, block_mask=both), answer)


def test_a_mask_for_fewer_keys_is_refused() -> None:
    mask = create_block_mask(earlier_blocks, None, None, TOKENS, TOKENS - 1, device="cpu")
    query, key, value = tensors()
    with pytest.raises(ValueError, match=f"36 keys, not {TOKENS} and {TOKENS}"):
        attend(query, key, value, block_mask=mask)
