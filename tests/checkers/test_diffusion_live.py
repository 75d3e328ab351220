"""VEO638, which builds wrappers over classes of diffusers: its examples and variants in one run of processes."""

import shutil
from pathlib import Path

import pytest

from omni_checkers import Report, check, find_rule

from .conftest import Edits, home_of
from .variants import read_variants

RULE = "VEO638"
EXAMPLES: list[tuple[str, bool, Edits, str]] = [
    *((f"bad-{number}", True, edits, "") for number, edits in enumerate(find_rule(RULE).BAD)),
    *((f"good-{number}", False, edits, "") for number, edits in enumerate(find_rule(RULE).GOOD)),
]
VARIANTS = [(v.name, v.findings > 0, v.edits, v.says) for v in read_variants() if v.rule == RULE]
CASES = [*EXAMPLES, *VARIANTS]
_DICT = "the config is not put back when writing fails"
OWN = {"wan_t2v": [_DICT], "qwen_image": [_DICT], "ltx2_3": [], "minimax_h3": []}
"""After a save that failed, type(model.config) is dict; diffusers has no class to compare the others with."""


def _plugin(wan: Path, place: Path, edits: Edits) -> Path:
    """A copy of VeOmni's Wan outside of VeOmni, so that one run takes all of them."""
    shutil.copytree(wan, place / "wan_t2v", ignore=shutil.ignore_patterns("__pycache__"))
    for name, edit in edits.items():
        assert isinstance(edit, str)
        (place / "wan_t2v" / name).write_text(edit, encoding="utf-8")
    for file in (place / "wan_t2v").rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        text = text.replace("from .....", "from veomni.").replace("from ....", "from veomni.models.")
        file.write_text(text.replace('register("Wan', 'register("MyWan'))  # VeOmni registers the other keys itself
    return place / "wan_t2v"


@pytest.fixture(scope="module")
def reports(veomni_models: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Report]:
    """What each case gave, in order, and VeOmni's own models behind them."""
    root, wan = tmp_path_factory.mktemp("diffusion"), home_of(veomni_models, "wan_t2v")
    paths = [_plugin(wan, root / str(number), case[2]) for number, case in enumerate(CASES)]
    paths += [home_of(veomni_models, name) for name in OWN]
    whole = check(paths, select=[RULE], level="import")
    return [
        Report(
            findings=[finding for finding in whole.findings if finding.path.is_relative_to(path)],
            results=[result for result in whole.results if result.model == path and result.rule == RULE],
        )
        for path in paths
    ]


@pytest.mark.parametrize("number", range(len(CASES)), ids=[case[0] for case in CASES])
def test_case(number: int, reports: list[Report]) -> None:
    _, broken, _, says = CASES[number]
    findings = reports[number].findings
    assert bool(findings) == broken, findings
    assert [result.status for result in reports[number].results] == ["fail" if broken else "pass"]
    assert not findings or any(says in finding.message for finding in findings), findings


@pytest.mark.parametrize(("model", "messages"), OWN.items())
def test_veomnis_own(model: str, messages: list[str], reports: list[Report]) -> None:
    report = reports[len(CASES) + list(OWN).index(model)]
    assert [finding.message for finding in report.findings] == messages
