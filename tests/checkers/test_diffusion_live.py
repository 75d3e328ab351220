"""VEO638, which builds wrappers over classes of diffusers: its examples and variants in one run of processes."""

import shutil
from pathlib import Path

import pytest

from omni_checkers import Report, check, find_rule
from tests.conftest import sampled

from .conftest import Edits, asked, home_of
from .variants import read_variants

RULE = "VEO638"
EXAMPLES: list[tuple[str, bool, Edits, str]] = [
    *((f"bad-{number}", True, edits, "") for number, edits in enumerate(find_rule(RULE).BAD)),
    *((f"good-{number}", False, edits, "") for number, edits in enumerate(find_rule(RULE).GOOD)),
]
VARIANTS = [(v.name, v.findings > 0, v.edits, v.says) for v in read_variants() if v.rule == RULE]
CASES = [*EXAMPLES, *VARIANTS]
_DICT = "the config is not put back when writing fails"
OWN = [("wan_t2v", [_DICT]), ("qwen_image", [_DICT]), ("ltx2_3", []), ("minimax_h3", [])]
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
def reports(
    request: pytest.FixtureRequest, veomni_models: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[tuple[str, int], Report]:
    """What each test of this session asks for, in one run."""
    root, wan = tmp_path_factory.mktemp("diffusion"), home_of(veomni_models, "wan_t2v")
    paths = {
        (test, number): _plugin(wan, root / str(number), CASES[number][2])
        if test == "test_case"
        else home_of(veomni_models, OWN[number][0])
        for test, number in asked(request)
    }
    whole = check([*paths.values()], select=[RULE], level="import")
    return {
        case: Report(
            findings=[finding for finding in whole.findings if finding.path.is_relative_to(path)],
            results=[result for result in whole.results if result.model == path and result.rule == RULE],
        )
        for case, path in paths.items()
    }


@pytest.mark.sweep
@pytest.mark.parametrize("number", sampled(range(len(CASES)), *range(len(EXAMPLES))), ids=[case[0] for case in CASES])
def test_case(number: int, reports: dict[tuple[str, int], Report]) -> None:
    _, broken, _, says = CASES[number]
    report = reports["test_case", number]
    assert bool(report.findings) == broken, report.findings
    assert [result.status for result in report.results] == ["fail" if broken else "pass"]
    assert not report.findings or any(says in finding.message for finding in report.findings), report.findings


@pytest.mark.sweep
@pytest.mark.parametrize("number", sampled(range(len(OWN)), 0), ids=[model for model, _ in OWN])
def test_veomnis_own(number: int, reports: dict[tuple[str, int], Report]) -> None:
    assert [finding.message for finding in reports["test_veomnis_own", number].findings] == OWN[number][1]
