"""Cover the requested models, and write or print the page."""

import argparse
import sys
from pathlib import Path

import omni_kit.coverage
from omni_kit.coverage import conversions, denoisers, handwritten, language, ports, served
from omni_kit.coverage.case import in_shares, renewed
from omni_kit.coverage.facts import CHECKED, Facts, all_names, collect, names_of, quick_names
from omni_kit.coverage.versions import LEAST_EXPLAINED, compare, page
from omni_kit.files import write_atomic

_FAMILIES = {"language": language, "denoisers": denoisers, "served": served}


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m omni_kit.coverage",
        description=omni_kit.coverage.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for name in _FAMILIES:
        family = commands.add_parser(name, help=f"bring every one of these models through the whole path: {name}")
        family.add_argument(
            "names", nargs="*", metavar="NAME", help="every one by default; a page that --into names keeps other rows"
        )
    ported = commands.add_parser("ports", help="port public repositories into diffusers; fetches them with git")
    ported.add_argument(
        "names", nargs="*", metavar="OWNER/NAME", help="every one by default; a page that --into names keeps other rows"
    )
    converted = commands.add_parser("conversions", help="compare ports' conversions of checkpoints with diffusers' own")
    converted.add_argument("names", nargs="*", metavar="OWNER/NAME", help="every one by default")
    beside = commands.add_parser("handwritten", help="compare what is derived with the integrations that VeOmni ships")
    beside.add_argument("names", nargs="*", metavar="NAME", help="every one by default")
    facts = commands.add_parser("facts", help="collect what is decided on the installed libraries")
    facts.add_argument("--quick", action="store_true", help="two models of each kind")
    facts.add_argument("--like", type=Path, metavar="FILE", help="the models of facts that were collected before")
    versions = commands.add_parser("versions", help="compare facts; exit 1 where too many are not explained")
    versions.add_argument("facts", nargs="+", type=Path, metavar="FILE", help="the base, then the others")
    for command in commands.choices.values():
        command.add_argument("--into", type=Path, help="the file to write; printed by default")
    given = parser.parse_args()
    text, code = _done(given)
    if given.into:
        write_atomic(given.into, text)
    else:
        print(text, end="")
    sys.exit(code)


def _done(given: argparse.Namespace) -> tuple[str, int]:
    """Return the text to write, and the exit code."""
    if given.command in _FAMILIES:
        family = _FAMILIES[given.command]
        cases = in_shares(given.names or family.names(), family.cover_one)
        if before := _before(given):
            cases = renewed(before, cases)
        return family.page(cases), 0
    if given.command == "ports":
        return ports.page([*ports.cover(ports.repositories(given.names))], _before(given)), 0
    if given.command == "conversions":
        return conversions.page([*conversions.cover(ports.repositories(given.names))]), 0
    if given.command == "handwritten":
        return handwritten.page(given.names or handwritten.names()), 0
    if given.command == "facts":
        return _facts(given.quick, given.like).dump(), 0
    base, *others = (Facts.load(file.read_text(encoding="utf-8")) for file in given.facts)
    compared = [compare(base, other) for other in others]
    for one in compared:
        print(f"{one.other.versions}: {one.share():.1%} alike or explained", file=sys.stderr)
    return page(compared), int(any(one.share() < LEAST_EXPLAINED for one in compared))


def _before(given: argparse.Namespace) -> str:
    """Return the page to write as it is, if names renew some of its rows; otherwise an empty text."""
    return given.into.read_text(encoding="utf-8") if given.names and given.into and given.into.is_file() else ""


def _facts(quick: bool, like: Path | None) -> Facts:
    if like is not None:
        names, checked = names_of(Facts.load(like.read_text(encoding="utf-8")))
        return collect(names if quick else [*names, *(name for name in all_names() if name not in names)], checked)
    return collect(quick_names(), CHECKED[1:3]) if quick else collect(all_names(), CHECKED)


if __name__ == "__main__":
    main()
