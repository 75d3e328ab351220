"""Random numbers, which are the same on both sides."""

import random

import numpy
import torch

from omni_kit.parity.processes.chance import seeded


def drawn() -> tuple[float, float, float]:
    return float(torch.rand(1)), random.random(), float(numpy.random.rand())


def test_every_source_of_random_numbers_begins_from_the_start() -> None:
    seeded()
    first, then = drawn(), drawn()
    seeded()
    assert drawn() == first
    assert all(one != other for one, other in zip(first, then, strict=True))
