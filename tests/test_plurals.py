"""Counts and their nouns."""

import pytest

from omni_kit.plurals import counted


@pytest.mark.parametrize(("things", "noun", "said"), [
    (1, "finding", "1 finding"), (0, "finding", "0 findings"), (2, "class", "2 classes"), (3, "branch", "3 branches"),
    (2, "entry", "2 entries"), (2, "key", "2 keys"), ([1], "process", "1 process"), ({}, "more line", "0 more lines"),
])  # fmt: skip
def test_the_noun_fits_the_number(things: int, noun: str, said: str) -> None:
    assert counted(things, noun) == said
