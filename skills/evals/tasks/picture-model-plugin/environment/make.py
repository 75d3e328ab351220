"""The config of a small model that reads pictures."""

from omni_evals.scratch import Scratch


def make(s: Scratch) -> None:
    s.config("checkpoints/osprey", "internvl")
