"""Facts that a run over packs of skills has from the start."""

from pathlib import Path

from omni_checkers.engine.facts import given
from omni_checkers.skills.facts.installed import Installed
from omni_checkers.skills.facts.programs import Programs
from omni_checkers.skills.subject import Subject


@given
def skill() -> Subject:
    """Return the skill."""
    raise NotImplementedError


@given
def pack() -> dict[str, Subject]:
    """Return the skills of the same folder, by name, with this one."""
    raise NotImplementedError


@given
def installed() -> Installed:
    """Return the packages that are installed where the skill is used."""
    raise NotImplementedError


@given
def programs() -> Programs:
    """Return the programs whose commands are known."""
    raise NotImplementedError


@given
def untested() -> set[str]:
    """Return the list in which rules record names that they could not test."""
    raise NotImplementedError


@given
def checkout() -> Path:
    """Return the repository whose paths the skill names."""
    raise NotImplementedError
