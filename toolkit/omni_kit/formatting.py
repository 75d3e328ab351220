"""Python that is formatted, by ruff."""

import shutil
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

from omni_kit.errors import BadInput, MissingRequirement
from omni_kit.isolation.programs import Finished, run_program

_TIMEOUT = 120.0
_AGAIN = "pip install --force-reinstall --no-deps ruff"


class InvalidPython(BadInput):
    """A text that was to be Python is not."""


def check_python(text: str, name: str) -> None:
    """Compile Python source without running it.

    Raises:
        InvalidPython: the text is not valid Python.
    """
    try:
        compile(text, name, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        raise InvalidPython(f"{name} is not valid Python: {error}") from error


def format_python(text: str, name: str, rules: Path | None = None) -> str:
    """Return Python source with sorted imports, formatted by ruff; see `format_files`."""
    (formatted,) = format_files([(name, text)], rules)
    return formatted


def format_files(files: Sequence[tuple[str, str]], rules: Path | None = None) -> list[str]:
    """Return the sources of Python files with sorted imports, formatted by ruff, which reads all of them at once.

    Args:
        files: the name of each, and its text.
        rules: the pyproject.toml by which ruff formats them; 120 columns without one.

    Raises:
        InvalidPython: a text is not valid Python.
        MissingRequirement: ruff is not installed.
    """
    for name, text in files:
        check_python(text, name)
    # What is an import of one's own must not depend on what is in the working directory, nor on the other files.
    style = [f"--config={rules}"] if rules else ["--isolated", "--line-length=120", "--target-version=py311"]
    with TemporaryDirectory() as place:
        paths = [Path(place, str(number), name) for number, (name, _) in enumerate(files)]
        for path, (_, text) in zip(paths, files, strict=True):
            path.parent.mkdir()
            path.write_text(text, encoding="utf-8", newline="")
        for arguments in (
            ("check", "--fix-only", "--quiet", "--select", "I,F401", "--unsafe-fixes"),
            ("format", "--quiet"),
        ):
            if not files:
                break
            done = run_ruff(*arguments, *style, "--config=src=[]", "--no-cache", *map(str, paths))
            if done.code and not done.stderr.strip():
                raise MissingRequirement(f"ruff cannot run: it ends with code {done.code}", _AGAIN)
            if done.code:
                names = ", ".join(name for name, _ in files)
                raise InvalidPython(f"{names} is not valid Python: {done.stderr.strip()[:200]}")
        return [path.read_text(encoding="utf-8") for path in paths]


@lru_cache(maxsize=1)
def ruff_binary() -> str:
    """Return the installed ruff: the package's own, or the one on the PATH.

    Raises:
        MissingRequirement: there is none.
    """
    try:
        from ruff import find_ruff_bin

        return str(find_ruff_bin())
    except ImportError:
        message, fix = "Python is formatted with ruff, which is not installed", "pip install ruff"
    except FileNotFoundError:
        message, fix = "ruff is installed without its program", _AGAIN
    if (found := shutil.which("ruff")) is None:
        raise MissingRequirement(message, fix)
    return found


def run_ruff(*arguments: str, text: str = "") -> Finished:
    """Run ruff in the working directory, with `text` on its stdin.

    Raises:
        MissingRequirement: ruff is not installed, or cannot run.
    """
    try:
        return run_program([ruff_binary(), *arguments], timeout=_TIMEOUT, stdin=text, directory=Path.cwd())
    except OSError as error:
        raise MissingRequirement(f"ruff cannot run: {error}", _AGAIN) from error
