"""Mistakes in the text of functions: they are made where there is a place, whatever its spelling, and nowhere else."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from omni_kit.targets.diffusers.runtime.changing import Tiled, otherwise

PROMPTS = torch.tensor([[0, 0], [1, 1]])


def _by_rows(rows: Any, num_images_per_prompt: int) -> Any:
    return rows.repeat_interleave(num_images_per_prompt, dim=0)


def _by_torch(rows: Any, num_videos_per_prompt: int) -> Any:
    return torch.repeat_interleave(rows, repeats=num_videos_per_prompt, dim=0)


def _folded(rows: Any, num_images_per_prompt: int) -> Any:
    count, length = rows.shape
    return rows.repeat(1, num_images_per_prompt).view(count * num_images_per_prompt, length)


def _listed(rows: Any, num_images_per_prompt: int) -> Any:
    return torch.stack([row for row in rows for _ in range(num_images_per_prompt)])


def _elsewhere(rows: Any, heads: int) -> Any:
    return rows.repeat_interleave(heads, dim=0)


@pytest.mark.parametrize("right", [_by_rows, _by_torch, _folded, _listed])
def test_rows_of_prompts_are_repeated_as_a_whole(right: Callable[..., Any]) -> None:
    wrong = otherwise(right, Tiled())
    assert wrong is not None
    assert right(PROMPTS, 2)[:, 0].tolist() == [0, 0, 1, 1]
    assert wrong(PROMPTS, 2)[:, 0].tolist() == [0, 1, 0, 1]


def test_other_rows_are_left_alone() -> None:
    assert otherwise(_elsewhere, Tiled()) is None
