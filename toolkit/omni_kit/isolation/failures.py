"""Messages about an exception that ended a step of a process."""

import importlib.util
import re
import traceback
from collections.abc import Mapping

from omni_kit.errors import MissingRequirement, OmniKitError

# Modules that pip does not install by their own name.
_SOURCES: Mapping[str, str] = {
    "clip": "git+https://github.com/openai/CLIP.git",
    "cv2": "opencv-python",
    "dotenv": "python-dotenv",
    "fla": "flash-linear-attention",
    "hydra": "hydra-core",
    "open_clip": "open-clip-torch",
    "PIL": "pillow",
    "pl_bolts": "lightning-bolts",
    "pytorch_lightning": "pytorch-lightning",
    "pywt": "PyWavelets",
    "sat": "SwissArmyTransformer",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "taming": "taming-transformers",
    "yaml": "PyYAML",
}
REQUESTED = "--- "
"""Prefix of the log lines of a process that show a request."""


def one_line(error: Exception) -> str:
    """Return the last line of the traceback and the place outside torch, or the missing package and how to install it.

    Of an error that says what to do, that is at the end of the line.
    """
    text = " ".join(str(error).split()) or "no message"
    if isinstance(error, OmniKitError):
        return f"{text}; {error.hint}" if error.hint else text
    if package := lacking_package(error):
        return f"{missing(error, package)}: {install(package)}"
    every = list(traceback.extract_tb(error.__traceback__))
    frames = [frame for frame in every if "/torch/" not in frame.filename] or every
    where = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    if isinstance(error, SyntaxError) and error.filename:  # the frames are those of the import system
        where = f" ({error.filename}:{error.lineno})"
    return f"{type(error).__name__}: {text[:400]}{where}"


def install(*modules: str) -> str:
    """Return the command that installs what modules belong to."""
    return f"pip install {' '.join(_SOURCES.get(one, one) for one in modules)}"


def lacks_package(error: Exception) -> bool:
    """Return whether something that has to be installed is not. An ImportError without a module is a library's own
    word.
    """
    told = type(error) is ImportError and error.name is None
    return told or isinstance(error, MissingRequirement) or bool(lacking_package(error))


def lacking_package(error: BaseException | None) -> str:
    """Return the package that an error, or one that it was raised from, did not find; empty if there is none.

    A module missing from a package that is installed is the package's fault, and gives an empty text.
    """
    while error is not None:
        name = str(error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
        if name and importlib.util.find_spec(name) is None:
            return name
        error = error.__cause__
    return ""


def missing(error: BaseException, package: str) -> str:
    """Return which package is not installed, and the file and line that import it."""
    while error.__cause__ is not None:
        error = error.__cause__
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith("<frozen")]
    who = f"; {frames[-1].filename}:{frames[-1].lineno} imports it" if frames else ""
    return f"{package} is not installed{who}"


def refuses_device(said: str, device: str) -> bool:
    """Return whether an error in one line is a NotImplementedError that names a device, and not one of torch's
    operators.
    """
    words = re.findall(r"[a-z]+", said.partition(" (")[0].lower())
    return (
        "NotImplementedError" in said and device in words and "aten" not in words and "not implemented for" not in said
    )
