"""Names by which users say which of the authors' functions samples: `function`, or with its class and module."""

from collections.abc import Sequence


def is_named(full: str, given: str) -> bool:
    """Return whether a name, which may lack its module or its class, is that of a function.

    Args:
        full: module, class and function, with dots.
    """
    parts, wanted = full.split("."), given.split(".")
    return parts[-1] == wanted[-1] and wanted == [one for one in parts if one in wanted][-len(wanted) :]


def short_names(full: Sequence[str]) -> list[str]:
    """Return for each function the shortest of its names, at its end, that no other one has."""
    found = []
    for one in full:
        parts = one.split(".")
        tails = [".".join(parts[-count:]) for count in range(1, len(parts) + 1)]
        others = [other for other in full if other != one]
        found.append(
            next((tail for tail in tails if not any(f".{other}".endswith(f".{tail}") for other in others)), one)
        )
    return found
