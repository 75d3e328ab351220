"""The page of a report, as a browser shows it."""

import json
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest

from omni_kit.cli import main
from omni_kit.errors import BadInput
from omni_kit.parity import LevelResult, ParityReport, run_parity, write_page
from omni_kit.parity.processes.workers import Sides
from omni_kit.parity.report.page import band, chart, figure, render_page, tree
from omni_kit.parity.report.report import Divergence, Image, InjectionResult, ModuleError, Proof, Worst
from tests.browser import Page
from tests.conftest import SIZES, first

from .conftest import MODELING, Plant

NASTY = "<script>alert('x')</script>"
PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d4944415478da63fccfc0f01f0005050102"
    "cc8e6d3a0000000049454e44ae426082"
)
MODULES = [
    ModuleError("", "Model", True, 0.0, 0.0, 0.4, 3),
    ModuleError("layers.0", "Layer", True, 0.0, 0.0, 0.0, 0),
    ModuleError("layers.1", "Layer", True, 0.5, 0.0, 0.5, 2),
    ModuleError("layers.1.norm", "Norm", True, 1e-7, 0.0, 1e-7, 1),
    ModuleError("layers.1.extra", "Extra", False, 0.0, 0.0, 0.0, 1),
]


@pytest.fixture(scope="module")
def scaled(plant: Plant, sides: Sides) -> ParityReport:
    """Experts that answer one percent too much."""
    edits = {MODELING: [("self.act_fn(gate) * up\n", "self.act_fn(gate) * up * 1.01\n")]}
    return run_parity(plant("paged", edits), sides=sides, every_module=True)


def report(**changes: object) -> ParityReport:
    levels = [LevelResult("forward", "fail", NASTY, 0.5, math.inf, 1e-5, 0.1, worst=(Worst(NASTY, 0.5, 0.5, NASTY),))]
    divergence = Divergence(NASTY, 0.2, 0.0, NASTY, NASTY, NASTY)
    base = ParityReport(NASTY, NASTY, levels, first_divergence=divergence, modules=MODULES, notes=[NASTY])
    return replace(base, **changes)  # type: ignore[arg-type]


def test_every_module_has_its_error(scaled: ParityReport) -> None:
    added = {error.module: error.added for error in scaled.modules}

    experts = {"model.layers.0.mlp.experts", "model.layers.1.mlp.experts"}
    assert {module for module, error in added.items() if error > 1e-5} == experts
    assert next(e for e in scaled.modules if e.module == "model.norm").inherited > 1e-3
    assert scaled.modules[0].module == ""


@pytest.mark.parametrize(("width", "dark"), first(1, [(1280, False), (400, True)]))
def test_a_browser_draws_the_tree_and_the_chart(scaled: ParityReport, tmp_path: Path, width: int, dark: bool) -> None:
    write_page(scaled, tmp_path / "page.html")

    with Page(tmp_path / "page.html", tmp_path / "profile", width=width, dark=dark) as page:
        page.screenshot(tmp_path / "page.png")
        assert (page.requests, page.complaints) == ([], [])
        assert page.run("document.documentElement.scrollWidth") == width, "the page scrolls sideways"
        colour = "getComputedStyle(document.querySelector('[data-module=\"{}\"]')).borderLeftColor"
        bad = page.run(colour.format("model.layers.0.mlp.experts"))
        good = page.run(colour.format("model.layers.0.input_layernorm"))
        assert bad != good
        box = "(({{width, height}}) => [width, height])(document.querySelector('{}').getBoundingClientRect())"
        for selector in ("#tree", "#chart", "#tree .large", "#chart circle.large", "#chart circle.none"):
            assert min(page.run(box.format(selector))) > 1, selector
        paper = page.run("getComputedStyle(document.body).backgroundColor")
        assert (sum(map(int, re.findall(r"\d+", paper))) < 200) == dark
        heights = page.run("[...document.querySelectorAll('#chart circle')].map(c => c.getBoundingClientRect().y)")
        assert max(heights) - min(heights) > 50
        assert page.run("document.querySelector('#divergence b').innerText") == "model.layers.0.mlp.experts"
    assert (tmp_path / "page.png").stat().st_size > 10_000


def test_pictures_and_planted_faults_are_shown(tmp_path: Path) -> None:
    planted = [
        InjectionResult("softmax-twice in a", "softmax-twice", "a", ("forward",), "a", True),
        InjectionResult("b", "k", "b"),
    ]
    shown = report(images=[Image("sample", PNG, PNG)], prove=Proof(2, 1, 1, ["b"], planted=planted))
    write_page(shown, tmp_path / "page.html")

    with Page(tmp_path / "page.html", tmp_path / "profile", width=900) as page:
        widths = page.run("[...document.images].map(i => i.complete && i.naturalWidth * i.clientWidth)")
        assert len(widths) == 2
        assert min(widths) > 50
        assert "2 planted, 1 detected, 1 located" in page.run("document.body.innerText")
        assert (page.requests, page.complaints) == ([], [])


def test_no_name_turns_the_text_around_it(tmp_path: Path) -> None:
    """A level's reason quotes the candidate: after these characters a browser shows "fail" as it likes."""
    names = "\u202e\u2066\x00\x1b\udfff"
    levels = [LevelResult("forward", "fail", names, 0.5, 0.5, 1e-5, 0.1, worst=(Worst(names, 0.5, 0.5, names),))]
    proof = Proof(2, 1, 1, missed=[names], planted=[InjectionResult(names, names, names, (names, names), names)])
    write_page(report(levels=levels, notes=[names], prove=proof), tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert not set(names).intersection(page)
    assert "\\u202e\\u2066\\x00\\x1b\\udfff" in page


def test_everything_is_escaped() -> None:
    page = render_page(report())

    assert "<script" not in page
    assert "&lt;script&gt;" in page


# What a terminal obeys, what turns text around, and what a browser would run, in one name.
HOSTILE = "<script>document.title='run'</script><img src=x onerror=document.title='run'>\x1b]0;run\x07\u202e\u2066"
NORM = "        super().__init__()\n        self.weight = nn.Parameter(torch.ones(hidden_size))\n"
ROUTER = "router_logits = torch.nn.functional.linear(hidden_states, self.weight)"
OF_HOSTILE_MODELS = {
    "names": [(NORM, f"{NORM}        self._parameters[HOSTILE] = nn.Parameter(torch.ones(2))\n"
                     "        self.add_module(HOSTILE[:-1], type(HOSTILE, (nn.Linear,), {})(2, 2))\n")],
    "an exception": [(ROUTER, f"raise type(HOSTILE, (ValueError,), {{}})(HOSTILE)\n        {ROUTER}")],
    "last words": [(ROUTER, f"import os; os.write(2, HOSTILE.encode()); os._exit(3)\n        {ROUTER}")],
}  # fmt: skip


@pytest.mark.parametrize("what", first(1, ["names", "an exception", "last words"]))
def test_nothing_that_a_hostile_model_says_runs(
    plant: Plant, tmp_path: Path, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Through the whole command: it fails, and neither the page nor the terminal does what its texts say."""
    edits = [("import torch\n", f"import torch\nHOSTILE = {HOSTILE!a}\n"), *OF_HOSTILE_MODELS[what]]
    path = plant(f"hostile_{what.replace(' ', '_')}", {MODELING: edits})
    names = {"model_type": "qwen3_moe", "architectures": [HOSTILE], "_name_or_path": HOSTILE, HOSTILE: HOSTILE}
    (path / "toy_config.json").write_text(json.dumps({**SIZES, **names}), encoding="utf-8")
    file = tmp_path / "page.html"
    assert main(["parity", str(path), "--levels", "import,keys,forward,modules", "--html", str(file)]) in {1, 3}
    page = file.read_text(encoding="utf-8")
    for text in ("".join(capsys.readouterr()), page):
        assert not re.search("\x1b\\]|\x07|\u202e|\u2066", text)
    assert "&lt;script&gt;" in page
    assert not re.search("<(script|img)", page)
    with Page(file, tmp_path / "profile", width=900) as shown:
        assert shown.run("document.title") != "run"
        assert (shown.requests, shown.complaints) == ([], [])


def test_a_run_in_which_the_model_did_not_run_says_so() -> None:
    assert render_page(report(modules=())).count("The model did not run.") == 2


def test_modules_become_a_tree_and_points() -> None:
    root = tree(MODULES)

    assert root.name == "Model"
    assert root.parts["layers"].error is None
    assert root.parts["layers"].worst == 0.5
    assert [*root.parts["layers"].parts["1"].parts] == ["norm", "extra"]
    drawn = chart(MODULES, 1e-5)
    assert [point.error.module for point in drawn.points] == ["layers.0", "layers.1.norm", "layers.1", ""]
    assert drawn.points[0].y > drawn.points[1].y > drawn.tolerance > drawn.points[2].y


@pytest.mark.parametrize(
    ("error", "expected"),
    [(0.0, "none"), (1e-6, "rounding"), (1e-4, "small"), (0.05, "large"), (3.0, "severe"), (math.inf, "severe")],
)
def test_bands(error: float, expected: str) -> None:
    assert band(error, 1e-5) == expected


def test_figures() -> None:
    assert [figure(value) for value in (None, 0.0, 0.0123, math.inf)] == ["–", "0", "1.2e-02", "inf"]


def test_a_page_that_cannot_be_written_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(BadInput, match="is a directory"):
        write_page(report(), tmp_path)
    assert main(["parity", "--html", str(tmp_path / "page.html")]) == 2
    assert "no integration to compare" in capsys.readouterr().err
