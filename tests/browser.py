"""A real browser for tests that look at a page: headless Chromium, spoken to in its own protocol over two pipes."""

import base64
import json
import os
import shutil
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

# Where this is set, a browser must be there: CI's machine installs one.
REQUIRED = "OMNI_KIT_REQUIRE_BROWSER"
_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def find_browser() -> str:
    """The installed browser; skips the test where there is none, and fails it where there must be one."""
    found = next((path for name in _NAMES if (path := shutil.which(name))), None)
    if found is None and os.environ.get(REQUIRED):
        pytest.fail(f"{REQUIRED} is set and no Chromium is installed: apt-get install chromium")
    if found is None:
        pytest.skip("no Chromium is installed: apt-get install chromium")
    return found


class Page:
    """One page in a browser of its own. Use as a context manager.

    Args:
        file: what to open.
        width: of the window, in pixels.
        dark: what the page hears when it asks which colours the user prefers.

    Attributes:
        events: what the browser has told so far.
    """

    def __init__(self, file: Path, profile: Path, *, width: int, dark: bool = False) -> None:
        self._process, self._write, self._read = _start(find_browser(), profile)
        self._unread, self._number, self._session = b"", 0, ""
        self.events: list[dict[str, Any]] = []
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.ask(f"{domain}.enable")
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", features=[scheme])
        self.ask("Page.navigate", url=file.resolve().as_uri())
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self._receive()

    def __enter__(self) -> "Page":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        os.close(self._write)
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._read)

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Sends a command and returns its answer."""
        self._number += 1
        command: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            command["sessionId"] = self._session
        os.write(self._write, json.dumps(command).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return dict(answer["result"])

    def run(self, script: str) -> Any:
        """The value of an expression in the page."""
        answer = self.ask("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def screenshot(self, file: Path) -> None:
        """Writes the whole page as a PNG."""
        answer = self.ask("Page.captureScreenshot", captureBeyondViewport=True)
        file.write_bytes(base64.b64decode(answer["data"]))

    @property
    def requests(self) -> list[str]:
        """What the page has asked the network for, itself left out."""
        urls = [event["params"]["request"]["url"] for event in self._of("Network.requestWillBeSent")]
        return [url for url in urls[1:] if not url.startswith("data:")]

    @property
    def complaints(self) -> list[str]:
        """Errors and warnings of the console."""
        logged = [event["params"]["entry"]["text"] for event in self._of("Log.entryAdded")]
        raised = [str(event["params"]) for event in self._of("Runtime.exceptionThrown")]
        return [*logged, *raised, *(str(event["params"]) for event in self._of("Runtime.consoleAPICalled"))]

    def _of(self, method: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["method"] == method]

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._unread:
            chunk = os.read(self._read, 1 << 16)
            assert chunk, "the browser has ended"
            self._unread += chunk
        line, _, self._unread = self._unread.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        if "method" in message:
            self.events.append(message)
        return message


def _start(browser: str, profile: Path) -> tuple[subprocess.Popen[bytes], int, int]:
    """The process, where to write to it, and where to read from it: descriptors 3 and 4 on its side."""
    theirs_in, ours_out = os.pipe()
    ours_in, theirs_out = os.pipe()
    flags = [
        "--headless=new",
        "--remote-debugging-pipe",
        "--no-sandbox",
        "--disable-gpu",
        "--no-first-run",
        "--disable-dev-shm-usage",
        "--hide-scrollbars",
        f"--user-data-dir={profile}",
    ]

    def connect() -> None:
        inner, outer = os.dup(theirs_in), os.dup(theirs_out)  # neither may be in the way of the other
        os.dup2(inner, 3)
        os.dup2(outer, 4)

    process = subprocess.Popen(
        [browser, *flags],
        preexec_fn=connect,
        pass_fds=(3, 4),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(theirs_in)
    os.close(theirs_out)
    return process, ours_out, ours_in
