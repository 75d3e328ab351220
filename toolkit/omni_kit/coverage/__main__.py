"""Covers what was asked for, and writes or prints the page."""

import argparse
from pathlib import Path

import omni_kit.coverage
from omni_kit.coverage import denoisers, language
from omni_kit.files import write_atomic

_FAMILIES = {"language": language, "denoisers": denoisers}


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m omni_kit.coverage",
        description=omni_kit.coverage.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("family", choices=_FAMILIES)
    parser.add_argument("names", nargs="*", metavar="NAME", help="every one by default")
    parser.add_argument("--into", type=Path, help="the page to write; printed by default")
    given = parser.parse_args()
    family = _FAMILIES[given.family]
    page = family.page(family.cover(given.names or family.names()))
    if given.into:
        write_atomic(given.into, page)
    else:
        print(page, end="")


if __name__ == "__main__":
    main()
