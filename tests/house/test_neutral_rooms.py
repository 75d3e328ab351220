"""Rooms that serve all frameworks name none of them, and arrows between rooms point one way."""

import re
from pathlib import Path

import pytest

import omni_checkers
import omni_kit
from omni_kit.targets.registry import targets

KIT, CHECKERS = (Path(str(package.__file__)).parent for package in (omni_kit, omni_checkers))
ROOT = KIT.parents[1]
# The demo tells one story, about one target, and so does the page of what is proven.
OF_ONE_TARGET = {KIT / "demo.py", KIT / "cli" / "demo.py", KIT / "coverage.py"}
# transformers and diffusers are upstream, too: rooms that read or build upstream's models name them.
UPSTREAM = {"diffusers"}
ROOMS = [
    *(
        KIT / room
        for room in (
            "isolation",
            "pysource",
            "cli",
            "output",
            "layout",
            "convert",
            "patchgen",
            "toys",
            "scaffold",
            "parity",
            "skillpack",
        )
    ),
    *(KIT / f"targets/{name}.py" for name in ("__init__", "protocol", "sides", "registry")),
    KIT / "upstream",
    KIT / "kernels",
    *(file for file in KIT.glob("*.py") if file not in OF_ONE_TARGET),
    *CHECKERS.glob("*.py"),
    CHECKERS / "engine",
    CHECKERS / "codediff",
    CHECKERS / "symbolic",
]


def files() -> list[Path]:
    found = [file for room in ROOMS for file in ([room] if room.is_file() else sorted(room.rglob("*.py")))]
    return [file for file in found if file not in OF_ONE_TARGET]


@pytest.mark.parametrize("name", sorted({*targets(), "sglang"} - UPSTREAM))
def test_no_neutral_room_names_a_framework(name: str) -> None:
    pattern = re.compile(name.replace("-", "[-_]?"), re.IGNORECASE)
    named = [
        f"{file.relative_to(ROOT)}:{number}: {line.strip()}"
        for file in files()
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
        if pattern.search(line)
    ]
    assert named == []


@pytest.mark.parametrize("name", sorted({*targets(), "sglang"} - UPSTREAM))
def test_the_makefile_names_none_either(name: str) -> None:
    assert name not in (ROOT / "Makefile").read_text(encoding="utf-8").lower()


def test_there_is_something_to_look_at() -> None:
    assert len(files()) > 150
