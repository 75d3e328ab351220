"""Paths of a task's files: Harbor's, unless a runner on this machine sets others."""

import os
from pathlib import Path


def app() -> Path:
    """The scratch project, in which the agent works."""
    return Path(os.environ.get("EVAL_APP", "/app"))


def state() -> Path:
    """Return the directory with the recorded initial state of the project, which the agent cannot write to."""
    return Path(os.environ.get("EVAL_STATE", "/opt/evals/state"))


def logs() -> Path:
    """Return the directory of the reward."""
    return Path(os.environ.get("EVAL_LOGS", "/logs/verifier"))
