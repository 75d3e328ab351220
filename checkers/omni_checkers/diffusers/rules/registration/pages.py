"""The rule about what belongs to a pipeline outside of the package: DFU321."""

import re
from functools import lru_cache
from pathlib import Path

from omni_checkers.diffusers.examples import CONFIG_MIXIN
from omni_checkers.engine.places import at
from omni_checkers.engine.rule import Findings, NotApplicable, Rule, Severity
from omni_kit.files import files_matching
from omni_kit.pysource.classes import ClassRef
from omni_kit.upstream.diffusers.package import package_root

_WORD = re.compile(r"\w+")
_PAGES, _TESTS = "docs/source/en/api", "tests"
_TOC = "docs/source/en/_toctree.yml"
_PIPELINE = {
    "src/diffusers/__init__.py": "",
    "src/diffusers/pipelines/lumen/__init__.py": "",
    "src/diffusers/pipelines/lumen/pipeline_lumen.py": (
        "from ..pipeline_utils import DiffusionPipeline\n\n\nclass LumenPipeline(DiffusionPipeline):\n    pass\n"
    ),
}
_PAGE = {
    f"{_PAGES}/pipelines/lumen.md": "# Lumen\n\n[[autodoc]] LumenPipeline\n",
    _TOC: "- local: api/pipelines/lumen\n",
}
_TEST = {"tests/pipelines/lumen/test_lumen.py": "from diffusers import LumenPipeline\n"}


class PipelinesHavePagesAndTests(Rule):
    """In a checkout, give each pipeline a documentation page, an entry in the table of contents, and a test.

    Why: users do not find a pipeline without a page, and later changes break a pipeline without a test. Reviewers
    require both.

    Fine when: the class is an old name, or a part of another pipeline.
    """

    id = "DFU321"
    name = "pipelines-have-pages-and-tests"
    target = "diffusers"
    severity = Severity.warning
    obligations = ("DIF-13", "DIF-14")
    BAD = (
        {**CONFIG_MIXIN, **_PIPELINE, **_TEST, _TOC: ""},
        {**CONFIG_MIXIN, **_PIPELINE, **_PAGE, f"{_TESTS}/test_flux.py": "from diffusers import FluxPipeline\n"},
    )
    GOOD = ({**CONFIG_MIXIN, **_PIPELINE, **_PAGE, **_TEST},)

    def check(self, path: Path, pipelines: list[ClassRef]) -> Findings:
        root = package_root(path)
        checkout = root.parent.parent if root is not None else path
        if root is None or root.parent.name != "src":
            raise NotApplicable("not a checkout of diffusers")
        shown, listed, named = _shown(checkout), _table(checkout), _named(checkout / _TESTS)
        for cls in pipelines:
            name = cls.node.name
            if name[0] == "_" or "deprecated" in cls.source.path.parts:
                continue
            pages = shown.get(name, [])
            if (checkout / _TOC).is_file() and not pages:
                yield at(cls.source, cls.node, f"no page below {_PAGES} shows {name}: [[autodoc]] {name}")
            elif pages and not any(page in listed for page in pages):
                yield at(cls.source, cls.node, f"{_TOC} does not list {pages[0]}, which shows {name}")
            if named and name not in named:
                yield at(cls.source, cls.node, f"no test below {_TESTS} names {name}")


@lru_cache(maxsize=16)
def _shown(checkout: Path) -> dict[str, list[str]]:
    """Class -> the pages that show it, as a table of contents calls them."""
    found: dict[str, list[str]] = {}
    for file in files_matching(checkout / _PAGES, "**/*.md"):
        place = file.relative_to(checkout / _PAGES).with_suffix("").as_posix()
        for name in re.findall(r"\[\[autodoc\]\]\s+([\w.]+)", file.read_text(encoding="utf-8")):
            found.setdefault(name.rpartition(".")[2], []).append(f"api/{place}")
    return found


@lru_cache(maxsize=16)
def _table(checkout: Path) -> frozenset[str]:
    """Return the pages that the table of contents lists."""
    file = checkout / _TOC
    return frozenset(re.findall(r"local:\s*(\S+)", file.read_text(encoding="utf-8")) if file.is_file() else ())


@lru_cache(maxsize=64)
def _named(folder: Path) -> frozenset[str]:
    """Return all words in the tests; empty without tests."""
    return frozenset(
        word for file in files_matching(folder, "**/*.py") for word in _WORD.findall(file.read_text(encoding="utf-8"))
    )
