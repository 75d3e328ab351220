"""What a process says about an exception that ended a step."""

import importlib.util
import traceback

from omni_kit.errors import MissingRequirement, OmniKitError


def one_line(error: Exception) -> str:
    """The last line of the traceback, with the place that raised."""
    text = " ".join(str(error).split()) or "no message"
    if isinstance(error, OmniKitError):
        return text
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    if isinstance(error, SyntaxError) and error.filename:  # the frames are those of the import system
        where = f" ({error.filename}:{error.lineno})"
    return f"{type(error).__name__}: {text[:400]}{where}"


def lacks_package(error: Exception) -> bool:
    """Whether something that has to be installed is not. An ImportError without a module is a library's own word."""
    told = type(error) is ImportError and error.name is None
    return told or isinstance(error, MissingRequirement) or bool(lacking_package(error))


def lacking_package(error: Exception) -> str:
    """The package that is nowhere to be found, where that is what an error says.

    A module missing from a package that is there is the package's fault, and gives an empty text.
    """
    name = str(error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    return name if name and importlib.util.find_spec(name) is None else ""
