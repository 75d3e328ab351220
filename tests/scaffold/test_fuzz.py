"""Answers files of any shape: what is read in them ends in one line, and nothing is written."""

import random
from pathlib import Path

import pytest

from omni_kit.errors import OmniKitError
from omni_kit.record import ANSWERS, BASE
from omni_kit.scaffold import new_model, update

SEED = 20_061


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    root = tmp_path_factory.mktemp("fuzz")
    new_model("m", "llama", target="veomni", into=root)
    return {file.relative_to(root).as_posix(): file.read_bytes() for file in root.rglob("*") if file.is_file()}


def mutated(text: bytes, chance: random.Random) -> bytes:
    """A few bytes changed, a line lost or doubled, a value replaced."""
    lines = text.split(b"\n")
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(lines))
        strange = chance.choice([b"", b"\xff\xfe", b"[", b'x = """', b"name = 3", b"\x00", b'source = "/"', b"[files]"])
        change = chance.choice(["lose", "double", "put", "cut", "byte"])
        if change == "lose":
            lines[at] = b""
        elif change == "double":
            lines.insert(at, lines[at])
        elif change == "put":
            lines.insert(at, strange)
        elif change == "cut":
            lines[at] = lines[at][: chance.randrange(len(lines[at]) + 1)]
        elif lines[at]:
            index = chance.randrange(len(lines[at]))
            lines[at] = lines[at][:index] + bytes([chance.randrange(256)]) + lines[at][index + 1 :]
    return b"\n".join(lines)


def run(count: int, written: dict[str, bytes], root: Path) -> None:
    chance = random.Random(SEED)
    for number in range(count):
        place = root / str(number)
        files = dict(written)
        for name in chance.sample([f"m/{ANSWERS}", f"m/{BASE}"], chance.randint(1, 2)):
            files[name] = mutated(files[name], chance)
        for name, content in files.items():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_bytes(content)
        said = ""
        try:
            update(place / "m", dry_run=True)
        except OmniKitError as error:
            said = error.message
        assert "\n" not in said
        left = {p.relative_to(place).as_posix(): p.read_bytes() for p in place.rglob("*") if p.is_file()}
        assert left == files


def test_some(written: dict[str, bytes], tmp_path: Path) -> None:
    run(8, written, tmp_path)


@pytest.mark.sweep
def test_many(written: dict[str, bytes], tmp_path: Path) -> None:
    run(1500, written, tmp_path)
