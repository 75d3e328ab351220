"""The facts about a run that output formats need."""

from collections.abc import Sequence
from typing import Protocol

from omni_kit.diagnostics.definition import Definition
from omni_kit.diagnostics.finding import Finding


class Reported(Protocol):
    """A run with findings, such as a Report of check."""

    findings: list[Finding]

    def definitions(self) -> Sequence[Definition]:
        """Return every ID that the run looked for; those of its findings are among them."""
