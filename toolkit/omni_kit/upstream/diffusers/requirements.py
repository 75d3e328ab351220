"""The packages that diffusers itself needs: whatever is written for it may import them."""

import re
import sys
from functools import cache
from importlib.metadata import PackageNotFoundError, packages_distributions, requires

_NAME = re.compile(r"^[A-Za-z0-9._-]+")
_EXTRA = re.compile(r"extra\s*==\s*['\"](\w+)['\"]")
# What it needs for models; its pipelines and training scripts import the others where they are installed.
_EXTRAS = ("torch",)
_ALWAYS = frozenset({"diffusers", "torch", "numpy", "transformers"})


@cache
def importable() -> frozenset[str]:
    """Return the names under which models and pipelines of diffusers can import packages, Python's own included."""
    try:
        wanted = [one for one in requires("diffusers") or () if _needed(one)]
    except PackageNotFoundError:
        wanted = []
    names = {_plain(match[0]) for one in wanted if (match := _NAME.match(one))}
    found = {name for name, owners in packages_distributions().items() if names & {*map(_plain, owners)}}
    return frozenset({*found, *_ALWAYS, *sys.stdlib_module_names})


def _needed(requirement: str) -> bool:
    extra = _EXTRA.search(requirement)
    return extra is None or extra[1] in _EXTRAS


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
