"""The last steps: format with ruff, compile, write in one stroke, and the diff next to it."""

import difflib
import re
import tempfile
from collections.abc import Collection, Sequence
from pathlib import Path

from omni_kit.errors import BadInput
from omni_kit.formatting import run_ruff
from omni_kit.patchgen.header import is_generated

_DIFF = re.compile(r"--- \S.*\n\+\+\+ \S")
_SELECT = "F401,F811,I"
_OWN_STYLE = (
    "--isolated",
    "--config=line-length=119",
    "--config=target-version='py311'",
)
_OWN_LINT_STYLE = (
    "--config=lint.isort.lines-after-imports=2",
    "--config=lint.isort.known-third-party=['torch','transformers']",
)


def normalise(texts: Sequence[str], place: Path, first_party: Collection[str] = ()) -> list[str]:
    """Return the texts without unused imports, with sorted imports, formatted.

    Which rules fix is given here, so that a project's selection cannot change the outcome; its style (line length,
    isort sections) is used where `place`, the output directory, has a ruff configuration, and our own otherwise.

    Args:
        first_party: packages whose imports stand in a section of their own.

    Raises:
        MissingRequirement: ruff is not installed.
        BadInput: ruff refuses the text or the project's configuration.
    """
    if not texts:
        return []
    settings = settings_of(place)
    style = (f"--config={settings}",) if settings else _OWN_STYLE
    lint_style = () if settings else (*_OWN_LINT_STYLE, f"--config=lint.isort.known-first-party={sorted(first_party)}")
    with tempfile.TemporaryDirectory(prefix="patchgen-") as folder:
        files = [Path(folder) / f"m{index}.py" for index in range(len(texts))]
        for file, text in zip(files, texts, strict=True):
            file.write_text(text, encoding="utf-8", newline="\n")
        names = [str(file) for file in files]
        _ruff(
            "check", "--fix", "--quiet", "--exit-zero", "--no-cache", f"--select={_SELECT}", "--fixable=ALL",
            "--config=lint.per-file-ignores={}", *style, *lint_style, *names,
        )  # fmt: skip
        _ruff("format", "--quiet", "--no-cache", *style, *names)
        return [file.read_text(encoding="utf-8") for file in files]


def compiles(text: str, name: str) -> SyntaxError | None:
    """Return the syntax error of a text, if it has one."""
    try:
        compile(text, name, "exec", dont_inherit=True)
    except SyntaxError as found:
        return found
    except (ValueError, RecursionError, MemoryError) as found:
        return SyntaxError(str(found) or "nested too deeply to be parsed")
    return None


def unified_diff(upstream: str, generated: str, source_module: str, target_file: str) -> str:
    """Return the changes of the patches, as a unified diff from the upstream file without trailing blanks."""
    lines = difflib.unified_diff(
        upstream.splitlines(),
        generated.splitlines(),
        fromfile=f"a/{source_module.replace('.', '/')}.py",
        tofile=f"b/{target_file}",
        lineterm="",
    )
    text = "\n".join(line.rstrip() for line in lines)
    return f"{text}\n" if text else ""


def diff_path(output: Path) -> Path:
    """Return the path of a generated file's unified diff: next to it."""
    return output.with_suffix(".diff")


def holds(path: Path, text: str) -> bool:
    """Return whether a file says exactly this, line ends included."""
    return path.is_file() and path.read_bytes() == text.encode()


def is_ours(path: Path) -> bool:
    """Return whether a patch generator wrote a file, by its header; a diff, by how unified diffs begin."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return False
    return bool(_DIFF.match(text)) or not text if path.suffix == ".diff" else is_generated(text)


def in_the_way(path: Path, root: Path, force: bool) -> str:
    """Return why a file may not be written; empty if it may.

    Args:
        root: what the file belongs below, links and all.
        force: a file that no patch generator wrote may be replaced.
    """
    if not path.resolve().is_relative_to(root.resolve()):
        return f"{path.name} would be written outside {root}, through a link: remove the link"
    if path.is_dir():
        return f"{path} is a directory: remove it, or name another target_file"
    if path.exists() and not (force or is_ours(path)):
        return f"no patch generator wrote {path.name}, which is there: move it away, or replace it with `run --force`"
    return ""


def _ruff(*arguments: str) -> None:
    done = run_ruff(*arguments)
    if done.code:
        said = " ".join((done.stderr or done.stdout).split())[:400]
        raise BadInput(f"ruff {arguments[0]} failed: {said}", "fix the ruff configuration or the config's code")


def settings_of(place: Path) -> Path | None:
    """Return the file that configures ruff for `place`, as ruff itself would find it."""
    for folder in (place, *place.parents):
        for name in (".ruff.toml", "ruff.toml"):
            if (folder / name).is_file():
                return folder / name
        project = folder / "pyproject.toml"
        if project.is_file() and "[tool.ruff" in project.read_text(encoding="utf-8", errors="replace"):
            return project
    return None
