"""Normalised names of arguments: authors have several names for a text and for an image."""

import re

_SPELLINGS = (
    (re.compile(r"encoder_hidden_states|caption|cap|context|(joint|cross)_attention|txt|encodings"), "text"),
    (re.compile(r"image|img|clip|vit"), "image"),
    (re.compile(r"pooled?|global"), "pooled"),
)
_EMPTY = frozenset({"dim", "channel", "hidden", "state", "embed", "size", "num", "in", "out"})
_PLURAL = re.compile(r"(?<=[a-z]{2})(?<=s)es$|(?<=[a-z]{3})(?<!s)s$")
_WORD = re.compile(r"_|(?<=\D)(?=\d)")
_LENGTH = re.compile(r"^(?:num_|max_)?([a-z0-9]+)(?:_seq|_sequence)?_(?:len|length|tokens)$")


def spelled(name: str) -> frozenset[str]:
    """Return the words of a name that tell it from others."""
    return frozenset(_PLURAL.sub("", word) for word in _words(name)) - _EMPTY


def length_of(key: str) -> str:
    """Return whose length a constructor's argument is ("text" of "text_seq_len"); empty for any other argument."""
    found = _LENGTH.match(_one_spelling(key))
    return found[1] if found else ""


def stem(name: str) -> str:
    """Return the first word of a name."""
    return _words(name)[0]


def _words(name: str) -> list[str]:
    return _WORD.split(_one_spelling(name))


def _one_spelling(name: str) -> str:
    for spelling, word in _SPELLINGS:
        name = spelling.sub(word, name)
    return name
