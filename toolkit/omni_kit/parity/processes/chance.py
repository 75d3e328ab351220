"""Random numbers of a model, as those that drop labels: the same on both sides."""

import random
import sys

import torch


def seeded() -> None:
    """Begin the random numbers of torch, of Python and of numpy, where it is loaded, from the start."""
    torch.manual_seed(0)
    random.seed(0)
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed(0)
