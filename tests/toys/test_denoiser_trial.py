"""The trial that finds out which inputs a model takes, on models of a few lines."""

import math
import os
import re
import runpy
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any, Optional

import pytest
import torch
from einops import rearrange

from omni_kit.errors import BadInput
from omni_kit.toys.batches.denoiser import TARGET, DenoiserBatchBuilder, ask, denoiser_inputs, samples_of
from omni_kit.toys.batches.denoiser import builder as builder_module
from omni_kit.toys.batches.denoiser import trial as trial_module
from omni_kit.toys.batches.denoiser.failed_checks import asserted
from omni_kit.toys.batches.denoiser.forward_code import dimensions, joined, likely_dimensions
from omni_kit.toys.batches.denoiser.inputs import needed_arguments, searched_inputs
from omni_kit.toys.batches.denoiser.layouts import layouts
from omni_kit.toys.batches.denoiser.options import Argument
from omni_kit.toys.batches.denoiser.provenance import Provenance
from omni_kit.toys.batches.denoiser.roles import role_of
from omni_kit.toys.batches.denoiser.scalars import pair
from omni_kit.toys.batches.denoiser.sizes import Sizes, steps_of


class Small(torch.nn.Module):
    """A model of pictures [1, 6, rows, columns] and texts [1, words, 28]."""

    def __init__(self, **config: Any) -> None:
        super().__init__()
        self.config = {"in_channels": 6, "patch_size": 2, "text_dim": 28, **config}
        self.proj = torch.nn.Linear(6, 6)
        self.text = torch.nn.Linear(28, 6)

    def mixed(self, hidden_states: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        """Every place with the mean of the condition."""
        assert hidden_states.dim() == 4
        mixed: torch.Tensor = self.proj(hidden_states.movedim(1, -1)).movedim(-1, 1)
        return mixed + condition.mean(1)[..., None, None]


class Words(Small):
    """Takes a text, a mask that it needs as floats, and an argument of no effect."""

    def forward(
        self,
        hidden_states: torch.Tensor,
        timestep: torch.Tensor,
        encoder_hidden_states: torch.Tensor,
        encoder_attention_mask: torch.Tensor | None = None,
        pooled_projections: torch.Tensor | None = None,
        return_dict: bool = True,
    ) -> tuple[torch.Tensor]:
        text = self.text(encoder_hidden_states)
        if encoder_attention_mask is not None:
            text = torch.baddbmm(text, encoder_attention_mask[..., None], text[:, :1])
        return (self.mixed(hidden_states, text) * timestep[:, None, None, None],)


class Lists(Small):
    """Takes and gives lists, and knows no return_dict."""

    def forward(self, x: list[torch.Tensor], cap_feats: list[torch.Tensor]) -> list[torch.Tensor]:
        assert isinstance(cap_feats, list)
        assert x[0].dim() == 4
        return [one + self.text(cap).mean() for one, cap in zip(x, cap_feats, strict=True)]


class TwoAnswers(Small):
    """Answers twice."""

    def forward(self, hidden_states: torch.Tensor, encoder_hidden_states: torch.Tensor) -> Any:
        mixed = self.mixed(hidden_states, self.text(encoder_hidden_states))
        return mixed, mixed.flatten(1)


class NotFinite(Small):
    """Answers with what is no number."""

    def forward(self, hidden_states: torch.Tensor) -> tuple[torch.Tensor]:
        return (hidden_states * torch.nan,)


def test_shapes_and_types_are_found_and_what_has_no_effect_is_left_out() -> None:
    for sample in samples_of(denoiser_inputs(Words())):
        assert sample["hidden_states"].shape[:2] == (1, 6)
        assert sample["encoder_hidden_states"].shape[-1] == 28
        assert sample["encoder_attention_mask"].dtype == torch.float32
        assert sample["encoder_attention_mask"].shape == sample["encoder_hidden_states"].shape[:2]
        assert "pooled_projections" not in sample


class Counted(Small):
    """Takes the time through a layer of so many numbers."""

    def __init__(self, numbers: int) -> None:
        super().__init__()
        self.time = torch.nn.Linear(numbers, 6)

    def forward(self, hidden_states: torch.Tensor, timestep: torch.Tensor) -> tuple[torch.Tensor]:
        told = self.time(timestep[:, None].float().expand(-1, self.time.in_features))
        return (self.mixed(hidden_states, told[:, None]),)


@pytest.mark.parametrize(("numbers", "most"), [(1, 1.0), (4, 1000.0)])
def test_a_time_that_a_layer_takes_as_a_number_is_small(numbers: int, most: float) -> None:
    times = [float(one["timestep"]) for one in samples_of(denoiser_inputs(Counted(numbers)))]
    assert all(most / 5 < time < most for time in times)


def test_lists_and_plain_answers() -> None:
    model = Lists()
    for sample in samples_of(denoiser_inputs(model)):
        assert {"x[0]", "cap_feats[0]"} < sample.keys()
        assert ask(model, sample).shape == sample["x[0]"].shape


def test_several_answers_are_one() -> None:
    model = TwoAnswers()
    for sample in samples_of(denoiser_inputs(model)):
        assert ask(model, sample).shape == (1, 2 * sample["hidden_states"].numel())


def test_an_answer_that_is_not_finite_is_none() -> None:
    with pytest.raises(BadInput, match="its output contains NaN or infinity"):
        denoiser_inputs(NotFinite())


class Dropped(Small):
    """Takes a label of each sample, and a number that decides whether it counts."""

    def forward(
        self, hidden_states: torch.Tensor, c: torch.Tensor, timestep: torch.Tensor, context_mask: torch.Tensor
    ) -> torch.Tensor:
        kept = 1 - context_mask[:, None].repeat(1, 28)
        told = self.text(torch.nn.functional.one_hot(c, num_classes=28).float() * kept)
        return self.mixed(hidden_states, told[:, None]) * timestep[:, None, None, None]


def test_a_mask_may_be_one_number_a_sample_that_drops_half_of_its_label() -> None:
    for sample in samples_of(denoiser_inputs(Dropped())):
        assert sample["context_mask"].tolist() == [0.5]


class Turned(Small):
    """Takes cosines and sines, each an argument of its own, for every patch of a picture."""

    def forward(
        self,
        hidden_states: torch.Tensor,
        timestep: torch.Tensor,
        freqs_cos: torch.Tensor | None = None,
        freqs_sin: torch.Tensor | None = None,
        return_dict: bool = True,
    ) -> tuple[torch.Tensor]:
        assert freqs_cos is not None
        assert freqs_sin is not None
        rows, columns = hidden_states.shape[-2] // 2, hidden_states.shape[-1] // 2
        assert freqs_cos.shape == freqs_sin.shape == (rows * columns, 6)
        return (self.mixed(hidden_states, torch.zeros(1, 1, 6)) * freqs_cos.mean() * timestep[:, None, None, None],)


def test_cosines_and_sines_are_as_wide_as_a_head() -> None:
    inputs = denoiser_inputs(Turned(hidden_size=24, heads_num=4))
    for sample in samples_of(inputs):
        cos, sin = sample["freqs_cos"], sample["freqs_sin"]
        torch.testing.assert_close(cos**2 + sin**2, torch.ones_like(cos))


class Joined(Small):
    """Sound [1, places, 24] with a condition of the same shape next to it, and letters as numbers."""

    def __init__(self) -> None:
        super().__init__(mel_dim=24)
        self.both = torch.nn.Linear(48, 24)
        self.letters = torch.nn.Embedding(30, 24)

    def forward(self, x: torch.Tensor, cond: torch.Tensor, text: torch.LongTensor) -> torch.Tensor:
        heard: torch.Tensor = self.both(torch.cat([x, cond], dim=-1))
        return heard + torch.mean(self.letters(text), 1, keepdim=True)


def test_what_stands_next_to_the_latents_has_their_shape_and_letters_are_numbers() -> None:
    for sample in samples_of(denoiser_inputs(Joined())):
        assert sample["cond"].shape == sample["x"].shape
        assert sample["x"].shape[-1] == 24
        assert sample["text"].dtype == torch.int64


class Lengths(Small):
    """Has positions for a fixed number of places of each condition, and a bound on the row of patches."""

    def __init__(self) -> None:
        super().__init__(clip_seq_len=5, sync_seq_len=11, clip_dim=24, sync_dim=20)
        self.clip, self.sync = torch.nn.Linear(24, 6), torch.nn.Linear(20, 6)

    def forward(
        self,
        hidden_states: torch.Tensor,
        clip_f: torch.Tensor,
        sync_f: torch.Tensor,
        t_clip: torch.Tensor,
        seq_len: Any,
    ) -> torch.Tensor:
        """Mixes.

        Args:
            seq_len (`int`):
                how many places there are at most
        """
        assert clip_f.shape[1] == 5
        assert sync_f.shape[1] == 11
        assert t_clip.shape == (1,)
        assert isinstance(seq_len, int)
        told = self.clip(clip_f).mean(1, keepdim=True) + self.sync(sync_f).mean(1, keepdim=True)
        return self.mixed(hidden_states, told) * t_clip


def test_conditions_are_as_long_and_as_wide_as_the_config_says_of_them() -> None:
    for sample in samples_of(denoiser_inputs(Lengths())):
        assert sample["clip_f"].shape == (1, 5, 24)
        assert sample["sync_f"].shape == (1, 11, 20)


class Replaced(Small):
    """Encodes, unless it is given what an encoder made."""

    def forward(self, hidden_states: torch.Tensor, encoded: torch.Tensor | None = None) -> torch.Tensor:
        if encoded is None:
            encoded = self.text(hidden_states.flatten(2).mT.repeat(1, 1, 5)[..., :28]).tanh() * 2
        return self.mixed(hidden_states, encoded[..., :6])


def test_what_takes_the_place_of_a_computation_is_left_out() -> None:
    for sample in samples_of(denoiser_inputs(Replaced())):
        assert "encoded" not in sample


class Controlled(Small):
    def forward(self, hidden_states: torch.Tensor, timestep: torch.Tensor, control: Any = None) -> torch.Tensor:
        outs = []
        for _ in range(3):
            hidden_states = self.proj(hidden_states.movedim(1, -1)).movedim(-1, 1)
            outs.append(hidden_states)
        for _ in range(3):
            hidden_states = hidden_states + outs.pop() + (control.pop() if control is not None else 0)
        return hidden_states.mul(timestep[:, None, None, None])


def test_what_a_model_adds_to_its_layers_one_by_one_is_a_list_with_enough_of_it() -> None:
    model = Controlled()
    sample = samples_of(denoiser_inputs(model))[0]
    assert "control[2]" in sample
    without = {name: one for name, one in sample.items() if not name.startswith("control")}
    assert not torch.equal(ask(model, sample), ask(model, without))


class Rows(Small):
    """Takes patches in a row, and their positions, a row for each axis."""

    def forward(self, hidden_states: torch.Tensor, indices_grid: torch.Tensor) -> torch.Tensor:
        assert indices_grid.shape[:2] == (1, 3)
        places = torch.stack([indices_grid[:, axis] for axis in range(3)], dim=-1)
        return torch.mul(self.proj(hidden_states), places.sum(-1, keepdim=True))


def test_an_answer_that_only_broadcasts_is_not_chosen() -> None:
    for sample in samples_of(denoiser_inputs(Rows())):
        assert sample["hidden_states"].dim() == 3
        assert sample["indices_grid"].shape[-1] == sample["hidden_states"].shape[1]


class Framed(Small):
    """Takes films alone, where a condition that may be left out takes rows with rows."""

    def forward(self, x: torch.Tensor, t: torch.Tensor, y: torch.Tensor | None = None) -> torch.Tensor:
        _ = x.shape[2]
        joined = [torch.cat([one, other]) for one, other in zip(x, y, strict=False)] if y is not None else [*x]
        assert torch.stack(joined).dim() == 5
        made: torch.Tensor = self.proj(torch.stack(joined).movedim(1, -1)).movedim(-1, 1)
        return made * t.view(-1, 1, 1, 1, 1)


class Stacked(Small):
    """Takes sounds [1, bands, frames], a mask [1, 1, frames], and what is stacked on them, a voice as well or not."""

    def forward(self, x: torch.Tensor, mask: torch.Tensor, mu: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        if self.config["in_channels"] < 7:
            x = torch.stack([mu, x], 1)
        else:
            x = torch.stack([mu, x, x], 1)
        mask = mask.unsqueeze(1)
        assert x.dim() == 4
        x = x * mask
        return (x * t[:, None, None, None] * torch.ones_like(mask[:, :, :, ::2]).mean()).sum(1)


def test_what_is_stacked_on_latents_is_laid_out_like_them() -> None:
    found = searched_inputs(Stacked()).inputs
    frames = found["0.x"].shape[-1]
    assert found["0.x"].shape == found["0.mu"].shape
    assert [*found["0.mask"].shape] == [1, 1, frames]


@pytest.mark.parametrize(("code", "names"), [
    ("if a:\n        x = torch.stack([m, x])\n    else:\n        x = torch.stack([m, x, s])", {"m"}),
    ("if a:\n        x = torch.stack([m, x])", set()), ("x = torch.stack([m, s])", set()),
])  # fmt: skip
def test_what_a_condition_joins_in_any_case_is_joined(tmp_path: Path, code: str, names: set[str]) -> None:
    (tmp_path / "joins.py").write_text(f"def forward(a, x, m, s):\n    {code}\n    return x\n", encoding="utf-8")
    made = runpy.run_path(str(tmp_path / "joins.py"))
    assert joined(made["forward"], "x") == names


def test_all_arguments_at_once_take_a_share_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial_module, "_SHARE", 0.0)
    found = searched_inputs(Framed()).inputs
    assert (found["0.x"].dim(), found["0.x"].shape[1], "0.y" in found) == (5, 6, False)


def test_a_variant_is_refused_after_as_many_inputs_as_the_toy_took(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builder_module, "_LEAST_TRIED", 1)
    calls = Counter[torch.nn.Module]()

    def counts(model: torch.nn.Module, given: object) -> None:
        calls[model] += 1

    def refuses(model: torch.nn.Module, given: object) -> None:
        calls[model] += 1
        raise RuntimeError("no such width")

    feed, toy, variant = DenoiserBatchBuilder(), Words(), Words()
    toy.register_forward_pre_hook(counts)
    variant.register_forward_pre_hook(refuses)
    feed.batch(toy, lambda batch: batch)
    with pytest.raises(BadInput, match="no such width"):
        feed.batch(variant, lambda batch: batch)
    assert 0 < calls[variant] <= calls[toy]


def test_a_variant_is_first_called_with_what_the_toy_takes() -> None:
    calls = Counter[torch.nn.Module]()

    def counts(model: torch.nn.Module, given: object) -> None:
        calls[model] += 1

    feed, toy, variant = DenoiserBatchBuilder(), Words(), Words()
    for model in (toy, variant):
        model.register_forward_pre_hook(counts)
    first, second = (feed.batch(model, lambda batch: batch) for model in (toy, variant))
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert calls[variant] < calls[toy]


def test_a_variant_that_takes_other_inputs_than_the_toy_gets_them() -> None:
    feed = DenoiserBatchBuilder()
    feed.batch(Words(), lambda batch: batch)
    assert feed.batch(Rows(), lambda batch: batch).keys() == denoiser_inputs(Rows()).keys()


class OverLines(Small):
    """Binds what it calls with only for masks of one shape each."""

    def forward(
        self,
        hidden_states: torch.Tensor,
        timestep: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        encoder_attention_mask: torch.Tensor | None = None,
    ) -> torch.Tensor:
        if attention_mask is not None and attention_mask.ndim == 4:
            of_places = attention_mask.float()
        if encoder_attention_mask is not None and encoder_attention_mask.ndim == 3:
            of_text = encoder_attention_mask.float()
        return self.mixed(
            hidden_states + timestep[:, None, None, None],
            of_places.mean() * torch.ones(1, 1, 6),
        ) + self.mixed(
            hidden_states,
            of_text.mean() * torch.ones(1, 1, 6),
        )


def test_a_call_over_several_lines_comes_after_its_arguments() -> None:
    first = samples_of(denoiser_inputs(OverLines()))[0]
    assert first["attention_mask"].dim() == 4
    assert first["encoder_attention_mask"].dim() == 3


class ThreeJoined(Small):
    """Joins three inputs, of which no single one fits without the others."""

    def __init__(self) -> None:
        super().__init__(mel_dim=6, speaker_dim=10)
        self.inside = torch.nn.Linear(6 + 28 + 10, 6)

    def forward(self, x: torch.Tensor, mu: torch.Tensor, speaker: torch.Tensor, timestep: torch.Tensor) -> torch.Tensor:
        several = torch.cat([x, mu, speaker[:, None].expand(-1, x.shape[1], -1)], dim=-1)
        done: torch.Tensor = self.inside(several)
        return done * timestep[:, None, None]


@pytest.mark.sweep
def test_inputs_that_are_joined_are_found_by_how_near_their_widths_come() -> None:
    first = samples_of(denoiser_inputs(ThreeJoined()))[0]
    assert first["x"].shape[-1] + first["mu"].shape[-1] + first["speaker"].shape[-1] == 6 + 28 + 10


class Halving(Small):
    """Takes pictures whose sides divide by 8, as a U-Net does, and a switch."""

    def forward(self, x: torch.Tensor, timestep: torch.Tensor, drop_text: bool) -> torch.Tensor:
        assert all(side % 8 == 0 for side in x.shape[-2:])
        factor = 0 if drop_text else 1
        return self.mixed(x, factor * timestep[:, None, None].expand(-1, 1, 6))


def test_a_u_net_gets_sides_that_it_can_halve() -> None:
    first = samples_of(denoiser_inputs(Halving()))[0]
    assert [side % 8 for side in first["x"].shape[-2:]] == [0, 0]
    assert not first["drop_text"].any()


def test_sides_stay_small_where_any_will_do() -> None:
    assert max(samples_of(denoiser_inputs(Words()))[0]["hidden_states"].shape[-2:]) < 16


def test_each_pair_of_sizes_is_another() -> None:
    """Those of one call that are alike could be exchanged, and no output would change."""
    names = ("original_size", "target_size", "crop_coords")
    sizes = Sizes(0, {}, ())
    options = [next(pair(Argument(name, "", required=True, sigmas=False), sizes)) for name in names]
    assert len({str(one(sizes)) for one in options}) == len(names)


class Positions(Small):
    """Learned positions for a fixed number of tokens, two of which are not the caller's."""

    def __init__(self, **config: Any) -> None:
        super().__init__(**config)
        self.places = torch.nn.Parameter(torch.randn(1, 34, 28))
        self.more = torch.nn.Parameter(torch.randn(1, 2, 28))

    def forward(self, x: torch.Tensor, t: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
        text = torch.cat([self.more, context], dim=1) + self.places
        return self.mixed(x, self.text(text)) * t[:, None, None, None]


def test_a_length_that_only_parameters_know_is_found_by_the_error() -> None:
    assert denoiser_inputs(Positions())["0.context"].shape == (1, 32, 28)


class OfOneSide(Small):
    """Takes pictures of one size, which neither the config nor a name says."""

    def forward(self, x: torch.Tensor, t: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
        tokens = x.view(len(x), 6, 256)
        return self.mixed(tokens.view(x.shape), self.text(context)) * t[:, None, None, None]


def test_a_side_that_only_the_code_fixes_is_found_by_the_error() -> None:
    assert denoiser_inputs(OfOneSide())["0.x"].shape == (1, 6, 16, 16)


class Described(Small):
    """Takes positions and a mask of any shape: only the documentation says which."""

    def forward(self, x: torch.Tensor, t: torch.Tensor, grid: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Predict the noise.

        x: (N, C, H, W), latents
        grid: (B, 2, N): where patches are
        mask (torch.Tensor, optional):
            which patches count, of shape [B, 1, N]
        """
        weights = (grid.float().mean() + mask.float().mean()).expand(1, 1, 6)
        return self.mixed(x, weights) * t[:, None, None, None]


class Undescribed(Described):
    def forward(self, x: torch.Tensor, t: torch.Tensor, grid: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Predict the noise of x, with grid (positions, of patches) and mask (torch.Tensor, optional)."""
        return super().forward(x, t, grid, mask)


@pytest.mark.parametrize(("model", "dims"), [(Described, (3, 3)), (Undescribed, (2, 2))])
def test_a_documented_shape_says_how_many_dimensions_an_argument_has(model: Any, dims: tuple[int, int]) -> None:
    inputs = denoiser_inputs(model())
    assert (inputs["0.grid"].dim(), inputs["0.mask"].dim()) == dims
    assert (inputs["0.grid"].shape[1] == 2) == (model is Described)


class Delegates(Small):
    """Its forward hands everything on to another method, which takes one argument after the other."""

    def __init__(self, **config: Any) -> None:
        super().__init__(**config)
        self.wide = torch.nn.Linear(40, 6)

    def forward(self, x: torch.Tensor, t: torch.Tensor, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return self.predicted(x, t, one, other)

    def predicted(self, x: torch.Tensor, t: torch.Tensor, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        """Return the noise."""
        if one.shape[-1] != 40:
            raise ValueError("one")
        first = self.wide(one).mean(1, keepdim=True)
        if other.shape[-1] != 28:
            raise ValueError("other")
        return self.mixed(x, self.text(other) + first) * t[:, None, None, None]


def test_a_method_that_forward_calls_says_how_far_it_came() -> None:
    lines = {reach_of(Delegates(), one).far[:2] for one in (28, 40)}
    assert len({forward for forward, _ in lines}) == 1
    assert len({inner for _, inner in lines}) == 2
    assert denoiser_inputs(Delegates())["0.one"].shape[-1] == 40


def reach_of(model: Any, one: int) -> trial_module.Reach:
    def made() -> dict[str, torch.Tensor]:
        return {
            "x": torch.ones(1, 6, 4, 4),
            "t": torch.ones(1),
            "one": torch.ones(1, 3, one),
            "other": torch.ones(1, 3, 2),
        }

    return trial_module.how_far(model, made)


class TwoEncoders(Small):
    """Takes the texts of two encoders, of the second one for each block."""

    def __init__(self, **config: Any) -> None:
        super().__init__(num_layers=2, **config)
        self.wide = torch.nn.Linear(40, 6)

    def forward(self, x: torch.Tensor, t: torch.Tensor, texts: torch.Tensor) -> torch.Tensor:
        first = self.text(texts[0])
        inner = sum(self.wide(text) for text in [texts[-1][at] for at in range(2)])
        return self.mixed(x, first + inner) * t[:, None, None, None]


def test_the_texts_of_several_encoders_are_a_list() -> None:
    inputs = denoiser_inputs(TwoEncoders())
    assert inputs["0.texts[0]"].shape == (1, 9, 28)
    assert inputs["0.texts[1]"].shape == (2, 1, 9, 40)


class Mapped(Small):
    """Answers a mapping, in which something is missing, and takes what only another method documents."""

    def forward(self, x: torch.Tensor, t: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor | None]:
        return self.sampled(x, t, y)

    def sampled(self, x: torch.Tensor, t: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor | None]:
        """Predict the noise.

        Args:
            y: a text, of shape (batch_size, 1, length, width)
        """
        return {"sample": self.mixed(x, self.text(y).mean((0, 1))[None]) * t[:, None, None, None], "mask": None}


def test_an_answer_may_be_a_mapping_and_another_method_may_document_an_argument() -> None:
    inputs = denoiser_inputs(Mapped())
    assert inputs["0.training_target"].shape == inputs["0.x"].shape
    assert inputs["0.y"].shape == (1, 1, 9, 28)


class FourAxes(Small):
    """Takes a text with one axis more than texts have, and says so as einops does, or in a check."""

    def forward(self, x: torch.Tensor, t: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
        if self.config.get("checks"):
            assert len(text.shape) == 4
        elif text.dim() < 4:
            raise ValueError(f"Wrong shape: expected 4 dims. Received {text.dim()}-dim tensor.")
        return self.mixed(x, self.text(text[:, 0])) * t[:, None, None, None]


@pytest.mark.parametrize("checks", [False, True])
def test_the_number_of_dimensions_in_an_error_is_tried_first(checks: bool) -> None:
    found = searched_inputs(FourAxes(checks=checks))
    assert found.inputs["0.text"].dim() == 4
    assert found.tried < 40


class Expands(Small):
    """Gives latents [samples, places, 6] as many places as a text has words."""

    def forward(self, x: torch.Tensor, t: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
        words: torch.Tensor = self.text(text)
        return (x.expand(-1, text.size(1), -1) + words).mean(1, keepdim=True) * t[:, None, None]


def test_what_is_expanded_has_the_axes_and_the_size_that_the_error_says() -> None:
    found = searched_inputs(Expands())
    assert found.inputs["0.x"].shape[1] in (1, found.inputs["0.text"].shape[1])
    assert found.tried < 300


class Unset(Small):
    """Needs a mask of two axes, without which a variable has no value."""

    def forward(self, x: torch.Tensor, t: torch.Tensor, text: torch.Tensor, mask: Any = None, *, y: Any = None) -> Any:
        if mask is not None and mask.dim() == 3:
            kept = mask.float()
        text = self.text(text).mean(1) if y is None else y
        return self.mixed(x, kept.mean() + text[:, None]) * t[:, None, None, None]


@pytest.mark.sweep
def test_what_gives_a_missing_variable_its_value_is_tried_first() -> None:
    assert searched_inputs(Unset()).inputs["0.mask"].dim() == 3


class Asserts(Small):
    """As many words as it says, which no name tells."""

    def forward(self, x: torch.Tensor, t: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
        assert context.shape[1] == self.config["reach"]
        return self.mixed(x, self.text(context)) * t[:, None, None, None]


def test_a_length_that_is_asserted_is_found() -> None:
    assert denoiser_inputs(Asserts(reach=31))["0.context"].shape == (1, 31, 28)


def test_a_search_ends_in_time_with_the_error_of_the_furthest_input() -> None:
    with pytest.raises(BadInput, match=r"accepts no inputs.*AssertionError"):
        searched_inputs(Asserts(reach=31), seconds=0.0)


def test_a_model_that_was_searched_to_the_end_is_refused_at_once() -> None:
    feed, model, calls = DenoiserBatchBuilder(), NotFinite(), Counter[str]()
    model.register_forward_pre_hook(lambda one, given: calls.update(["called"]))
    refused = feed.refusal(model, math.inf)
    tried = calls["called"]
    assert tried > 0
    with pytest.raises(BadInput) as raised:
        feed.batch(model, lambda batch: batch)
    assert raised.value is refused
    assert calls["called"] == tried


def test_a_size_that_no_input_can_have_is_an_error() -> None:
    model = Positions()
    model.more = torch.nn.Parameter(torch.randn(1, 40, 28))
    with pytest.raises(BadInput, match="accepts no inputs") as raised:
        denoiser_inputs(model)
    assert re.search(r"the furthest of \d+ inputs: x \[1, 6, ", raised.value.hint)


class Unmade(Small):
    """Has a part under one switch, and uses it under another."""

    absent: Any

    def forward(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(self.absent(x))


def test_what_the_constructor_did_not_make_is_not_blamed_on_inputs() -> None:
    with pytest.raises(BadInput, match="reads absent, which the constructor did not set") as raised:
        denoiser_inputs(Unmade())
    assert "argument of the constructor" in raised.value.hint


class Unpacks(Small):
    """Says in code how many axes its inputs have, which their names do not."""

    def forward(self, x: torch.Tensor, t: torch.Tensor, heard: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
        heard = heard.to(x.dtype)
        _, _, length, _ = heard.shape
        assert heard.shape[2] == length
        return self.joined(x, self.text(heard[:, 0]), seen) * t[:, None, None, None]

    def joined(self, x: torch.Tensor, told: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        rows = condition.permute(0, 2, 1)
        return self.mixed(x, told + self.text(rows.transpose(1, 2)).mean(1, keepdim=True))


@pytest.mark.parametrize(
    ("code", "dims"),
    [
        ("b, c, h, w = x.shape", 4),
        ("b, c, device = *x.shape, x.device", 2),
        ("y = rearrange(x, 'b (t c) (h w) -> b t c h w', t=2)", 3),
        ("y = self.inner(1, what=x)", 5),
        ("x = x.to(float)\n    b, n = x.size()", 2),
        ("x = x[None]\n    b, n = x.shape", None),
        ("if x.dim() == 2:\n        b, n = x.shape", None),
        ("b, *rest = x.shape", None),
        ("y = rearrange(x, 'b ... c -> b c ...')", None),
    ],
)
def test_what_code_unpacks_says_how_many_dimensions_an_argument_has(
    code: str, dims: int | None, tmp_path: Path
) -> None:
    file = tmp_path / "unpacking_forward.py"
    inner = "def inner(self, a, what):\n        b, c, f, h, w = what.shape"
    file.write_text(f"class Some:\n    {inner}\n\n\ndef forward(self, x):\n    {code}\n    return x\n")
    read: dict[str, Any] = {}
    exec(compile(file.read_text(), str(file), "exec"), read)
    assert dimensions(read["Some"](), read["forward"], "x") == dims


@pytest.mark.parametrize(("code", "dims"), [
    ("x = x[:, None, :] + t", 2),
    ("x = self.proj(x)\n    y = [t, x[:, None, None, :]]", 2),
    ("y = x[:, :, None, :]", 3),
    ("y = x[:, None]", None),
    ("y = x[..., None]", None),
    ("x = x.mean(1)\n    y = x[:, None, :]", None),
])  # fmt: skip
def test_an_axis_that_is_added_says_how_many_dimensions_an_argument_seems_to_have(
    code: str, dims: int | None, tmp_path: Path
) -> None:
    file = tmp_path / "adding_forward.py"
    file.write_text(f"def forward(self, x, t):\n    {code}\n    return y\n")
    read: dict[str, Any] = {}
    exec(compile(file.read_text(), str(file), "exec"), read)
    assert likely_dimensions(read["forward"], "x") == dims


def test_unpacked_dimensions_are_tried_first() -> None:
    found = searched_inputs(Unpacks())
    assert found.inputs["0.heard"].dim() == 4
    assert found.inputs["0.seen"].dim() == 3
    assert found.tried < 60


class FramesAsRows(Small):
    """Takes each frame as a row of the batch, with a time, a text and a picture of its own."""

    def __init__(self, **config: Any) -> None:
        super().__init__(dense_dim=10, **config)
        self.dense = torch.nn.Linear(10, 6)

    def forward(
        self, x: torch.Tensor, t: torch.Tensor, y: torch.Tensor, dense_y: torch.Tensor, num_frames: int
    ) -> torch.Tensor:
        assert len(x) == len(t) == len(y) == len(dense_y) == num_frames > 1
        told = self.text(y) + self.dense(dense_y.movedim(1, -1)).mean((1, 2))[:, None]
        return self.mixed(x, told) * t[:, None, None, None]


@pytest.mark.sweep
def test_conditions_have_a_row_for_each_frame_where_latents_do() -> None:
    inputs = denoiser_inputs(FramesAsRows())
    assert {len(inputs[f"0.{name}"]) for name in ("x", "t", "y", "dense_y")} == {3}
    assert not torch.equal(inputs["0.y"][0], inputs["0.y"][1])


class Normalises(Small):
    """Writes into its own weights whenever it runs, as models of one magnitude do."""

    def forward(self, hidden_states: torch.Tensor, encoder_hidden_states: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            self.proj.weight.copy_(self.proj.weight / self.proj.weight.norm())
        return self.mixed(hidden_states, self.text(encoder_hidden_states))


@pytest.mark.parametrize(("model", "samples"), [(Normalises, 1), (TwoAnswers, 2)])
def test_gradients_go_through_one_call_of_a_model_that_changes_its_weights(model: Any, samples: int) -> None:
    made = model()
    found = samples_of(DenoiserBatchBuilder().batch(made, lambda batch: batch))
    assert len(found) == samples
    torch.autograd.backward(torch.stack([ask(made, one).square().mean() for one in found]).sum())
    assert made.proj.weight.grad is not None


class Cube(Small):
    """Takes volumes of one side, which a check names as a whole shape."""

    def forward(self, x: torch.Tensor, t: torch.Tensor, cond: torch.Tensor) -> torch.Tensor:
        assert [*x.shape] == [x.shape[0], 6, *[self.config["side"]] * 3]
        return self.mixed(x.flatten(3), self.text(cond)).view(x.shape) * t[:, None, None, None, None]


@pytest.mark.sweep
def test_a_shape_that_a_check_requires_is_taken_whole() -> None:
    inputs = denoiser_inputs(Cube(side=4))
    assert inputs["0.x"].shape == inputs["1.x"].shape == (1, 6, 4, 4, 4)
    with pytest.raises(BadInput, match="accepts no inputs"):
        denoiser_inputs(Cube(side=4000))


class Squeezes(Small):
    """Loses the batch's axis where a sample is the only one."""

    def forward(self, x: torch.Tensor, t: torch.Tensor, y: torch.Tensor, size: torch.Tensor) -> torch.Tensor:
        """Predict the noise.

        size: (B, 1, 2), rows and columns
        """
        sides = size.squeeze()
        return self.mixed(x, self.text(y) + (sides[:, 0] * sides[:, 1])[:, None, None]) * t[:, None, None, None]


def test_a_batch_of_one_that_code_squeezes_away_has_two() -> None:
    inputs = denoiser_inputs(Squeezes())
    assert {len(inputs[f"0.{name}"]) for name in ("x", "t", "y", "size")} == {2}
    assert inputs["0.size"].tolist() == [[[4, 2]], [[2, 4]]]  # turned, as all that stands in a second row


def test_a_number_is_no_tensor_by_its_name() -> None:
    def role(name: str, annotation: str) -> Any:
        return role_of(Argument(name, annotation, required=False, sigmas=False))

    assert role("num_cond_latents", "int") is None
    assert role("attention_mask", "bool") is None
    assert role("cond_latents", "torch.Tensor") is not None
    assert role("num_frames", "int") is not None


class StepTable(torch.nn.Module):
    """A U-Net of sounds [B, C, T] with a table of steps, which may have a condition."""

    def __init__(self) -> None:
        super().__init__()
        self.config = {"chin": 3, "num_steps": 1000}
        self.encoder = torch.nn.Conv1d(3, 24, 4, 2, 1)
        self.embedding = torch.nn.Embedding(1000, 24)
        self.decoder = torch.nn.ConvTranspose1d(24, 3, 4, 2, 1)

    def forward(self, x: torch.Tensor, step: int | torch.Tensor, condition: torch.Tensor | None = None) -> Any:
        given = step if type(step) is torch.Tensor else torch.tensor([step]).expand(len(x))
        encoded = self.encoder(x)
        return self.decoder(encoded + self.embedding(given).view(len(x), -1, 1).expand_as(encoded))


def test_a_step_is_one_whole_number_of_a_sample() -> None:
    inputs = denoiser_inputs(StepTable())
    assert inputs["0.x"].shape[:2] == (1, 3)
    assert inputs["0.step"].tolist() == [250]
    assert "0.condition" not in inputs


@pytest.mark.parametrize(
    ("name", "annotation", "required", "expected"),
    [
        ("step", "", True, "step"),
        ("when", "typing.Union[int, torch.Tensor]", True, "step"),
        ("when", "float | torch.Tensor", True, "step"),
        ("step", "int", False, None),
        ("when", "typing.Union[int, torch.Tensor, NoneType]", False, "embedding"),
        ("states", "dict[int, torch.Tensor]", True, "embedding"),
        ("step_embedding", "torch.Tensor", True, "embedding"),
    ],
)
def test_a_number_or_a_tensor_is_a_time(name: str, annotation: str, required: bool, expected: str | None) -> None:
    role = role_of(Argument(name, annotation, required=required, sigmas=False))
    assert (role.__name__ if role is not None else None) == expected


def test_an_operation_is_traced_to_the_inputs_that_it_computes_with() -> None:
    one, other = torch.ones(2, 3), torch.ones(3, 4)
    noted = Provenance({"one": one, "other": other})
    mixed = torch.ones(1)

    def computes(by: torch.Tensor) -> None:
        with suppress(RuntimeError), noted:
            nonlocal mixed
            mixed = torch.cat([(one.view(3, 2) + 1).T, torch.ones(2, 3)])
            torch.matmul(mixed, by)

    computes(torch.ones(4, 2))
    assert noted.names == {"one"}
    computes(torch.ones(4, 4) @ other.T)
    assert noted.names == {"one"}  # what is computed outside is not known
    with suppress(RuntimeError), noted:
        torch.matmul(mixed, torch.nn.functional.pad(other, (0, 1, 0, 1)))
    assert noted.names == {"one", "other"}


class Imports(Small):
    """Imports a kernel when it runs."""

    def forward(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        import no_such_kernels  # type: ignore[import-not-found]

        kernels: torch.Tensor = no_such_kernels.run(x, t)
        return kernels


def test_a_package_that_is_missing_is_no_matter_of_inputs() -> None:
    with pytest.raises(BadInput, match=r"^Imports\.forward imports no_such_kernels, which is not installed"):
        denoiser_inputs(Imports())


class Ranked(Small):
    """Asks for what only a launcher sets, after a condition of a width that no config says."""

    def forward(self, x: torch.Tensor, t: torch.Tensor, context: torch.Tensor, alone: Any = None) -> torch.Tensor:
        text = self.text(context)
        if self.config["kind"] == "group":
            torch.distributed.init_process_group("gloo")
        elif self.config["kind"] == "variable":
            os.environ["NO_SUCH_RANK"]
        elif alone is None:
            torch.distributed.get_rank(torch.distributed.group.WORLD)
        return self.mixed(x, text) * t[:, None, None, None]


@pytest.mark.parametrize(("kind", "said"), [
    ("group", "ValueError: .*environment variable RANK expected"), ("variable", "KeyError: 'NO_SUCH_RANK'"),
])  # fmt: skip
def test_what_the_surroundings_lack_is_no_matter_of_inputs(
    kind: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RANK", raising=False)
    calls: list[object] = []
    model = Ranked(kind=kind)
    model.register_forward_pre_hook(lambda one, given: calls.append(given))
    with pytest.raises(BadInput, match=rf"^Ranked\.forward runs with none of \d+ inputs: {said}") as raised:
        denoiser_inputs(model)
    assert "_inputs" not in raised.value.hint
    assert len(calls) < 100


def test_inputs_that_need_no_surroundings_are_found() -> None:
    assert "0.alone" in denoiser_inputs(Ranked(kind="either"))


class Halved(torch.nn.Module):
    """A model of sounds [1, 3, length] that it joins with their condition, and halves once."""

    def __init__(self) -> None:
        super().__init__()
        self.config = {"in_channels": 6, "width": 8}
        self.come = torch.nn.Conv1d(6, 8, 1)
        self.go = torch.nn.Conv1d(8, 3, 1)

    def forward(self, x: torch.Tensor, mask: torch.Tensor, mu: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        """Predict.

        Args:
            x (torch.Tensor): shape (batch_size, in_channels, time)
            mask (torch.Tensor): shape (batch_size, 1, time)
        """
        joined = torch.cat([x, mu], dim=1)
        come = self.come(joined * mask)
        up = torch.nn.functional.max_pool1d(come, 2).repeat_interleave(2, dim=-1)
        sound: torch.Tensor = self.go(come + up)
        return sound * t


def test_a_sound_that_is_joined_with_a_condition_has_a_length_that_can_be_halved() -> None:
    found = searched_inputs(Halved())
    assert found.tried < 400
    for sample in samples_of(found.inputs):
        assert sample["x"].shape == sample["mu"].shape
        assert sample["x"].shape[1] == 3
        assert sample["mask"].shape[1] == 1
        assert sample["x"].shape[2] % 2 == 0


@pytest.mark.parametrize(("code", "names"), [
    ("x = torch.cat([x, y], dim=1)", {"y"}),
    ("x, _ = pack([x, y, z], 'b * t')", {"y", "z"}),
    ("x = torch.cat([y, z])", set()),
    ("x = x + y", set()),
])  # fmt: skip
def test_what_is_joined_with_latents_is_read_from_the_code(tmp_path: Path, code: str, names: set[str]) -> None:
    file = tmp_path / "joins.py"
    file.write_text(
        f"def forward(self, x, y, z=None):\n    {code}\n    if z is not None:\n        x = torch.cat([x, z])\n"
    )
    scope: dict[str, Any] = {}
    exec(compile(file.read_text(), str(file), "exec"), scope)
    assert joined(scope["forward"], "x") == names


class Frames(torch.nn.Module):
    """A model of films whose frames are the batch, with a flag for each frame."""

    def __init__(self) -> None:
        super().__init__()
        self.config = {"in_channels": 6, "num_frames_of_all": 0}
        self.come = torch.nn.Conv2d(6, 6, 1)

    def forward(
        self, x: torch.Tensor, timesteps: torch.Tensor, num_video_frames: Optional[int] = None,  # noqa: UP045
        image_only_indicator: torch.Tensor | None = None,
    ) -> torch.Tensor:  # fmt: skip
        film = self.come(x * timesteps.view(-1, 1, 1, 1)).reshape(-1, num_video_frames, *x.shape[1:])
        mixed: torch.Tensor = torch.where(image_only_indicator.bool()[:, :, None, None, None], film, film.mean(1, True))  # type: ignore[union-attr]
        return mixed.flatten(0, 1)


def test_frames_as_a_batch_have_their_number_and_one_row_of_flags() -> None:
    for sample, count in zip(samples_of(searched_inputs(Frames()).inputs), (3, 2), strict=True):
        assert sample["x"].shape[:2] == (count, 6)
        assert int(sample["num_video_frames#"]) == count
        assert sample["image_only_indicator"].shape == (1, count)
        assert len(sample["timesteps"]) in (1, count)


class Encoders(Small):
    """Takes the text and the mask of each of its encoders, of which there is one."""

    def forward(
        self, x: torch.Tensor, sigma: torch.Tensor, y_feat: list[torch.Tensor], y_mask: list[torch.Tensor]
    ) -> torch.Tensor:
        (_, words, _), (_, places) = y_feat[0].shape, y_mask[0].shape
        assert words == places
        return self.mixed(x, self.text(y_feat[0]) * y_mask[0][..., None]) * sigma


def test_a_list_holds_a_text_and_a_list_its_mask() -> None:
    sample = samples_of(searched_inputs(Encoders()).inputs)[0]
    assert sample["y_feat[0]"].shape == (1, 9, 28)
    assert sample["y_mask[0]"].shape == (1, 9)


class Checked(torch.nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        if self.kind not in ["a", "b"]:
            raise NotImplementedError
        if self.kind == "b":
            raise NotImplementedError("of b")
        return hidden_states


@pytest.mark.parametrize(("kind", "said"), [
    ("c", "NotImplementedError: requires self.kind in ['a', 'b']"), ("b", "NotImplementedError: of b"), ("a", "")
])  # fmt: skip
def test_a_check_without_a_text_has_its_condition(kind: str, said: str) -> None:
    reach = trial_module.how_far(Checked(kind), lambda: {"hidden_states": torch.ones(1, 4, 2, 2)})
    assert reach.error.startswith(said)
    assert "requires" not in reach.error or kind == "c"


class OneVector(torch.nn.Module):
    """Latents of one place, and a condition of one vector; axes of one place are squeezed away."""

    def __init__(self, axes: int) -> None:
        super().__init__()
        self.config, self.axes = {"in_channels": 6, "context_dim": 28}, axes
        self.proj, self.text = torch.nn.Linear(6, 6), torch.nn.Linear(28, 6)

    def forward(self, x: Any, timesteps: Any = None, context: Any = None) -> torch.Tensor:
        found: torch.Tensor = self.proj(x.squeeze()) + self.text(context.squeeze()) + timesteps[:, None]
        return found[(..., *[None] * self.axes)]


@pytest.mark.parametrize(("axes", "shape"), [(0, [1, 6]), (2, [1, 6, 1, 1])])
def test_latents_of_one_place_have_as_many_axes_as_the_output(axes: int, shape: list[int]) -> None:
    found = denoiser_inputs(OneVector(axes))
    assert [[*found[f"0.{name}"].shape] for name in ("x", TARGET)] == [shape, shape]


class Letters(torch.nn.Module):
    """Says the next word of each; or what stands at each place of a picture."""

    def __init__(self, words: bool) -> None:
        super().__init__()
        self.config, self.words = {"vocab_size": 30, "in_channels": 6}, words
        self.table, self.proj = torch.nn.Embedding(30, 6), torch.nn.Linear(6, 30)

    def forward(self, indices: Any, sigma: Any) -> torch.Tensor:
        rows = self.table(indices) if self.words else indices.flatten(2).mT
        found: torch.Tensor = self.proj(rows) * sigma[:, None, None]
        return found


def test_a_model_of_words_gets_numbers_of_words() -> None:
    found = denoiser_inputs(Letters(words=True))
    assert not found["0.indices"].is_floating_point()
    assert found[f"0.{TARGET}"].shape == (*found["0.indices"].shape, 30)
    assert denoiser_inputs(Letters(words=False))["0.indices"].shape[:2] == (1, 6)


class TurnedByAxis(Small):
    """Takes a list with a table of complex numbers for each axis of rope."""

    def forward(
        self, hidden_states: torch.Tensor, timestep: torch.Tensor, freqs_cis: list[torch.Tensor]
    ) -> tuple[torch.Tensor]:
        assert [one.shape[-1] for one in freqs_cis] == [1, 2]
        turned = freqs_cis[0][0].abs().sum()
        return (self.mixed(hidden_states, torch.zeros(1, 1, 6)) * turned * timestep[:, None, None, None],)


def test_positions_may_be_a_table_for_each_axis() -> None:
    for sample in samples_of(denoiser_inputs(TurnedByAxis(hidden_size=24, heads_num=4, axes_dim_rope=(2, 4)))):
        assert sample["freqs_cis[1]"].is_complex()
        assert sample["freqs_cis[1]"].shape == (40, 2)


class Plain(Small):
    """Takes pictures of any size."""

    def forward(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        return self.mixed(x, torch.zeros(1, 1, 6)) * t[:, None, None, None]


@pytest.mark.parametrize(("stated", "shape"), [
    ({}, [1, 6, 8, 4]), ({"_inputs": {"x": {"shape": [1, 6, 5, 7]}}}, [1, 6, 5, 7]),
])  # fmt: skip
def test_latents_are_what_a_person_states(stated: dict[str, Any], shape: list[int]) -> None:
    assert [*denoiser_inputs(Plain(**stated))["0.x"].shape] == shape


class Heard(Small):
    """Takes a spectrum with one channel, and a condition [1, width, places] as its documentation says."""

    def __init__(self) -> None:
        super().__init__(in_channels=None)
        self.spectrum = torch.nn.Conv1d(8, 20, 1)
        self.condition = torch.nn.Conv1d(12, 20, 1)
        self.back = torch.nn.Conv1d(20, 8, 1)

    def forward(self, spec: torch.Tensor, timestep: torch.Tensor, cond: torch.Tensor) -> torch.Tensor:
        """Return what is heard.

        :param spec: [B, 1, M, T]
        :param timestep: [B]
        :param cond: [B, M, T]
        """
        heard: torch.Tensor = self.spectrum(spec[:, 0]) * timestep[:, None, None] + self.condition(cond)
        back: torch.Tensor = self.back(heard)[:, None]
        return back


def test_a_condition_of_sounds_has_its_width_first() -> None:
    for sample in samples_of(denoiser_inputs(Heard())):
        _, channels, bins, places = sample["spec"].shape
        assert (channels, bins) == (1, 8)
        assert sample["cond"].shape == (1, 12, places)


class WithDefaults(Small):
    """Has a default for what it does not run without, and for what it does."""

    def forward(
        self,
        hidden_states: torch.Tensor,
        timestep: torch.Tensor | None = None,
        context: torch.Tensor | None = None,
        return_dict: bool = True,
    ) -> tuple[torch.Tensor]:
        assert timestep is not None
        seen = self.text(context) if context is not None else torch.zeros(1, 1, 6)
        return (self.mixed(hidden_states, seen) * timestep[:, None, None, None],)


def test_an_argument_with_a_default_may_be_needed() -> None:
    model = WithDefaults()
    inputs = denoiser_inputs(model)
    assert "0.context" in inputs
    assert needed_arguments(model, inputs) == ["timestep"]


@pytest.mark.parametrize(
    ("config", "rows"),
    [
        ({"block_channels": [64, 128]}, 32),
        ({"resolution_channels": "64,128,128,128,128"}, 32),
        ({"channel_mult": [1, 1, 2, 2, 4, 4]}, 64),
        ({"dims": [8] * 40}, 64),
        ({}, 32),
    ],
)
def test_latents_can_be_halved_between_all_levels(config: dict[str, Any], rows: int) -> None:
    assert Sizes(0, config, (), coarse=True, steps=16).latents[1] == rows


@pytest.mark.parametrize(("steps", "columns"), [(8, 16), (16, 16), (256, 16)])
def test_latents_can_be_halved_after_the_last_level(steps: int, columns: int) -> None:
    assert Sizes(0, {"dim_mults": [8] * 4}, (), coarse=True, steps=steps).latents[2] == columns


class Sided(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.omni_kit_arguments = {"in_channels": 6}
        self.proj = torch.nn.Linear(6, 6)

    def forward(self, x: torch.Tensor, timestep: torch.Tensor, fps: Any = None, height: Any = None) -> torch.Tensor:
        scale = height[0].item() / 8 + fps.unsqueeze(1)
        return torch.movedim(self.proj(x.movedim(1, -1)) * scale.view(-1, 1, 1, 1), -1, 1) * timestep.view(-1, 1, 1, 1)


def test_sides_and_rates_may_be_one_a_sample() -> None:
    inputs = denoiser_inputs(Sided())
    assert [list(inputs[f"0.{name}"].shape) for name in ("fps", "height")] == [[1], [1]]


def test_a_u_net_of_many_levels_gets_sizes_that_it_can_halve_first() -> None:
    latents = Argument("x", "", True, False)
    few, many = ({"in_channels": 6, "block_channels": [8] * levels} for levels in (3, 4))
    assert not layouts(latents, Sizes(0, few, (6,)), ["x"])[0].coarse
    assert layouts(latents, Sizes(0, many, (6,)), ["x"])[0].coarse


def test_strides_say_how_often_sizes_are_halved() -> None:
    pools = (torch.nn.MaxPool2d(2), torch.nn.Conv2d(6, 6, 3, stride=2), torch.nn.AvgPool2d(4))
    assert steps_of(torch.nn.Sequential(*pools, torch.nn.ConvTranspose2d(6, 6, 4, stride=4))) == 16


class Fixed(Small):
    """Takes pictures of one size, which its constructor has as two numbers, and says so in one of two ways."""

    def __init__(self, rows: str = "input_h", columns: str = "input_w") -> None:
        super().__init__(**{rows: 6, columns: 10})
        self.names = rows, columns

    def forward(self, x: torch.Tensor, free: bool = False) -> torch.Tensor:
        _, _, rows, columns = x.shape
        assert free or (rows, columns) == tuple(self.config[name] for name in self.names), "other sizes"
        return self.mixed(x, torch.zeros(1, 1, 6))


@pytest.mark.parametrize("names", [("input_h", "input_w"), ("height", "width")])
def test_pictures_have_the_rows_and_columns_that_the_config_says_apart(names: tuple[str, str]) -> None:
    assert denoiser_inputs(Fixed(*names))["0.x"].shape == (1, 6, 6, 10)


@pytest.mark.parametrize(("check", "said"), [
    ("assert free or (rows == 4 and columns == 5), 'no'", "asserted 5 == 4"),
    ("if not free and rows != 4:\n    raise ValueError('no')", "asserted 5 == 4"),
    ("if free or rows != 4:\n    raise ValueError('no')", "asserted 5 == 4"),
    ("def halved(size, parts):\n    return (size % parts) == 0\nassert free or halved(rows, 2)", "asserted 5 % 2 == 0"),
    ("def halved(size, parts):\n    size += 0\n    return size % parts == 0\nassert halved(rows, 2)", ""),
])  # fmt: skip
def test_each_comparison_of_a_failed_condition_is_read(check: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "checks.py"
    file.write_text(check)
    with pytest.raises((AssertionError, ValueError)) as raised:
        exec(compile(check, str(file), "exec"), {"free": False, "rows": 5, "columns": 5})
    assert asserted(raised.value) == said


class Numbered(Small):
    """Embeds actions, of which there are few, and as many as its width has parts."""

    def __init__(self) -> None:
        super().__init__(parts=4)
        self.actions = torch.nn.Embedding(3, 7)
        self.told = torch.nn.Linear(28, 6)

    def forward(self, x: torch.Tensor, act: torch.Tensor) -> torch.Tensor:
        told = self.told(self.actions(act).flatten(1) + torch.zeros(1, 28))
        return self.mixed(x, told[:, None])


def test_what_a_table_is_read_with_is_whole_numbers_in_its_range() -> None:
    for sample in samples_of(denoiser_inputs(Numbered())):
        assert sample["act"].shape == (1, 4)
        assert not sample["act"].is_floating_point()


class Alone(torch.nn.Module):
    """Takes one film without a batch, its channels last, and one text, as a part of it unpacks them."""

    class Patches(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            frames, rows, columns, channels = x.shape
            return x.reshape(frames * rows * columns, channels)

    def __init__(self) -> None:
        super().__init__()
        self.config = {"in_channels": 6, "patch_size": (1, 2, 2), "text_dim": 28}
        self.patches, self.proj, self.text = self.Patches(), torch.nn.Linear(6, 6), torch.nn.Linear(28, 6)

    def forward(self, x: torch.Tensor, text_embed: torch.Tensor) -> torch.Tensor:
        told = self.text(text_embed)
        assert told.dim() == 2
        made: torch.Tensor = self.proj(self.patches(x)) + told.mean(0)
        return made.reshape(x.shape)


def test_a_film_may_have_no_batch() -> None:
    found = denoiser_inputs(Alone())
    assert found["0.x"].shape == (3, 8, 4, 6)
    assert found["0.text_embed"].shape == (9, 28)
    assert dimensions(Alone(), Alone.forward, "x") == 4


class Remembering(torch.nn.Module):
    """Latents, earlier ones that go through the same layer, and an action whose axes are added to those of a time."""

    def __init__(self, joined: str) -> None:
        super().__init__()
        self.config, self.joined = {"in_channels": 6, "context_size": 3}, joined
        self.come, self.act = torch.nn.Conv2d(6, 6, 1), torch.nn.Linear(28, 6)

    def forward(self, x: Any, timesteps: Any, action: Any, past: Any) -> torch.Tensor:
        if self.joined == "flatten":
            before = self.come(past.flatten(0, 1))
        else:
            before = self.come(rearrange(past, "b t c h w -> (b t) c h w"))
        before = before.unflatten(0, (len(past), 3)).mean(1)
        moved = self.act(action)[:, :, None, None] + timesteps.view(-1, 1, 1, 1)
        found: torch.Tensor = self.come(x) + before + moved
        return found


@pytest.mark.parametrize("joined", ["flatten", "rearrange"])
def test_what_goes_through_the_layer_of_latents_as_one_batch_is_several_of_them(joined: str) -> None:
    sample = samples_of(searched_inputs(Remembering(joined)).inputs)[0]
    assert sample["past"].shape == (1, 3, *sample["x"].shape[1:])
    assert sample["action"].shape == (1, 28)


class Outer(torch.nn.Module):
    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return hidden_states[:, None] + hidden_states[None]


def test_what_unlike_shapes_make_together_is_not_made_where_it_is_large() -> None:
    reach = trial_module.how_far(Outer(), lambda: {"hidden_states": torch.zeros(1).expand(2**15)})
    assert reach.error == "ValueError: [32768, 1] and [1, 32768] together are too large"


class Nameless(Small):
    """Its forward passes everything on."""

    def forward(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        return self.mixed(*args, **kwargs)


def test_a_forward_that_names_no_inputs_is_said_to_be_one() -> None:
    with pytest.raises(BadInput, match=r"Nameless\.forward names no inputs"):
        denoiser_inputs(Nameless())


class _Remembering(Small):
    """Keeps what it computed of the first condition for all later calls."""

    def __init__(self) -> None:
        super().__init__()
        self.cache: torch.Tensor | None = None
        self.seen: list[int] = []

    def forward(self, hidden_states: torch.Tensor, condition: torch.Tensor | None = None) -> torch.Tensor:
        """[B, 6, H, W]."""
        if self.cache is None:
            assert condition is not None
            self.cache = condition
        self.seen.append(len(hidden_states))
        return self.mixed(hidden_states, self.cache)


def test_what_a_model_keeps_of_one_call_does_not_answer_the_next() -> None:
    model = _Remembering()
    inputs = denoiser_inputs(model)
    assert any(name.endswith("condition") for name in inputs)
    assert (model.cache, model.seen) == (None, [])


def test_a_model_keeps_the_attributes_that_it_had() -> None:
    model = _Remembering()
    model.cache, model.seen = torch.ones(1, 3, 6), [5]
    noise = torch.zeros(2, 6, 4, 4)
    assert torch.equal(ask(model, {"hidden_states": noise}), ask(model, {"hidden_states": noise}))
    assert torch.equal(model.cache, torch.ones(1, 3, 6))
    assert model.seen == [5]


class _Options(torch.nn.Module):
    """A mask of the wrong form comes further than one of the right form without options."""

    def forward(self, hidden_states: torch.Tensor, mask: torch.Tensor, options: Any) -> torch.Tensor:
        """[B, 6, H, W]."""
        if mask.dim() != 2:
            return hidden_states + (mask * 2).mean() + torch.zeros(7, 5)
        return hidden_states + torch.mean(mask, **options)


class _WithOptions(Small):
    """Takes a mapping that it passes on, without one by default."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.scale = _Options(), torch.nn.Parameter(torch.ones(1))

    def forward(
        self, hidden_states: torch.Tensor, encoder_mask: torch.Tensor, cross_attention_kwargs: Any = None
    ) -> torch.Tensor:
        """[B, 6, H, W]."""
        moved: torch.Tensor = self.layer(hidden_states * self.scale, encoder_mask.float(), cross_attention_kwargs)
        return moved


def test_what_is_absent_where_code_needs_a_value_is_tried_first() -> None:
    inputs = denoiser_inputs(_WithOptions())
    assert "0.cross_attention_kwargs{}" in inputs
    assert inputs["0.encoder_mask"].dim() == 2
    assert inputs["0.hidden_states"].numel() > 6


class _Waves(torch.nn.Module):
    """Sounds [B, length], to which the model itself gives a channel."""

    def __init__(self) -> None:
        super().__init__()
        self.config = dict[str, Any]()
        self.come, self.go = torch.nn.Conv1d(1, 12, 3, padding=1), torch.nn.Conv1d(12, 1, 1)

    def forward(self, audio: torch.Tensor, timestep: torch.Tensor) -> torch.Tensor:
        """[B, length]."""
        answer: torch.Tensor = self.go(self.come(audio.unsqueeze(1))).squeeze(1)
        return answer * timestep[:, None]


def test_a_sound_of_any_length_is_more_than_one_number() -> None:
    rows, length = denoiser_inputs(_Waves())["0.audio"].shape
    assert rows == 1
    assert length > 3


class Vocoder(torch.nn.Module):
    """Takes waves of as many numbers as frames of a spectrogram stand for, and the number of a band."""

    def __init__(self, hop: int) -> None:
        super().__init__()
        self.config, self.hop = {"bands": 8, "mels": 20}, hop
        self.mels, self.bands = torch.nn.Conv1d(20, 1, 1), torch.nn.Embedding(8, 1)
        self.first = torch.nn.Conv1d(1, 1, 1)

    def forward(
        self, audio: torch.Tensor, spectrogram: torch.Tensor, noise_scale: torch.Tensor, band_id: torch.Tensor
    ) -> torch.Tensor:
        frames: torch.Tensor = self.mels(spectrogram).repeat_interleave(self.hop, -1)
        assert audio.shape[-1] == frames.shape[-1]
        wave: torch.Tensor = self.first(audio[:, None])[:, 0]
        band: torch.Tensor = self.bands(band_id)
        return wave + frames[:, 0] * noise_scale[:, None] + band


@pytest.mark.parametrize("hop", [256, 300])
def test_a_wave_is_as_long_as_its_frames(hop: int) -> None:
    sample, other = samples_of(searched_inputs(Vocoder(hop)).inputs)
    assert sample["audio"].shape == (1, sample["spectrogram"].shape[-1] * hop)
    assert other["audio"].shape != sample["audio"].shape
    assert not sample["band_id"].is_floating_point()


class Noised(torch.nn.Module):
    """Takes a condition with a usual name next to latents that are called noisy."""

    def __init__(self) -> None:
        super().__init__()
        self.config = {"in_channels": 14, "out_channels": 6}
        self.proj = torch.nn.Conv1d(20, 6, 1)

    def forward(self, z_t: torch.Tensor, t: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        joined = torch.cat([z_t, x], 1)
        moved: torch.Tensor = self.proj(joined) * t[:, None, None]
        return moved


def test_what_is_called_noisy_is_the_latents() -> None:
    assert next(iter(searched_inputs(Noised()).chosen)) == "z_t"


class _Precise(Small):
    """Takes the precision that it computes in, which has a default."""

    def forward(self, hidden_states: torch.Tensor, precision=torch.float32, encoder_hidden_states=None):  # type: ignore[no-untyped-def]
        """[B, 6, H, W]."""
        text = 0 if encoder_hidden_states is None else self.text(encoder_hidden_states)
        return self.mixed(hidden_states.to(precision), text + torch.zeros(1, 2, 6))


def test_what_is_a_precision_by_default_is_left_out() -> None:
    inputs = denoiser_inputs(_Precise())
    assert "0.encoder_hidden_states" in inputs
    assert "0.precision" not in inputs


class _Dropping(Small):
    """Drops conditions in training, where one of any shape is broadcast."""

    def forward(self, hidden_states: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """[B, 6, H, W]."""
        if self.training:
            y = torch.where(torch.rand(1, 1, 1) < 0.5, torch.zeros(1, 1, 28), y)
        return self.mixed(hidden_states, self.text(y))


class _Training(Small):
    """Runs in training alone."""

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """[B, 6, H, W]."""
        assert self.training
        return self.mixed(hidden_states, torch.zeros(1, 2, 6))


def test_inputs_fit_in_training_and_in_evaluation() -> None:
    model = _Dropping()
    assert denoiser_inputs(model)["0.y"].shape[-1] == 28
    assert model.training
    assert "0.hidden_states" in denoiser_inputs(_Training())
