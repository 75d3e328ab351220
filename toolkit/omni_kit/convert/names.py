"""Renaming of parameters, of an optimizer's states of them, and of lists of names. Pure."""

import re
from collections.abc import Mapping
from itertools import chain
from typing import Any

from omni_kit.errors import BadInput

# How the states of a flat optimizer begin: "state.PARAMETER.exp_avg", "param_groups.PARAMETER.lr"
_STATES = ("state.", "param_groups.")


class Names:
    """Old parameter name -> new name, with `*` for each number.

    Raises:
        BadInput: a new name has more or fewer `*` than the old one.
    """

    def __init__(self, patterns: Mapping[str, str]) -> None:
        wrong = next((f"{old} -> {new}" for old, new in patterns.items() if old.count("*") != new.count("*")), None)
        if wrong is not None:
            raise BadInput(f"{wrong} has more index groups on one side", "rename these parameters by hand")
        self._patterns = patterns
        self._forms = {old: re.escape(old).replace(r"\*", "([0-9]+)") for old in patterns}
        self._found: set[str] = set()

    @property
    def missing(self) -> list[str]:
        """Return the old names that no key has had so far."""
        return [old for old in self._patterns if old not in self._found]

    def of(self, name: str) -> str:
        """Return the new name of a parameter or of an optimizer's state; the same name if it is not renamed."""
        head = next((head for head in _STATES if name.startswith(head)), "")
        end = len(name)
        while end > len(head):
            if new := self._parameter(name[len(head) : end]):
                return f"{head}{new}{name[end:]}"
            end = name.rfind(".", 0, end) if head else 0
        return name

    def _parameter(self, name: str) -> str | None:
        for old, form in self._forms.items():
            if match := re.fullmatch(form, name):
                self._found.add(old)
                words = self._patterns[old].split("*")
                return "".join(chain(*zip(words, (*match.groups(), ""), strict=True)))
        return None

    def within(self, value: Any) -> Any:
        """Return a value with every name in its lists, tuples, sets and mappings renamed; all else in it stays as it
        is.
        """
        if isinstance(value, str):
            return self.of(value)
        if isinstance(value, dict):
            return {self.within(key): self.within(item) for key, item in value.items()}
        return type(value)(map(self.within, value)) if type(value) in (list, tuple, set) else value

    def stand_in(self, content: bytes) -> bool:
        """Return whether an old name can be read somewhere in these bytes."""
        return any(re.search(form.encode(), content) for form in self._forms.values())


def distinct(renamed: dict[str, str]) -> dict[str, str]:
    """Return the new name of every key.

    Raises:
        BadInput: two keys would be called the same.
    """
    owners: dict[str, str] = {}
    for old, new in renamed.items():
        if new in owners:
            raise BadInput(f"{owners[new]} and {old} would both be renamed to {new}", "remove the unused one")
        owners[new] = old
    return renamed
