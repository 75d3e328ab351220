"""The version that a config was written for."""

from collections.abc import Iterator

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from omni_kit.patchgen.checks.facts import Facts
from omni_kit.patchgen.diagnostics import Diagnostic, error, warning
from omni_kit.patchgen.spec import Origin
from omni_kit.patchgen.upgrade.marks import BEGIN, marks_in
from omni_kit.pysource.source import read_text


def transformers_version(facts: Facts) -> Iterator[Diagnostic]:
    """`transformers_version` does not fit the source: the patches may be written against other code."""
    wanted, found = facts.config.transformers_version, facts.made.version
    if not wanted:
        return
    try:
        exact = wanted if wanted[:1] in "<>=!~" else f"=={wanted}"
        fits = SpecifierSet(exact).contains(Version(found), prereleases=True)
    except InvalidSpecifier:
        yield error(
            "bad-version", f"transformers_version={wanted!r} is not a version or specifier", facts.config.origin
        )
        return
    except InvalidVersion:
        yield warning("version-unknown", f"the source has no version: {wanted} cannot be checked", facts.config.origin)
        return
    if not fits:
        message = (
            f"the config is for {wanted}, the source is {found}; review the patches (patchgen drift), then update it"
        )
        yield error("version-mismatch", message, facts.config.origin)


def open_conflicts(facts: Facts) -> Iterator[Diagnostic]:
    """An upgrade left a conflict to a person, and its mark is still there."""
    loaded = facts.made.loaded
    for path in loaded.siblings or [loaded.path]:
        text = read_text(path)
        for mark in marks_in(text) if BEGIN in text else ():
            message = f"{mark.target}: the upgrade {mark.versions} left a conflict; resolve it, then delete its comment"
            yield warning("open-conflict", message, Origin(str(path), mark.line), [mark.target])
