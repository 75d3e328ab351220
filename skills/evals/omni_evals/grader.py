"""Checks that graders share: the verdict of the gate, unchanged files, and answers given as data."""

import json
from pathlib import Path
from typing import Any

from .digests import changed
from .gate import Answer, ask


class Missed(Exception):
    """A requirement is not met; the words say which."""


class Grader:
    """Looks at a project after an agent has worked in it. Every method raises Missed at the first thing amiss.

    Args:
        app: the project.
        state: what is remembered of it from before.
    """

    def __init__(self, app: Path, state: Path):
        self.app = app
        self.state = state

    def need(self, holds: object, why: str) -> None:
        """Requires what a task alone knows."""
        if not holds:
            raise Missed(why)

    def untouched(self, *but: str) -> None:
        """Files that were handed out are as they were, apart from those that fit a pattern (`*` crosses folders)."""
        names = changed(self.app, self.state, but)
        self.need(not names, f"changed or gone: {', '.join(names[:5])}")

    def absent(self, *paths: str) -> None:
        """None of these may be there."""
        found = [path for path in paths if (self.app / path).exists()]
        self.need(not found, f"there should be no {', '.join(found)}")

    def clean(self, path: str, level: str = "static") -> Answer:
        """The gate finds nothing but notes, nothing is silenced, and something was checked."""
        answer = self._ask("check", self.app / path, "--level", level, "--full")
        wrong = [found for found in answer.data["findings"] if found["severity"] != "info"]
        self.need(answer.code == 0 and not wrong, f"check {path}: {[(f['rule'], f['message']) for f in wrong][:3]}")
        self.need(not answer.data["suppressed"], f"{path}: {answer.data['suppressed']} findings are silenced")
        return answer

    def generated(self, path: str) -> set[str]:
        """Each patch config of an integration has its output, which is what it generates; the targets patched."""
        files = sorted((self.app / path).glob("*_patch_gen_config.py"))
        self.need(files, f"{path} has no patch config")
        answer = self._ask("patchgen", "check", *files)
        configs = answer.data["configs"]
        self.need(answer.code == 0, f"patchgen check {path}: {[(c['config'], c['status']) for c in configs]}")
        return {patch["target"] for config in configs for patch in config["patches"]}

    def same(self, path: str, *levels: str) -> Answer:
        """Parity passes on these levels, or on the default ones, all of them."""
        chosen = ("--levels", ",".join(levels)) if levels else ()
        answer = self._ask("parity", self.app / path, *chosen)
        states = {level["level"]: level["status"] for level in answer.data["levels"]}
        self.need(answer.code == 0, f"parity {path}: {states}")
        return answer

    def levels(self, path: str) -> list[dict[str, Any]]:
        """Return the results of parity's default levels, passed or not."""
        return list(self._ask("parity", self.app / path).data["levels"])

    def divergence(self, path: str) -> str:
        """The module that parity names as the first that adds an error of its own."""
        answer = self._ask("parity", self.app / path, "--levels", "modules")
        return str((answer.data["first_divergence"] or {}).get("module"))

    def told(self, path: str, form: type = dict) -> Any:
        """The data of a JSON file that the request asks for; an object, or what `form` says."""
        file = self.app / path
        self.need(file.is_file(), f"there is no {path}")
        try:
            data = json.loads(file.read_text(encoding="utf-8"))
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise Missed(f"{path} is not JSON: {error}") from error
        self.need(isinstance(data, form), f"{path} holds no JSON {form.__name__}")
        return data

    def layout(self, path: str) -> Answer:
        """Return the result of check-layout for a checkpoint, passed or not."""
        return self._ask("check-layout", self.app / path, "--full")

    def _ask(self, *arguments: str | Path) -> Answer:
        answer = ask(*arguments)
        if "error" in answer.data:
            raise Missed(f"{arguments[0]}: {answer.data['error']}")
        return answer
