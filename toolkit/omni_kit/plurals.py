"""Counts in messages."""

import re
from collections.abc import Sized


def counted(things: int | Sized, noun: str) -> str:
    """Return how many things there are, with their noun in the plural unless it is one: "1 finding", "2 classes"."""
    number = things if isinstance(things, int) else len(things)
    if number == 1:
        return f"1 {noun}"
    stem, ending = (noun[:-1], "ies") if re.search("[^aeiou]y$", noun) else (noun, "s")
    return f"{number} {stem}{'es' if re.search('(s|x|ch|sh)$', noun) else ending}"
