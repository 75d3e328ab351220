"""From the name of a config to what it says.

A config is read where that can be done, and runs only for whoever allows it: a gate that ran what it judges would be
judged by it.
"""

from dataclasses import dataclass, field
from pathlib import Path

from omni_kit.errors import BadInput
from omni_kit.patchgen import spec
from omni_kit.patchgen.importing import Session
from omni_kit.patchgen.locate import Libraries, package_of
from omni_kit.patchgen.reader import Reader, settled
from omni_kit.patchgen.runner import Runner, really_import
from omni_kit.patchgen.spec import Origin, PatchConfig
from omni_kit.patchgen.standins import NeedsReal
from omni_kit.pysource.eval import Unreadable


@dataclass
class LoadedConfig:
    """What a config says.

    `name` is its dotted module (or file name outside packages); `registrations` are the lines of all files that
    registered something; `siblings` are the configs of all files that it consists of, its own included, by path;
    `frameworks` are the packages that it imports the DSL from.
    """

    config: PatchConfig
    path: Path
    name: str
    registrations: set[Origin]
    notes: list[str] = field(default_factory=list)
    siblings: dict[Path, PatchConfig] = field(default_factory=dict)
    frameworks: set[str] = field(default_factory=set)


def find_config(reference: str | Path, libraries: Libraries) -> Path:
    """The file of a config named by path or by dotted module.

    Raises:
        BadInput: there is no such file or module.
    """
    path = Path(reference)
    if path.suffix == ".py" or "/" in str(reference):
        if path.is_file():
            return path.resolve()
        raise BadInput(f"there is no config file {reference}", "name a file or a dotted module")
    roots = Libraries(libraries.unpacked, (*libraries.roots, Path.cwd()))
    found = roots.file_of(str(reference))
    if found is None:
        raise BadInput(f"there is no config module {reference}", "check the name, or give the path of the file")
    return found.resolve()


class CannotLoad(BadInput):
    """A config that fails, or that may not be run and cannot be read otherwise.

    Attributes:
        code: of the diagnostic that says so.
        origin: the line that is to blame, where it is known.
    """

    def __init__(self, message: str, hint: str = "", code: str = "cannot-load", origin: Origin | None = None) -> None:
        super().__init__(message, hint)
        self.code, self.origin = code, origin


def load_config(path: Path, libraries: Libraries, *, run: bool = True) -> LoadedConfig:
    """Reads the config at `path`; one that cannot be read is run.

    Args:
        run: False reads only.

    Raises:
        CannotLoad: the file fails, or has no PatchConfig named `config`; or it would have to be run, and may not.
    """
    try:
        return read_config(path, libraries)
    except CannotLoad:
        if not run:
            raise
    return run_config(path, libraries)


def read_config(path: Path, libraries: Libraries) -> LoadedConfig:
    """Reads the config at `path`; no line of it runs.

    Raises:
        CannotLoad: it cannot be told what the file says, or it has no PatchConfig named `config`.
    """
    reader = Reader(libraries)
    with spec.recording() as registrations:
        try:
            config = getattr(reader.run(path), "config", None)
            if isinstance(config, PatchConfig):
                _settled(config)
        except Unreadable as why:
            origin = Origin(str(why.path), why.line) if why.path is not None and why.line is not None else None
            where = f"{Path(origin.path).name}:{origin.line}" if origin else path.name
            message = f"{where} cannot be read without running it: it {why}"
            hint = "say it by the methods of PatchConfig, with plain values"
            raise CannotLoad(message, hint, "unreadable", origin) from why
        return _loaded(config, path, reader, registrations)


def run_config(path: Path, libraries: Libraries) -> LoadedConfig:
    """Runs the config at `path`.

    Raises:
        CannotLoad: the file fails, or has no PatchConfig named `config`.
    """
    runner = Runner(libraries)
    notes: list[str] = []
    with spec.recording() as registrations:
        try:
            module = runner.run(path)
        except (BadInput, SyntaxError, ImportError, NameError, SystemExit) as error:
            raise _failed(path, error) from error
        except Exception as error:
            notes.append(f"{path.name} was loaded with real imports: its top-level code needs {error}")
            try:
                module = really_import(path)
            except (Exception, SystemExit) as second:
                raise _failed(path, second) from second
        loaded = _loaded(getattr(module, "config", None), path, runner, registrations)
    loaded.notes += notes
    return loaded


def _settled(config: PatchConfig) -> None:
    """Raises Unreadable where something of a config that was read is not known."""
    try:
        settled(config)
    except (NeedsReal, TypeError) as error:
        raise Unreadable(f"puts something in a list's place that is none: {error}") from error


def _loaded(config: object, path: Path, session: Session, registrations: set[Origin]) -> LoadedConfig:
    if not isinstance(config, PatchConfig):
        raise CannotLoad(
            f"{path.name} has no PatchConfig named 'config'", "assign config = PatchConfig(...) at module level"
        )
    _validate(config, path)
    name = package_of(path)[1]
    return LoadedConfig(config, path, name, set(registrations), [], session.configs(), session.frameworks)


def _validate(config: PatchConfig, path: Path) -> None:
    """What a config can get wrong and Python does not notice."""
    for name, types in _PARTS.items():
        strange = next((part for part in getattr(config, name) if not isinstance(part, types)), None)
        if strange is not None:
            raise CannotLoad(f"{path.name}: {strange!r} does not belong in {name}", "use the methods of PatchConfig")
    if Path(config.target_file).name != config.target_file or not config.target_file.endswith(".py"):
        raise CannotLoad(f"{path.name}: target_file {config.target_file!r} is no plain file name", "name a .py file")
    for patch in config.patches:
        if not isinstance(patch.target, str) or not patch.target.strip():
            raise CannotLoad(f"{path.name}: {patch!r} is no patch of a named target", "use the methods of PatchConfig")
        pairs = (
            [*patch.name_map.items()] if isinstance(patch.name_map, dict) else [] if not patch.name_map else [(0, 0)]
        )
        if any(not isinstance(name, str) or not name.isidentifier() for pair in pairs for name in pair):
            raise CannotLoad(
                f"{path.name}: the name_map of {patch.target} maps no identifiers", "map identifier to identifier"
            )


_PARTS = {
    "patches": spec.Patch,
    "additional_imports": spec.ImportSpec,
    "positioned_helpers": spec.PositionedHelper,
    "post_import_blocks": str,
    "exclude": str,
    "drop_imported_names": str,
}
"""What the lists of a config hold."""


def _failed(path: Path, error: BaseException) -> CannotLoad:
    line = _line_in(path, error)
    said = error.msg if isinstance(error, SyntaxError) and line else error  # else it repeats file and line
    message = f"{path.name} cannot be loaded: {type(error).__name__}: {said}"
    origin = Origin(str(path), line) if line else None
    return CannotLoad(message, "run the file with python to see why", origin=origin)


def _line_in(path: Path, error: BaseException) -> int | None:
    if isinstance(error, SyntaxError):
        return error.lineno
    line, trace = None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(path):
            line = trace.tb_lineno
        trace = trace.tb_next
    return line
