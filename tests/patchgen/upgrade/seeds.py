"""Seeded changes of upstream, each with the right merged answer; written before the merge was tuned."""

from dataclasses import dataclass

import yaml

from tests.patchgen.conftest import FIXTURES

MODELING = "models/a/modeling_a.py"


@dataclass(frozen=True)
class Seed:
    """One change of upstream.

    Attributes:
        upstream: (old, new, file of the small library).
        patch: (old, new) in the config: the right answer.
        conflict: targets that are left to a person; their text stays.
        dropped: targets whose patch goes.
    """

    name: str
    upstream: tuple[tuple[str, str, str], ...]
    patch: tuple[tuple[str, str], ...]
    conflict: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()


def read_seeds() -> list[Seed]:
    """The seeds of the fixture tree."""
    found = []
    for one in yaml.safe_load((FIXTURES / "seeds" / "seeds.yaml").read_text(encoding="utf-8")):
        upstream = tuple((edit["old"], edit["new"], edit.get("file", MODELING)) for edit in one["upstream"])
        patch = tuple((edit["old"], edit["new"]) for edit in one["patch"])
        left = tuple(one.get("conflict", ())), tuple(one.get("dropped", ()))
        found.append(Seed(one["name"], upstream, patch, *left))
    return found


SEEDS = read_seeds()
