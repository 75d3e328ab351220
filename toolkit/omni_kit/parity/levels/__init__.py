"""The levels, one file each, in the order of the contract. Importing them imports no torch."""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from omni_kit.errors import BadInput, OmniKitError
from omni_kit.isolation.failures import one_line, refuses_device
from omni_kit.isolation.worker import StepError
from omni_kit.parity.compare.comparison import NothingToCompare
from omni_kit.parity.levels.backward import Backward
from omni_kit.parity.levels.dtype import Dtype
from omni_kit.parity.levels.ep import Ep
from omni_kit.parity.levels.forward import Forward
from omni_kit.parity.levels.fsdp import Fsdp
from omni_kit.parity.levels.hooks import Hooks
from omni_kit.parity.levels.imported import Import
from omni_kit.parity.levels.keys import Keys
from omni_kit.parity.levels.level import Level
from omni_kit.parity.levels.lora import Lora
from omni_kit.parity.levels.modules import Modules
from omni_kit.parity.levels.opslots import Opslots
from omni_kit.parity.levels.roundtrip import Roundtrip
from omni_kit.parity.levels.scenarios import Scenarios
from omni_kit.parity.levels.sp import Sp
from omni_kit.parity.levels.stages import Stages
from omni_kit.parity.levels.steps import Steps
from omni_kit.parity.levels.train import Train
from omni_kit.parity.places import Places
from omni_kit.parity.report.report import LevelResult
from omni_kit.targets.sides import OF_MODELS, Ability

if TYPE_CHECKING:
    from omni_kit.parity.case import Case

_ALL: tuple[Level, ...] = (
    Import(),
    Hooks(),
    Keys(),
    Roundtrip(),
    Forward(),
    Backward(),
    Modules(),
    Scenarios(),
    Dtype(),
    Opslots(),
    Steps(),
    Lora(),
    Sp(),
    Fsdp(),
    Ep(),
    Stages(),
    Train(),
)
BY_NAME = {level.name: level for level in _ALL}
LEVELS = tuple(BY_NAME)
# Of a model whose sides can do all that models can.
DEFAULT_LEVELS = tuple(level.name for level in _ALL if level.runs_unasked(OF_MODELS))
PROCESS_LEVELS = frozenset(level.name for level in _ALL if Ability.mesh in level.needs)
# What needs a process from which others are started.
LAUNCHED_LEVELS = PROCESS_LEVELS | {level.name for level in _ALL if Ability.train in level.needs}


def parse_levels(levels: Sequence[str] | None, offers: frozenset[Ability] = OF_MODELS) -> list[str]:
    """Return the levels to run, in the order of the contract, each once.

    Args:
        levels: as they were asked for; None for the default ones, of those that both sides can run.
        offers: what both sides can do.

    Raises:
        BadInput: an unknown level, or an empty list.
    """
    if levels is None:
        return [level.name for level in _ALL if level.runs_unasked(offers)]
    if unknown := [level for level in levels if level not in BY_NAME]:
        raise BadInput(f"unknown parity level '{unknown[0]}'", f"levels: {', '.join(LEVELS)}")
    if not levels:
        raise BadInput("no parity level was given", f"levels: {', '.join(LEVELS)}")
    return [level for level in LEVELS if level in levels]


def judge(name: str, case: "Case") -> LevelResult:
    """Run one level.

    A step that raised in the candidate is the integration's fault: fail. A step that raised in the reference, died or
    hung says nothing about the integration: error. An error that an earlier level already reported: skip.
    """
    started = time.monotonic()
    level = BY_NAME[name]
    if lacking := sorted(level.needs - case.offers):
        return LevelResult(name, "skip", f"not applicable: the sides offer no {lacking[0]}", applicable=False)
    try:
        result = level.judge(case).result(name)
    except StepError as error:
        if error.blames_reference:
            raise BadInput(str(error)) from error  # which says what to do
        error.reported |= str(error) in case.reported
        first = case.reported.setdefault(str(error), name)
        result = _failed(name, error, case.pair.device, first)
    except NothingToCompare as error:
        result = LevelResult(name, "error", str(error))
    except OmniKitError:
        raise
    except Exception as error:  # our own fault, or an answer that no honest process gives: nothing is shown by it
        result = LevelResult(name, "error", f"omni-kit failed in this level: {one_line(error)}")
    return replace(Places(case).added(result), seconds=round(time.monotonic() - started, 3))


def _failed(level: str, error: StepError, device: str, first: str) -> LevelResult:
    """Return the result of `level` after an error, which the level `first` reports."""
    if error.reported:
        return LevelResult(level, "skip", f"not run, because of the error in {first}")
    error.reported = True
    fails = error.blames_candidate and not refuses_device(str(error), device)
    return LevelResult(level, "fail" if fails else "error", str(error), place=error.place)
