"""Composition of batches with media: the items of each row, in order.

A row is written as its pieces, one letter each: T and L a short and a long piece of text, I an image, V a film, S a
sound. Media of one kind in one batch are of different sizes.
"""

from collections.abc import Mapping, Sequence

Rows = Sequence[str]

EVERYTHING: Rows = ("TITVTST", "TITST")
# As one sample is, or several that real runs pack into one row.
SCENES: Mapping[str, Rows] = {
    "text alone": ("L",),
    "an image": ("TIT",),
    "an image at the start": ("IT",),
    "an image at the end": ("TI",),
    "two images": ("TITIT",),
    "a film": ("TVT",),
    "two films": ("VTVT",),
    "a film, then an image": ("TVTIT",),
    "images and films": ("TITVITVT",),
    "a sound": ("TST",),
    "sounds": ("STSTST",),
    "a sound, a film and an image": ("TSTVTITST",),
    "samples with images and without": ("TIT", "T", "TITI"),
    "samples of different media": ("TIT", "T", "VT", "TVTITI"),
    "samples with sounds and without": ("TST", "T", "STITST"),
}
# For processes that share each sequence: media in one part, across a cut, in no part, in lengths that need padding.
SHARED: Mapping[str, Sequence[Rows]] = {
    "text alone": (("LT",),),
    "an image in the first part": (("TILL",),),
    "an image in the last part": (("LLTI",),),
    "images across the cuts": (("TIIT",),),
    "a film next to other samples": (("TVT", "LT"),),
    "images and films": (("TIT", "LVTIT"),),
    "a sound": (("TSTST",),),
}
# For processes that take samples of their own: the parts of four, of which two take every second one.
APART: Mapping[str, Sequence[Rows]] = {
    "text alone": (("T",), ("L",), ("TT",), ("LT",)),
    "images in one process": (("TIT",), ("T",), ("IT",), ("L",)),
    "films in one process": (("T",), ("TVT",), ("L",), ("VT",)),
    "an image here, a film there": (("TIT",), ("TVT",), ("TITIT",), ("TVT",)),
    "sounds in one process": (("TST",), ("T",), ("TSTST",), ("L",)),
    "a sound here, an image there": (("TST",), ("TIT",), ("STT",), ("TIT",)),
}


def with_kinds(rows: Rows, kinds: str) -> bool:
    """Return whether all media of a batch are among `kinds`: letters, with a bar between those that no batch has
    together.
    """
    return any(set("".join(rows)) <= {*one, "T", "L"} for one in kinds.split("|"))
