"""The errors that a user sees: one line that names the thing, why, and what to do.

Every error carries the exit code of the command-line contract, so that libraries raise and the CLI only renders.
"""

_LONGEST = 2000  # characters


class OmniKitError(Exception):
    """Something that the user can fix.

    Args:
        message: one line: what, and why.
        hint: one line: what to do about it; may be empty.
    """

    exit_code = 2

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = _line(message)
        self.hint = _line(hint)

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        return type(self), (self.message, self.hint)


def _line(text: str) -> str:
    """One line, of bounded length: names that come from files may be of any."""
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}..."


class BadInput(OmniKitError):
    """What was given cannot be used: exit code 2, and nothing was written."""


class Refusal(BadInput):
    """What was asked for is understood, and would not be right: exit code 1, and nothing was written."""

    exit_code = 1


class Interrupted(OmniKitError):
    """Somebody stopped the command: exit code 130."""

    exit_code = 130


class MissingRequirement(OmniKitError):
    """The environment lacks something; the hint is the command that installs it: exit code 3."""

    exit_code = 3
