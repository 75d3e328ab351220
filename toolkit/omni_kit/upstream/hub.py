"""A repository on the hub, read through the hub client: configs whole, weights by the ranges of their headers."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from typing import Any

from omni_kit.errors import BadInput, MissingRequirement

SCHEME = "hf://"
_PATIENCE = 2.0  # seconds for a first answer


@dataclass(frozen=True)
class HubRepo:
    """`hf://org/name`, optionally `@revision`."""

    repo_id: str
    revision: str | None = None

    def __str__(self) -> str:
        return f"{SCHEME}{self.repo_id}" + (f"@{self.revision}" if self.revision else "")


def parse_hub(given: str) -> HubRepo:
    """Understands `hf://org/name[@revision]`.

    Raises:
        BadInput: it is not of that form.
    """
    name, _, revision = given.removeprefix(SCHEME).partition("@")
    if name.count("/") != 1 or not all(name.split("/")):
        raise BadInput(f"'{given}' is not a repository", "write hf://org/name or hf://org/name@revision")
    return HubRepo(name, revision or None)


def hub_file(repo: HubRepo, name: str) -> Path | None:
    """Return a small file of the repository, downloaded to the client's cache; None when the repository has no such
    file.

    Raises:
        BadInput: there is no such repository.
        MissingRequirement: the hub cannot be reached.
    """
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    with _hub_errors(repo):
        try:
            cached = not _answers()
            return Path(hf_hub_download(repo.repo_id, name, revision=repo.revision, local_files_only=cached))
        except LocalEntryNotFoundError:  # it is also an EntryNotFoundError, and means that nothing answered
            raise
        except EntryNotFoundError:
            return None


def hub_headers(
    repo: HubRepo,
) -> tuple[dict[str, dict[str, tuple[str, tuple[int, ...], int, int]]], dict[str, str]]:
    """Headers of all shards: file name -> key -> (dtype, shape, begin, end); and the metadata of the first.

    Raises:
        BadInput: no such repository, or one without safetensors.
        MissingRequirement: the hub cannot be reached.
    """
    from huggingface_hub import get_safetensors_metadata

    if not _answers():
        raise MissingRequirement(f"the hub cannot be reached for {repo}", "pass a local directory")
    with _hub_errors(repo):
        metadata = get_safetensors_metadata(repo.repo_id, revision=repo.revision)
    files = dict(sorted(metadata.files_metadata.items()))
    headers: dict[str, dict[str, tuple[str, tuple[int, ...], int, int]]] = {
        name: {key: (t.dtype, tuple(t.shape), *t.data_offsets) for key, t in file.tensors.items()}
        for name, file in files.items()
    }
    return headers, dict(next((file.metadata for file in files.values()), {}))


def _answers() -> bool:
    """Return whether the hub answers at all, and soon: its client would try again and again for half a minute."""
    from huggingface_hub import constants, get_session

    said: Queue[bool] = Queue()

    def ask() -> None:
        try:
            get_session().head(constants.ENDPOINT, timeout=_PATIENCE)
            said.put(True)
        except Exception:  # whatever a client raises for a name that is not found, a port that is closed, no route
            said.put(False)

    # looking a name up knows no limit of time, so somebody else waits for it
    Thread(target=ask, daemon=True).start()
    try:
        return said.get(timeout=_PATIENCE)
    except Empty:
        return False


@contextmanager
def _hub_errors(repo: HubRepo) -> Iterator[None]:
    """The client's errors as ours: one line each."""
    import httpx
    from huggingface_hub import errors

    offline = (errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled, errors.HfHubHTTPError, httpx.HTTPError)
    absent: tuple[Any, ...] = (errors.RepositoryNotFoundError, errors.RevisionNotFoundError, errors.HFValidationError)
    try:
        yield
    except absent as error:
        raise BadInput(
            f"{repo} is not on the hub, or is private", "check the name; log in with 'hf auth login'"
        ) from error
    except (errors.NotASafetensorsRepoError, errors.SafetensorsParsingError) as error:
        raise BadInput(f"{repo} has no readable safetensors files") from error
    except offline as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise MissingRequirement(f"the hub cannot be reached for {repo}: {reason}", "pass a local directory") from error
