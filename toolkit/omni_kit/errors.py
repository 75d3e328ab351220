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


def reason(error: Exception) -> str:
    """Return why a file could not be read, without the file's name: the message around it names the file."""
    if isinstance(error, OSError):
        return error.strerror or "it cannot be opened"
    if isinstance(error, SyntaxError):
        return f"{error.msg} (line {error.lineno})"
    if isinstance(error, UnicodeEncodeError):
        return "it has a string with a lone surrogate"
    return "it is nested too deeply" if isinstance(error, RecursionError) else str(error)


def in_short(error: BaseException, most: int = 200) -> str:
    """Return an error of other code as "Type: message" in one line, cut to `most` characters of the message."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:most]}"


def _line(text: str) -> str:
    """Return one line, of bounded length: names that come from files may be of any."""
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}..."


class BadInput(OmniKitError):
    """The input cannot be used: exit code 2, and nothing was written."""


class Refusal(BadInput):
    """The request is understood, but its result would be wrong: exit code 1, and nothing was written."""

    exit_code = 1


class Interrupted(OmniKitError):
    """Somebody stopped the command: exit code 130."""

    exit_code = 130


class MissingRequirement(OmniKitError):
    """The environment lacks something; the hint is the command that installs it: exit code 3."""

    exit_code = 3
