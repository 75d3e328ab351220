"""Loads a config by its name.

A config is read where that can be done, and runs only for whoever allows it: a gate that ran what it judges would be
judged by it. It runs in a process of its own, which writes nothing and has limits.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from omni_kit.errors import BadInput
from omni_kit.files import check_name
from omni_kit.isolation.confinement import can_confine
from omni_kit.isolation.limits import Limits
from omni_kit.isolation.requests import run_worker
from omni_kit.isolation.worker import StepError
from omni_kit.patchgen import spec
from omni_kit.patchgen.config_loader import Reader, settled
from omni_kit.patchgen.locate import Libraries, package_of
from omni_kit.patchgen.spec import Origin, PatchConfig
from omni_kit.patchgen.standins import NeedsReal
from omni_kit.patchgen.transfer import Forged, from_json
from omni_kit.pysource.eval import Unsupported

UNREADABLE = "unreadable"
_RUNNER = "omni_kit.patchgen.runner"
_TIMEOUT = 60.0  # seconds, real imports included
_LIMITS = Limits(memory=4 << 30, processes=64, disk=1 << 28)


@dataclass
class LoadedConfig:
    """The content of a config.

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
    """Return the file of a config named by path or by dotted module.

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
        raise BadInput(f"there is no config module {reference}", "check the name, or pass the path of the file")
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
    """Read the config at `path`; one that cannot be read is run.

    Args:
        run: False reads only.

    Raises:
        CannotLoad: the file fails, or has no PatchConfig named `config`; or it would have to be run, and may not.
    """
    try:
        return read_config(path, libraries)
    except CannotLoad as why:
        if not run or why.code != UNREADABLE:
            raise
        loaded = run_config(path, libraries)
        how = "in a confined process" if can_confine() else "in a process that this system cannot confine"
        loaded.notes.insert(0, f"{path.name} ran, {how}: {why.message}")
        return loaded


def read_config(path: Path, libraries: Libraries) -> LoadedConfig:
    """Read the config at `path`; no line of it runs.

    Raises:
        CannotLoad: it cannot be determined what the file says, or it has no PatchConfig named `config`.
    """
    reader = Reader(libraries)
    with spec.recording() as registrations:
        try:
            config = getattr(reader.run(path), "config", None)
            if isinstance(config, PatchConfig):
                _settled(config)
        except Unsupported as why:
            origin = Origin(str(why.path or path), why.line or 1)
            where = f"{Path(origin.path).name}:{origin.line}"
            message = f"{where} cannot be read without running it: it {why}"
            hint = "use PatchConfig methods with plain values"
            raise CannotLoad(message, hint, UNREADABLE, origin) from why
        loaded = loaded_config(config, path, reader.configs())
        loaded.registrations, loaded.frameworks = set(registrations), reader.frameworks
        return loaded


def run_config(path: Path, libraries: Libraries) -> LoadedConfig:
    """Run the config at `path` in a process that can write nothing, with limits on its time and memory.

    Raises:
        CannotLoad: the file fails, has no PatchConfig named `config`, or exceeds a limit.
    """
    request = {
        "path": str(path),
        "unpacked": {name: str(place) for name, place in libraries.unpacked.items()},
        "roots": [str(root) for root in libraries.roots],
    }
    try:
        reply = run_worker(
            f"{_RUNNER}:reply", request, timeout=_TIMEOUT, modules=[_RUNNER], writes=False, limits=_LIMITS
        )
        if "error" in reply:
            message, hint = reply["error"]
            origin = from_json(reply["origin"])
            raise CannotLoad(str(message), str(hint), origin=origin if isinstance(origin, Origin) else None)
        return _replied(path, reply)
    except StepError as error:
        raise CannotLoad(f"{path.name} cannot be loaded: {error}", "look at its top-level code") from error
    except (Forged, Unsupported, AttributeError, KeyError, TypeError, ValueError) as error:
        raise CannotLoad(f"{path.name} cannot be loaded: it wrote to omni-kit's channel: {error}") from error


def _replied(path: Path, reply: dict[str, Any]) -> LoadedConfig:
    config, siblings = from_json(reply["config"]), from_json(reply["siblings"])
    others = {Path(at): one for at, one in siblings.items() if isinstance(one, PatchConfig)}
    _settled(config)
    loaded = loaded_config(config, path, {**others, **dict.fromkeys(map(Path, reply["own"]), config)})
    loaded.registrations = {one for one in from_json(reply["registrations"]) if isinstance(one, Origin)}
    loaded.frameworks, loaded.notes = set(map(str, reply["frameworks"])), [*map(str, reply["notes"])]
    return loaded


def _settled(config: PatchConfig) -> None:
    """Raise Unsupported where something of a config that was read is not known."""
    try:
        settled(config)
    except (NeedsReal, TypeError) as error:
        raise Unsupported(f"replaces a list by something else: {error}") from error


def loaded_config(config: object, path: Path, siblings: dict[Path, PatchConfig]) -> LoadedConfig:
    """Return the content of a config that was read or run.

    Raises:
        CannotLoad: it is no PatchConfig, or one that Python takes and nobody can generate from.
    """
    if not isinstance(config, PatchConfig):
        raise CannotLoad(
            f"{path.name} has no PatchConfig named 'config'",
            "assign config = PatchConfig(...) at module level",
            origin=Origin(str(path), 1),
        )
    try:
        _validate(config, path)
    except CannotLoad as why:
        why.origin = why.origin or config.origin or Origin(str(path), 1)
        raise
    return LoadedConfig(config, path, package_of(path)[1], set(), [], siblings, set())


def _validate(config: PatchConfig, path: Path) -> None:
    """Check a config for mistakes that Python does not notice."""
    for name, types in _PARTS.items():
        strange = next((part for part in getattr(config, name) if not isinstance(part, types)), None)
        if strange is not None:
            raise CannotLoad(f"{path.name}: {strange!r} does not belong in {name}", "use the methods of PatchConfig")
    if not isinstance(config.target_file, str) or not config.target_file.endswith(".py"):
        raise CannotLoad(f"{path.name}: target_file {config.target_file!r} is not a .py file", "name a .py file")
    try:
        check_name(config.target_file.removesuffix(".py"))
    except BadInput as why:
        raise CannotLoad(f"{path.name}: target_file {config.target_file!r}: {why.message}", why.hint) from why
    for patch in config.patches:
        if not isinstance(patch.target, str) or not patch.target.strip():
            raise CannotLoad(
                f"{path.name}: {patch!r} is not a patch of a named target", "use the methods of PatchConfig"
            )
        pairs = (
            [*patch.name_map.items()] if isinstance(patch.name_map, dict) else [] if not patch.name_map else [(0, 0)]
        )
        if any(not isinstance(name, str) or not name.isidentifier() for pair in pairs for name in pair):
            raise CannotLoad(
                f"{path.name}: the name_map of {patch.target} does not map identifiers",
                "map identifier to identifier",
                origin=patch.origin,
            )


_PARTS = {
    "patches": spec.Patch,
    "additional_imports": spec.ImportSpec,
    "positioned_helpers": spec.PositionedHelper,
    "post_import_blocks": str,
    "exclude": str,
    "drop_imported_names": str,
}
"""Types of the items in a config's lists."""
