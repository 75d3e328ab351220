"""hf:// sources, against a local server that answers as the hub does: metadata by HEAD, ranges by GET."""

import hashlib
import re
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from omni_kit.errors import BadInput, MissingRequirement
from omni_kit.layout import check_layout
from omni_kit.upstream.hub import parse_hub
from tests.conftest import Checkpoints, first, run_cli


class Hub(BaseHTTPRequestHandler):
    """One repository, org/toy, with the files of `root`; counts the bytes of weights that it hands out."""

    root: Path
    sent: dict[str, int]

    def do_HEAD(self) -> None:
        self.answer(body=False)

    def do_GET(self) -> None:
        self.answer(body=True)

    def answer(self, body: bool) -> None:
        match = re.fullmatch(r"/org/toy/resolve/main/([\w.-]+)", self.path)
        file = self.root / match[1] if match else None
        if file is None or not file.is_file():
            self.send_response(404)
            self.send_header("X-Error-Code", "EntryNotFound" if match else "RepoNotFound")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        data = file.read_bytes()
        wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range") or "")
        part = data[int(wanted[1]) : int(wanted[2]) + 1] if wanted else data
        self.send_response(206 if wanted else 200)
        self.send_header("Content-Length", str(len(part)))
        self.send_header("ETag", f'"{hashlib.sha256(data).hexdigest()}"')
        self.send_header("X-Repo-Commit", "0" * 40)
        self.end_headers()
        if body:
            self.sent[file.name] = self.sent.get(file.name, 0) + len(part)
            self.wfile.write(part)

    def log_message(self, *_: object) -> None:
        """Nothing on stderr."""


@pytest.fixture
def hub(checkpoint: Checkpoints, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[type[Hub]]:
    import huggingface_hub.constants as constants

    handler = type("OneHub", (Hub,), {"root": checkpoint("olmoe"), "sent": {}})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    endpoint = f"http://127.0.0.1:{server.server_port}"
    for name, value in (("ENDPOINT", endpoint), ("HF_HUB_CACHE", str(tmp_path / "cache")), ("HF_HUB_OFFLINE", False)):
        monkeypatch.setattr(constants, name, value)
    template = endpoint + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr("huggingface_hub.file_download.HUGGINGFACE_CO_URL_TEMPLATE", template, raising=False)
    monkeypatch.setattr("huggingface_hub.hf_api.api.endpoint", endpoint)
    yield handler
    server.shutdown()


def test_headers_are_enough(hub: type[Hub], checkpoint: Checkpoints) -> None:
    remote = check_layout("hf://org/toy")
    local = check_layout(str(checkpoint("olmoe")))
    assert remote.ok
    assert remote.as_json() == local.as_json()


def test_only_headers_are_read(hub: type[Hub], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shard with a hundred megabytes of tensors costs no more than its first hundred kilobytes."""
    import numpy as np
    from safetensors.numpy import save_file

    big = tmp_path / "big"
    big.mkdir()
    save_file({"a": np.zeros(25_000_000, np.float32)}, big / "model.safetensors")
    monkeypatch.setattr(hub, "root", big)
    verdict = check_layout("hf://org/toy")
    assert verdict.total == 1
    assert hub.sent["model.safetensors"] < 200_000


def test_unknown_repository(hub: type[Hub]) -> None:
    with pytest.raises(BadInput, match="is not on the hub"):
        check_layout("hf://org/other")


@pytest.mark.parametrize("given", ["hf://", "hf://org", "hf://org/", "hf://a/b/c", "hf:///b"])
def test_malformed_names(given: str) -> None:
    with pytest.raises(BadInput, match="is not a repository"):
        parse_hub(given)


def test_revision() -> None:
    assert str(parse_hub("hf://org/name@v1")) == "hf://org/name@v1"


def test_unreachable_hub(hub: type[Hub], monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub.constants as constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(MissingRequirement, match="cannot be reached"):
        check_layout("hf://org/toy")
    assert run_cli("inspect", "hf://org/toy")[0] == 3


@pytest.mark.parametrize("how", first(2, ["refused", "silent", "no name"]))
def test_offline_it_fails_at_once(
    hub: type[Hub], how: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A closed port, a host that says nothing, a name server that says nothing for five seconds: one line, sooner."""
    import huggingface_hub.constants as constants
    from huggingface_hub import get_safetensors_metadata, get_session  # noqa: F401, imported before the time counts

    from omni_kit.cli import main

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        if how == "silent":
            listener.listen()
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{listener.getsockname()[1]}")
        if how == "no name":
            looked_up = socket.getaddrinfo

            def slowly(*args: Any, **kwargs: Any) -> Any:
                time.sleep(5)
                return looked_up(*args, **kwargs)

            monkeypatch.setattr(socket, "getaddrinfo", slowly)
        begun = time.monotonic()
        assert main(["check-layout", "hf://org/toy"]) == 3
        assert time.monotonic() - begun < 4.5
    lines = capfd.readouterr().err.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["error", "hint"]


def test_offline_what_was_read_before_is_there(hub: type[Hub], monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub.constants as constants

    assert run_cli("inspect", "hf://org/toy")[0] == 0
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    assert run_cli("inspect", "hf://org/toy")[0] == 0
