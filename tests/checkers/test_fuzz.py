"""Random changes to what check reads: an exit code of the contract, one object, no accident, nothing left behind.

Seeds are fixed. `make test` takes a few; `make test-all` takes many more.
"""

import json
import random
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from omni_kit.authenticated_cache import write_keyed
from tests.conftest import run_cli

_FEW, _MANY = 2, 400
_SECONDS = 30
_STRANGE: list[Any] = [None, True, -1, 1e308, "", "x", "\ud800", [], {}, [[]], {"rule": 1}, "VEO101", 10**30]
_TOKENS = [
    "(", ")", "[", "]", "{", ":", "\\", "\t", "\0", '"""', "'", "#", "\r", "\ufeff", "lambda ", "class C(C): pass\n",
    "async ", "yield ", "*", "config = config\n", "del config\n", "if x:\n", "    ", "raise\n", "exec('x')\n", "é",
    "def ",
    "while True: pass\n", "import os\n", "from . import *\n", "@config.add_helper\n", "return\n", "f'{", "\x0c",
]  # fmt: skip
_SETTINGS = (
    '[tool.omni-kit.check]\nselect = ["OMK"]\nignore = []\nstrict = false\nper-file-ignores = {"a" = ["VEO1"]}\n'
)
Door = Callable[[Path, random.Random], list[str]]


def _text_changed(text: str, dice: random.Random) -> str:
    """A text with a part taken out, doubled, cut off, or with tokens put in."""
    for _ in range(dice.randint(1, 4)):
        one, two = sorted(dice.randrange(len(text) + 1) for _ in range(2))
        two = min(two, one + 200)
        text = dice.choice(
            [
                text[:one] + dice.choice(_TOKENS) + text[one:],
                text[:one] + text[two:],
                text[:two] + text[one:],
                text[:one] + dice.choice(_TOKENS) * dice.choice([1, 50, 3000]) + text[one:],
                text[:one] if dice.random() < 0.1 else text,
            ]
        )
    return text


def _json_changed(value: Any, dice: random.Random) -> Any:
    """A value with something strange in one place."""
    if dice.random() < 0.2 or not isinstance(value, (dict, list)) or not value:
        return dice.choice(_STRANGE)
    key = dice.choice(list(value)) if isinstance(value, dict) else dice.randrange(len(value))
    copy = value.copy()
    copy[key] = _json_changed(copy[key], dice)
    if dice.random() < 0.1:
        del copy[key]
    return copy


def _write(file: Path, text: str) -> None:
    file.write_bytes(text.encode("utf-8", "surrogatepass"))


def _words_changed(text: str, dice: random.Random) -> str:
    """A text with lines gone or doubled, and names in the place of others: often still Python."""
    lines = text.splitlines(keepends=True)
    words = sorted(set(re.findall(r"[A-Za-z_]\w+", text)))
    for _ in range(dice.randint(1, 6)):
        at = dice.randrange(len(lines))
        kind = dice.random()
        if kind < 0.15:
            del lines[at]
        elif kind < 0.3:
            lines.insert(at, lines[at])
        else:
            found = re.findall(r"[A-Za-z_]\w+", lines[at]) or ["x"]
            lines[at] = lines[at].replace(
                dice.choice(found), dice.choice([*words, "None", "3", "'x'", "[]", "()", "*x"])
            )
        lines = lines or ["\n"]
    return "".join(lines)


def _python(model: Path, dice: random.Random) -> list[str]:
    file = dice.choice([file for file in sorted(model.rglob("*.py")) if file.read_text(encoding="utf-8")])
    change = dice.choice([_text_changed, _words_changed, _words_changed])
    _write(file, change(file.read_text(encoding="utf-8"), dice))
    return ["--no-cache"]


def _settings(model: Path, dice: random.Random) -> list[str]:
    file = model.parent / "gate.toml"
    _write(file, _text_changed(_SETTINGS, dice))
    return ["--config", str(file), "--no-cache"]


def _baseline(model: Path, dice: random.Random) -> list[str]:
    entry = {"rule": "VEO101", "path": "olmoe/__init__.py", "text": "x", "message": "wrong"}
    file = model.parent / "known.json"
    text = json.dumps(_json_changed({"schema": "omni-kit/baseline/1", "findings": [entry, entry]}, dice))
    _write(file, _text_changed(text, dice) if dice.random() < 0.3 else text)
    return ["--baseline", str(file), "--no-cache", "--select", "OMK"]


def _cache(model: Path, dice: random.Random) -> list[str]:
    for file in (model.parent / "cache").rglob("*.json"):
        _, _, text = file.read_text(encoding="utf-8").partition("\n")  # the first line is its code
        write_keyed(file, json.dumps(_json_changed(json.loads(text), dice)))
        if dice.random() < 0.3:
            _write(file, _text_changed(file.read_text(encoding="utf-8"), dice))
    return []


DOORS: dict[str, Door] = {"python": _python, "settings": _settings, "baseline": _baseline, "cache": _cache}


def _files(root: Path) -> dict[Path, bytes]:
    """Every file below a directory but those of the cache."""
    return {file: file.read_bytes() for file in root.rglob("*") if file.is_file() and "cache" not in file.parts}


def _try(door: str, seed: int, olmoe: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = root / str(seed) / "olmoe"
    shutil.copytree(olmoe, model)
    monkeypatch.chdir(model.parent)
    monkeypatch.setenv("OMNI_KIT_CACHE", str(model.parent / "cache"))
    if door == "cache":
        (model / "more.py").write_text("def (:\n", encoding="utf-8")
        assert run_cli("check", str(model))[0] == 1
    arguments = DOORS[door](model, random.Random(f"{door} {seed}"))
    before = {
        file: file.read_bytes() for file in model.parent.rglob("*") if file.is_file() and "cache" not in file.parts
    }
    started = time.perf_counter()
    code, answer = run_cli("check", str(model), *arguments)
    assert time.perf_counter() - started < _SECONDS
    assert code in {0, 1, 2}, answer
    assert "Traceback" not in json.dumps(answer)
    assert "\n" not in answer.get("error", "")
    assert "failed" not in answer.get("error", "")
    assert not [finding for finding in answer.get("findings", []) if finding["rule"] == "OMK003"], answer["findings"]
    after = {
        file: file.read_bytes() for file in model.parent.rglob("*") if file.is_file() and "cache" not in file.parts
    }
    assert after == before
    if door == "cache":
        assert code == 1
    shutil.rmtree(model.parent)


@pytest.mark.parametrize("door", DOORS)
def test_a_few(door: str, olmoe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(_FEW):
        _try(door, seed, olmoe, tmp_path, monkeypatch)


@pytest.mark.sweep
@pytest.mark.parametrize("door", DOORS)
def test_many(door: str, olmoe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(_FEW, _MANY):
        _try(door, seed, olmoe, tmp_path, monkeypatch)
