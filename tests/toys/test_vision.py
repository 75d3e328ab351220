"""Batches with pictures, films and sound: placeholders and features must agree, sample by sample too."""

import gc
import weakref
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers
from transformers import AutoConfig

from omni_kit.errors import BadInput
from omni_kit.targets.references.transformers import default_config, model_class_of
from omni_kit.toys.batches.language import sees, text_inputs
from omni_kit.toys.batches.pictures import Form, forms
from omni_kit.toys.batches.sounds import Sound
from omni_kit.toys.batches.vision import (
    MediaTokens,
    kinds_taken,
    kinds_untried,
    media_inputs,
    modality_masks,
    samples_of,
)
from omni_kit.toys.configs.language import toy_config
from omni_kit.toys.tensors import Tensors

TEXT = list(range(40, 90))
NOT_TAKEN = ("mm_token_type_ids", "labels")


@pytest.fixture(scope="module")
def vl() -> Any:
    config = AutoConfig.for_model("qwen3_vl")
    toy = type(config).from_dict(toy_config(config.to_dict()))
    return transformers.Qwen3VLForConditionalGeneration._from_config(toy).eval()


@pytest.fixture(scope="module")
def omni() -> Any:
    config = AutoConfig.for_model("qwen2_5_omni_thinker")
    toy = type(config).from_dict(toy_config(config.to_dict()))
    return transformers.Qwen2_5OmniThinkerForConditionalGeneration._from_config(toy).eval()


def batch_of(model: Any) -> Tensors:
    return media_inputs(model, TEXT)


def test_placeholders_are_as_many_as_the_features_that_replace_them(vl: Any) -> None:
    batch = batch_of(vl)
    masks = modality_masks(batch, vl.config)
    merge = vl.config.vision_config.spatial_merge_size**2

    assert int(masks["image_mask"].sum()) == int(batch["image_grid_thw"].prod(-1).sum()) // merge
    assert int(masks["video_mask"].sum()) == int(batch["video_grid_thw"].prod(-1).sum()) // merge
    assert len(batch["pixel_values"]) == int(batch["image_grid_thw"].prod(-1).sum())


def test_no_two_media_are_alike_and_rows_differ_from_columns(vl: Any) -> None:
    batch = media_inputs(vl, TEXT, rows=("TITIT", "TVTVIT"))
    images, films = batch["image_grid_thw"].tolist(), batch["video_grid_thw"].tolist()

    assert (len(images), len(films)) == (3, 2)
    assert len({one[0] * one[1] * one[2] for one in images}) == len(images)
    assert all(rows != columns for _, rows, columns in [*images, *films])
    assert all(len({*film}) == 3 for film in films)
    assert batch["rows.image_grid_thw"].tolist() == [0, 0, 1]


def test_media_that_a_model_does_not_take_are_left_out(vl: Any) -> None:
    assert kinds_taken(vl, TEXT) == "IV"
    assert "input_features" not in media_inputs(vl, TEXT, rows=("TST",))


def test_several_sounds_of_one_row_stay_with_it(omni: Any) -> None:
    batch = media_inputs(omni, TEXT, rows=("TSTVTST", "TST"))
    first, second = samples_of(batch)

    assert kinds_taken(omni, TEXT) == "IVS"
    assert (len(first["input_features"]), len(second["input_features"])) == (2, 1)
    assert first["films_before"].tolist() == [0, 1]
    lengths = batch["feature_attention_mask"].sum(-1).tolist()
    assert [*first["feature_attention_mask"].sum(-1).tolist(), second["input_features"].shape[-1]] == lengths
    assert len({*lengths}) == 3
    assert sorted(length % (2 * omni.config.audio_config.n_window) == 0 for length in lengths) == [False, False, True]


def test_sound_becomes_as_many_tokens_as_the_model_hears(omni: Any) -> None:
    batch = batch_of(omni)
    heard = [int(mask.sum()) for mask in modality_masks(batch, omni.config)["audio_mask"]]

    for row, count in enumerate(heard):
        sample = samples_of(batch)[row]
        features = omni.get_audio_features(
            sample["input_features"], sample["feature_attention_mask"], return_dict=True
        ).last_hidden_state
        assert len(features) == count > 0
    assert heard[0] != heard[1]


def test_media_and_padding_are_no_labels(vl: Any) -> None:
    batch = batch_of(vl)
    labelled = batch["labels"] != -100

    assert not bool((labelled & (batch["attention_mask"] == 0)).any())
    assert not bool((labelled & (batch["mm_token_type_ids"] > 0)).any())
    assert int(labelled.sum()) > 10


def test_the_second_row_is_shorter_and_its_first_token_is_no_label(vl: Any) -> None:
    batch = batch_of(vl)
    padded = int((batch["attention_mask"][1] == 0).sum())

    assert padded > 0
    assert bool(batch["attention_mask"][0].all())
    assert batch["labels"][1, padded] == -100


def runs(batch: Tensors) -> int:
    kinds = batch["mm_token_type_ids"][0].tolist()
    return sum(kind == 2 and before != 2 for before, kind in zip([0, *kinds], kinds, strict=False))


def test_a_film_is_one_run_or_a_run_for_each_frame_as_the_model_accepts_it(vl: Any, omni: Any) -> None:
    assert runs(batch_of(vl)) == int(batch_of(vl)["video_grid_thw"][0, 0])
    assert runs(batch_of(omni)) == 1


def test_samples_have_no_padding_and_only_their_own_media(vl: Any) -> None:
    batch = batch_of(vl)
    first, second = samples_of(batch)

    assert bool(first["attention_mask"].all())
    assert bool(second["attention_mask"].all())
    assert "pixel_values_videos" in first
    assert "pixel_values_videos" not in second
    assert torch.equal(torch.cat([first["pixel_values"], second["pixel_values"]]), batch["pixel_values"])
    assert torch.equal(torch.cat([first["image_grid_thw"], second["image_grid_thw"]]), batch["image_grid_thw"])
    joined = torch.cat([first["input_ids"], second["input_ids"]], dim=1)[0]
    assert torch.equal(joined, batch["input_ids"][batch["attention_mask"].bool()])


def test_sound_of_a_sample_has_no_padding_frames(omni: Any) -> None:
    batch = batch_of(omni)
    lengths = [sample["input_features"].shape[-1] for sample in samples_of(batch)]

    assert lengths == batch["feature_attention_mask"].sum(-1).tolist()
    assert lengths[0] != lengths[1]


def test_samples_of_text_alone_are_its_rows() -> None:
    batch = text_inputs(TEXT)
    first, second = samples_of(batch)

    assert set(first) == {"input_ids", "attention_mask", "labels"}
    assert first["input_ids"].shape[1] - second["input_ids"].shape[1] == int((batch["attention_mask"][1] == 0).sum())


def test_the_same_model_gets_the_same_batch(vl: Any) -> None:
    first, second = batch_of(vl), batch_of(vl)

    assert set(first) == set(second)
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_a_token_is_found_under_either_of_its_names() -> None:
    old = SimpleNamespace(image_token_index=7, audio_token_id=8)

    found = MediaTokens.of(old)

    assert (found.image, found.audio, found.video, found.around_image) == (7, 8, None, (None, None))
    assert set(modality_masks({"input_ids": torch.tensor([[7, 8, 9]])}, old)) == {"image_mask", "audio_mask"}


@pytest.mark.parametrize(
    ("config", "image", "video"),
    [
        ({"vision_start_token_id": 1, "vision_end_token_id": 2}, (1, 2), (1, 2)),
        ({"image_start_token_id": 1, "image_end_token_id": 2, "video_start_token_id": 3}, (1, 2), (3, None)),
    ],
)
def test_media_of_each_kind_stand_between_tokens_of_their_own(config: Any, image: Any, video: Any) -> None:
    found = MediaTokens.of(SimpleNamespace(**config))

    assert (found.around_image, found.around_video) == (image, video)


def toy(name: str) -> Any:
    config = default_config(name)
    return model_class_of(config)._from_config(type(config).from_dict(toy_config(config.to_dict()))).eval()


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("llava", {"pixel_values": (3, 3, 24, 24)}),
        ("mistral3", {"pixel_values": (3, 3, 24, 24), "image_sizes": (3, 2)}),
        ("llava_next", {"pixel_values": (3, 3, 3, 24, 24), "image_sizes": (3, 2)}),
        ("gemma4", {"pixel_values": (3, 54, 768), "image_position_ids": (3, 54, 2)}),
        ("idefics3", {"pixel_values": (3, 3, 24, 24), "pixel_attention_mask": (3, 24, 24)}),
        ("fuyu", {"image_patches": (3, 6, 2700)}),
        ("chameleon", {"pixel_values": (3, 3, 32, 32)}),
    ],
)
def test_pictures_come_in_the_form_that_a_class_takes(name: str, shape: dict[str, tuple[int, ...]]) -> None:
    model = toy(name)
    batch = media_inputs(model, TEXT, rows=("TITIT", "TIT"))
    first, second = samples_of(batch)

    assert {key: tuple(batch[key].shape) for key in shape} == shape
    for sample in (first, second):
        with torch.no_grad():
            # Without labels: a framework that another test imports may have put a loss of its own in place.
            given = {key: value for key, value in sample.items() if key not in ("mm_token_type_ids", "labels")}
            assert model(**given).logits.isfinite().all()


def test_films_of_placed_patches_have_frames_where_pictures_have_none() -> None:
    model = toy("gemma4")
    batch = media_inputs(model, TEXT, rows=("TVTIT",))

    assert "V" in kinds_taken(model, TEXT)
    assert batch["pixel_values_videos"].shape == (1, 3, *batch["pixel_values"].shape[1:])


def test_one_placeholder_for_pictures_and_films_keeps_them_apart() -> None:
    model = toy("glm4v")

    both, films = media_inputs(model, TEXT), media_inputs(model, TEXT, rows=("TVT",))

    assert kinds_taken(model, TEXT) == "I|V"
    assert "pixel_values_videos" not in both
    assert (films["mm_token_type_ids"][films["input_ids"] == model.config.image_token_id] == 2).all()


def test_a_film_has_places_for_what_forward_adds_to_its_features() -> None:
    model = toy("llava_onevision")
    batch = media_inputs(model, TEXT, rows=("TVTVT",))

    with torch.no_grad():
        named = {name: tensor for name, tensor in samples_of(batch)[0].items() if name not in NOT_TAKEN}
        assert model(**named).logits.isfinite().all()
    assert kinds_taken(model, TEXT) == "IV"


def test_a_projector_of_sounds_reads_what_the_tower_before_it_hands_on() -> None:
    model = toy("granite_speech")

    assert kinds_taken(model, TEXT) == "S"
    assert media_inputs(model, TEXT, rows=("TSTST",))["input_features"].shape == (2, 24, 20)


def test_sounds_come_with_a_mask_of_their_frames() -> None:
    model = toy("gemma4")
    batch = media_inputs(model, TEXT, rows=("TST", "TSTST"))
    first, second = samples_of(batch)

    assert kinds_taken(model, TEXT) == "IVS"
    assert batch["input_features"].shape == (3, 32, 128)
    assert batch["input_features_mask"].sum(-1).tolist() == [24, 20, 32]
    assert (len(first["input_features"]), len(second["input_features"])) == (1, 2)


@pytest.mark.parametrize(("name", "untried"), [("glm4v", ["images beside videos"]), ("video_llava", [])])
def test_media_without_a_known_form_are_named(name: str, untried: list[str]) -> None:
    assert kinds_untried(toy(name), TEXT) == untried


def test_a_model_that_takes_no_form_is_refused_with_the_error_of_the_likeliest() -> None:
    model = toy("llava")
    assert sees(model)
    broken = toy("llava")
    broken.model.multi_modal_projector.linear_1 = torch.nn.Linear(3, 3)
    with pytest.raises(BadInput, match=r"accepts: RuntimeError: mat1 and mat2 .*modeling_llava\.py:\d+\)"):
        sees(broken)


def test_films_have_equally_many_frames_where_a_class_reads_no_mask_of_them() -> None:
    model = toy("video_llava")
    batch = media_inputs(model, TEXT, rows=("TVTVT",))

    assert kinds_taken(model, TEXT) == "IV"
    assert batch["pixel_values_videos"].shape == (2, 3, 3, 24, 24)


def test_what_is_known_of_a_model_does_not_keep_it() -> None:
    model = toy("llava")
    seen = weakref.ref(model)
    assert kinds_taken(model, TEXT) == "I"
    del model
    gc.collect()
    assert seen() is None


def test_a_form_takes_the_width_that_a_layer_requires() -> None:
    """As of towers whose config names the width in a way that no rule knows."""
    sound = Sound("input_features", None, (24,), 128, frames_first=True)
    form = Form(sound, refitted=lambda share: Form(replace(sound, bins=int(sound.bins * share))))

    fitted = form.fitted("mat1 and mat2 shapes cannot be multiplied (3x1024 and 160x72)")

    assert fitted is not None
    assert fitted.piece(0)["input_features"].shape == (1, 24, 20)
    assert form.fitted("index out of range") is None
    assert fitted.fitted("mat1 and mat2 shapes cannot be multiplied (3x1024 and 160x72)") is None


def test_features_are_counted_as_forward_asks_for_them() -> None:
    """Its method for features takes more than the pictures, which forward alone knows."""

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(4))

        def get_image_features(self, pixel_values: torch.Tensor, chunks: int) -> torch.Tensor:
            return pixel_values.reshape(-1, 4)[::chunks]

        def forward(self, input_ids: torch.Tensor, pixel_values: torch.Tensor) -> None:
            self.get_image_features(pixel_values, 2)
            raise AssertionError("nothing after it runs")

    form = Form(lambda number: {"pixel_values": torch.ones(6, 4)})
    assert form.tokens(Model(), "get_image_features", 0, token=7) == 3


class _Sees:
    """Takes pictures as the subclasses' arguments say."""

    config = SimpleNamespace(
        vision_config=SimpleNamespace(patch_size=4, image_size=24, num_channels=3), spatial_merge_size=2
    )

    def forward(self, input_ids: Any, pixel_values: Any = None) -> None: ...


class _SeesGrids(_Sees):
    def get_image_features(self, pixel_values: Any, image_grid_hw: Any) -> None: ...


class _SeesTiles(_Sees):
    def get_image_features(self, pixel_values: Any, pixel_attention_mask: Any) -> None: ...


def test_a_grid_of_rows_and_columns_comes_with_patches_of_each_layout() -> None:
    found = [form.piece(1) for form in forms(_SeesGrids(), "get_image_features")]

    assert all(one["image_grid_hw"].tolist() == [[8, 6]] for one in found)
    assert [tuple(one["pixel_values"].shape[1:]) for one in found] == [(48,), (3, 4, 4), (8, 8, 3)]


def test_a_mask_may_say_which_tiles_are_padding() -> None:
    pictures, tiles = forms(_SeesTiles(), "get_image_features")
    masks = [tiles.piece(number)["pixel_attention_mask"].tolist() for number in (0, 2)]

    assert tiles.piece(0)["pixel_values"].shape == (1, 2, 3, 24, 24)
    assert masks == [[[True, True]], [[True, False]]]
    assert pictures.piece(0)["pixel_attention_mask"].shape == (1, 24, 24)
