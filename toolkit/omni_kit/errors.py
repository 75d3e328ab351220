"""The errors that a user sees: one line that names the thing, why, and what to do.

Every error carries the exit code of the command-line contract, so that libraries raise and the CLI only renders.
"""


class OmniKitError(Exception):
    """Something that the user can mend.

    Args:
        message: one line: what, and why.
        hint: one line: what to do about it; may be empty.
    """

    exit_code = 2

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = " ".join(message.split())
        self.hint = " ".join(hint.split())

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        return type(self), (self.message, self.hint)


class BadInput(OmniKitError):
    """What was given cannot be used: exit code 2, and nothing was written."""


class Interrupted(OmniKitError):
    """Somebody stopped the command: exit code 130."""

    exit_code = 130


class MissingRequirement(OmniKitError):
    """The environment lacks something; the hint is the command that installs it: exit code 3."""

    exit_code = 3
