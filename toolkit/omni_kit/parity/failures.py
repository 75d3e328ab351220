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
    return f"{type(error).__name__}: {text[:400]}{where}"


def lacks_package(error: Exception) -> bool:
    """A package that is nowhere to be found; a module missing from a package that is there is the package's fault."""
    if isinstance(error, MissingRequirement):
        return True
    name = error.name if isinstance(error, ModuleNotFoundError) else None
    return bool(name) and importlib.util.find_spec(str(name).partition(".")[0]) is None
