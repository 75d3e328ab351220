"""Every transformer that diffusers has: a toy is built, fed by rules, and proven as far as upstream itself goes."""

import importlib.util
import inspect
import re
from collections.abc import Mapping
from functools import cache
from typing import Any

import diffusers
import pytest
import torch

from omni_kit.pysource.library import find_library
from omni_kit.toys.batches.denoiser import TARGET, as_arguments, ask, denoised, denoiser_inputs, samples_of
from omni_kit.toys.batches.denoiser.arguments import ask_again
from omni_kit.toys.configs.denoiser import toy_denoiser
from omni_kit.toys.tensors import Tensors
from omni_kit.toys.weights import fill
from omni_kit.upstream.diffusers.classes import transformer_names

ORDINARY = {
    "FluxTransformer2DModel",
    "HunyuanVideoTransformer3DModel",
    "LTXVideoTransformer3DModel",
    "Lumina2Transformer2DModel",
    "OmniGenTransformer2DModel",
    "PixArtTransformer2DModel",
    "SD3Transformer2DModel",
    "ZImageTransformer2DModel",
}
# As diffusers exports them; DualTransformer2DModel, which it does not, is a part of another model.
NAMES = transformer_names(find_library("diffusers"))
CLASSES = [pytest.param(name, marks=() if name in ORDINARY else pytest.mark.sweep) for name in NAMES]

NEEDS = {"CosmosTransformer3DModel": "torchvision"}  # its forward resizes the padding mask with it
# A width of 2048 stands in the code, not in the config.
LARGE = {"HunyuanVideo15Transformer3DModel": 6_000_000}

_TEXT_OF_LAST = "after the last block nothing looks at the text any more"
_UNUSED = "upstream's forward does not use it"
# Class -> pattern of the parameters that no gradient reaches, and why.
UNREACHED: Mapping[str, tuple[str, str]] = {
    "EasyAnimateTransformer3DModel": (r"transformer_blocks\.1\.(attn1\..*add|txt_ff)", _TEXT_OF_LAST),
    "HunyuanVideo15Transformer3DModel": (r"transformer_blocks\.1\.(attn\..*add|ff_context)", _TEXT_OF_LAST),
    "LatteTransformer3DModel": (r"adaln_single\.linear", "read where norm_type is ada_norm_single, no default"),
    "LuminaNextDiT2DModel": (r"pad_token", _UNUSED),
    "MochiTransformer3DModel": (r"transformer_blocks\.1\.attn1\.(norm_added_q|add_q_proj)", _TEXT_OF_LAST),
    "PriorTransformer": (r"clip_(mean|std)", "read by post_process_latents alone"),
    "QwenImageTransformer2DModel": (r"transformer_blocks\.1\.(attn\..*add|txt_mlp)", _TEXT_OF_LAST),
    "SD3Transformer2DModel": (r"transformer_blocks\.1\.attn\.add_q_proj", _TEXT_OF_LAST),
}
# What cannot be changed alone: the only class of its sort, and a length that the audio itself has.
FIXED = {("HunyuanDiT2DModel", "style"), ("LTX2VideoTransformer3DModel", "audio_num_frames#")}
# Each text has as many words as there are positions, and everything else is a vector.
OF_ONE_SIZE = {"PriorTransformer"}
IMAGES, TEXT = "hidden_states", "encoder_hidden_states"


@cache
def fed(name: str) -> tuple[Any, Tensors]:
    """A toy of a class with its default config, and its batch."""
    if name in NEEDS and importlib.util.find_spec(NEEDS[name]) is None:
        pytest.skip(f"{name} needs {NEEDS[name]}")
    cls = getattr(diffusers, name)
    parameters = list(inspect.signature(cls.__init__).parameters.values())[1:]
    named = (one for one in parameters if one.kind not in (one.VAR_KEYWORD, one.VAR_POSITIONAL))
    config = toy_denoiser({one.name: None if one.default is one.empty else one.default for one in named})
    torch.manual_seed(0)
    model = cls.from_config(config).train()
    fill(model)
    return model, denoiser_inputs(model)


@pytest.mark.parametrize("name", CLASSES)
def test_the_toy_is_small_and_has_two_blocks_of_each_kind(name: str) -> None:
    model, _ = fed(name)
    lists = [part for part in model.children() if isinstance(part, torch.nn.ModuleList)]

    assert sum(parameter.numel() for parameter in model.parameters()) < LARGE.get(name, 2_000_000)
    assert any(len(part) == 2 for part in lists)


@pytest.mark.parametrize("name", CLASSES)
def test_two_samples_of_one_sort_and_of_different_sizes(name: str) -> None:
    model, batch = fed(name)
    first, second = samples_of(batch)

    assert first.keys() == second.keys()
    assert any(first[key].shape != second[key].shape for key in first) != (name in OF_ONE_SIZE)
    assert not first[TARGET].equal(second[TARGET])
    for sample in (first, second):
        with torch.no_grad():
            assert ask(model, sample).shape == sample[TARGET].shape
        for key, tensor in sample.items():
            if "mask" in key and not key.endswith("(0)"):
                assert 0 < int(tensor.count_nonzero()) < tensor.numel(), key


def test_each_stream_is_odd_where_the_other_is_even() -> None:
    _, batch = fed("FluxTransformer2DModel")
    lengths = [[sample[name].shape[1] for name in (IMAGES, TEXT)] for sample in samples_of(batch)]
    assert [[length % 4 for length in both] for both in lengths] == [[0, 1], [3, 0]]


@pytest.mark.parametrize("name", CLASSES)
def test_a_gradient_reaches_every_parameter(name: str) -> None:
    model, batch = fed(name)
    model.zero_grad()
    loss: Any = denoised(samples_of(batch), lambda sample: ask(model, sample))["loss"]
    loss.backward()

    pattern, _ = UNREACHED.get(name, (r"(?!)", ""))
    trained = {key: one.grad for key, one in model.named_parameters() if one.requires_grad}
    unreached = {key for key, gradient in trained.items() if gradient is None or not gradient.any()}
    assert unreached == {key for key in unreached if re.match(pattern, key)}
    assert bool(unreached) == (name in UNREACHED)


@pytest.mark.parametrize("name", CLASSES)
def test_every_input_changes_the_answer(name: str) -> None:
    model, batch = fed(name)
    for sample in samples_of(batch):
        with torch.no_grad():
            answer = ask_again(model, sample)
            for key in (key for key in sample if key != TARGET and sample[key].numel() and (name, key) not in FIXED):
                changed = {**sample, **_changed(sample, key)}
                assert not torch.equal(ask_again(model, changed), answer), key


def _changed(sample: Tensors, key: str) -> Tensors:
    """Another value of the same sort; lengths that must go with the latents are exchanged."""
    value = sample[key]
    if key in ("height#", "width#"):
        return {"height#": sample["width#"], "width#": sample["height#"]}
    if key == "num_frames#":
        return {key: sample["height#"], "height#": value} if "height#" in sample else {key: value * 0 + 1}
    if key == "img_shapes":
        return {key: value[..., [0, 2, 1]]}
    if value.is_floating_point() or value.is_complex():
        return {key: value * 0.75 + 0.125}
    if re.search(r"indices|position|rope_pos", key):
        return {key: value * 2}
    if value.dtype == torch.bool:
        return {key: value.roll(1, -1)}
    return {key: value + 1 if value.numel() == 1 or key.endswith("#") else value.flip(-1)}


@pytest.mark.parametrize("name", CLASSES)
def test_the_same_batch_at_every_run(name: str) -> None:
    model, batch = fed(name)
    again = denoiser_inputs(model)

    assert batch.keys() == again.keys()
    assert all(torch.equal(batch[key], again[key]) for key in batch)
    with torch.no_grad():
        for sample in samples_of(batch):
            assert torch.equal(ask_again(model, sample), ask_again(model, sample))


def test_names_say_where_tensors_belong() -> None:
    one, two = torch.zeros(1), torch.ones(2)

    assert as_arguments({"a": one, TARGET: two}) == {"a": one}
    assert as_arguments({"x[1]": two, "x[0]": one}) == {"x": [one, two]}
    assert as_arguments({"pair(0)": one, "pair(1)": two}) == {"pair": (one, two)}
    assert as_arguments({"d{size}": one, "d{0}": two}) == {"d": {"size": one, 0: two}}
    assert as_arguments({"l[0](0)": one, "l[0](1)": two}) == {"l": [(one, two)]}
    assert as_arguments({"none{}": one}) == {"none": {}}
    assert as_arguments({"n#": torch.tensor(3), "s{0}#": torch.tensor([[1, 2]])}) == {"n": 3, "s": {0: [[1, 2]]}}
    assert as_arguments({"img_shapes": torch.tensor([[[1, 4, 6]]])}) == {"img_shapes": [[(1, 4, 6)]]}
