"""Parity: an integration against upstream, each in its own process, on weights in which every element differs."""

from omni_kit.parity.assertion import assert_parity
from omni_kit.parity.checkpoint import make_toy_checkpoint
from omni_kit.parity.levels import DEFAULT_LEVELS, LEVELS
from omni_kit.parity.replay import replay as replay_parity
from omni_kit.parity.report.page import check_page, write_page
from omni_kit.parity.report.report import LevelResult, ParityReport
from omni_kit.parity.run import run_parity

__all__ = [
    "DEFAULT_LEVELS",
    "LEVELS",
    "LevelResult",
    "ParityReport",
    "assert_parity",
    "check_page",
    "make_toy_checkpoint",
    "replay_parity",
    "run_parity",
    "write_page",
]
