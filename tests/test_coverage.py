"""A fixed sample of what `make coverage-models` and `make coverage-dit` go over; they differ in how they can fail."""

from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from omni_kit.coverage import denoisers, language, ports
from omni_kit.coverage.case import Case, renewed
from omni_kit.coverage.language import cover_one, names, page
from omni_kit.coverage.ports import Ported, Repository
from omni_kit.parity.compare.tensors import FLOAT32_TOLERANCE
from omni_kit.parity.processes.workers import Sides

PROVEN = {
    "apertus": "an activation with parameters, taken from a table",
    "cohere2_moe": "a base class that is imported as a module of torch",
    "ctrl": "a tied head whose bias VeOmni would initialise anew",
    "emu3": "a text model that is built from a part of the config",
    "glm4": "token ids that are lists",
    "gpt_oss": "experts that no kernel takes over, and that no plan shares out",
    "gpt2": "a head that is called LMHeadModel",
    "mamba": "no attention, and a loss of its own",
    "qwen3_next": "layers that carry a state, which run on whole samples",
    "rembert": "a classifier that pools before its head, which is left out",
}
REFUSED = {
    "minicpmv4_6": "the others would be lost",
    "musicgen": "and no codebooks",
    "bert": "ties cls.predictions.decoder.bias to cls.predictions.bias (transformers/models/bert/modeling_bert.py:",
    "bigbird_pegasus": "ties nothing although its config sets",
    "zamba": "ties its layers' weights to each other in __init__",
    "mllama": "by none of get_image_features",
}

DENOISERS = {
    "Flux2Transformer2DModel": "shares its sequences, two streams of them",
    "SanaTransformer2DModel": "has linear attention, which no kernel takes the place of",
    "ZImageTransformer2DModel": "takes and answers lists",
}
# No pipeline draws with them from a prompt alone, so that new-model leaves their conditions to do.
DENOISERS_TO_FINISH = {"DiTTransformer2DModel": "drops classes at random while it trains"}
# Why no small pipeline can be made around them, so that their conditions are not tried; torchvision is not installed.
UNTRIED = {
    "LTX2VideoTransformer3DModel": "there is no rule for connectors",
    "OmniGenTransformer2DModel": "OmniGenPipeline calls torchvision, which is not installed",
}
SHARES = {"Flux2Transformer2DModel"}
QUICK = {*REFUSED}


def cases(names: Iterable[str]) -> list[Any]:
    """Those that `make test` goes over, and the others for the sweep."""
    return [pytest.param(name, marks=() if name in QUICK else pytest.mark.sweep) for name in names]


@pytest.mark.parametrize("model_type", cases(PROVEN))
def test_proven(model_type: str, sides: Sides, tmp_path: Path) -> None:
    case = cover_one(model_type, tmp_path / model_type, sides)
    assert case.outcome == "proven", case.reason
    assert float(case.reason) < 1e-5


@pytest.mark.parametrize("model_type", REFUSED)
def test_refused_for_what_is_true(model_type: str, sides: Sides, tmp_path: Path) -> None:
    case = cover_one(model_type, tmp_path / model_type, sides)
    assert case.outcome == "refused"
    assert REFUSED[model_type] in case.reason
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("name", cases(DENOISERS))
def test_a_denoiser_is_proven(name: str, sides: Sides, tmp_path: Path) -> None:
    case = denoisers.cover_one(name, tmp_path / name, sides)
    assert case.outcome == "proven", case.reason
    assert float(case.reason) < FLOAT32_TOLERANCE
    assert case.about.startswith("equal") == (name in SHARES), case.about


@pytest.mark.parametrize("name", cases(DENOISERS_TO_FINISH))
def test_a_denoiser_with_a_to_do_is_not_proven(name: str, sides: Sides, tmp_path: Path) -> None:
    case = denoisers.cover_one(name, tmp_path / name, sides)
    assert case.outcome == "to finish", case.reason
    assert case.reason.startswith("1 to-do: write get_condition")


@pytest.mark.parametrize("name", cases(UNTRIED))
def test_a_denoiser_whose_conditions_were_not_tried_is_not_proven(name: str, sides: Sides, tmp_path: Path) -> None:
    case = denoisers.cover_one(name, tmp_path / name, sides)
    assert case.outcome == "not tested", case.reason
    assert UNTRIED[name] in case.reason


def test_the_sample_is_of_what_is_covered() -> None:
    assert {*PROVEN, *REFUSED} <= set(names())
    assert {*DENOISERS, *DENOISERS_TO_FINISH, *UNTRIED} <= set(denoisers.names())


def test_rows_are_renewed_and_the_others_kept() -> None:
    old = [Case("b", "llm", "fault", "A | B"), Case("c", "moe | x", "proven", "3e-07"), Case("d", "", "refused", "no")]

    found = renewed(page(old), [Case("b", "llm", "proven", "1e-07"), Case("a", "vlm", "no toy", "none")])

    assert found == [Case("a", "vlm", "no toy", "none"), Case("b", "llm", "proven", "1e-07"), *old[1:]]
    assert renewed(page(old), []) == old


def test_the_page_counts_the_media_models_that_pass_among_processes() -> None:
    found = [
        Case("a", "vlm", "proven", "8e-07; sp 4e-06, fsdp 2e-07"),
        Case("b", "omni-moe", "proven", "8e-07; sp fail: 2 of 2 figures differ, fsdp 2e-07"),
        Case("c", "vlm", "refused", "no"),
        Case("d", "llm", "proven", "8e-07"),
    ]
    text = page(found)
    assert "3 of them take media, and 2 of these are proven." in text
    assert "by FSDP: 1 pass both." in text


@pytest.mark.parametrize(
    ("unshared", "says"), [("", "sp 2e-07, fsdp 2e-07"), ("upstream says no", "no sp: upstream says no, fsdp 2e-07")]
)
def test_a_model_that_reads_whole_sequences_is_not_compared_with_parts_of_them(
    unshared: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def parity(_: Path, levels: tuple[str, ...], **__: object) -> SimpleNamespace:
        return SimpleNamespace(levels=[SimpleNamespace(level=one, status="pass", max_rel=2e-7) for one in levels])

    monkeypatch.setattr(language, "run_parity", parity)
    assert language._among_processes(Path(), cast(Sides, None), unshared) == says


def test_the_page_cuts_no_cell_and_names_no_machine() -> None:
    case = Case("m", "llm", "fault", "A | B (/home/me/.venv/lib/python3.11/site-packages/torch/nn.py:3)")
    row = page([case]).splitlines()[-1]
    assert row == r"| m | llm | fault | A \| B (site-packages/torch/nn.py:3) |"


def test_the_page_of_ports_names_files_from_the_repositorys_root() -> None:
    commit = "c" * 40
    row = ports.page(
        [Ported(Repository("a/b", commit, "m.py::A"), "refused", reason=f"no: {commit}/nets/m.py:3 /a/x.py:1")]
    )
    assert "| refused: no: nets/m.py:3 x.py:1 |" in row


def test_rows_of_a_page_are_renewed_by_repository_and_model() -> None:
    first = Repository("a/b", "c" * 40, "m.py::A")
    page = ports.page([
        Ported(first, "not proven", reason="x | y"),
        Ported(Repository("a/b", "c" * 40, "m.py::B"), ports.PROVEN),
        Ported(Repository("d/e", "f" * 40, "m.py::A", aside=True), "refused", reason="no"),
    ])  # fmt: skip
    assert "Of 2: 1 not proven, 1 proven." in page
    assert ports.page([], page) == page.replace("Made by", "Assembled from single runs of")
    renewed = ports.page([Ported(first, ports.PROVEN, tests="2 of 2")], page)
    assert "Of 2: 2 proven." in renewed
    assert "| 2 of 2 | proven |" in renewed
    assert len(renewed.splitlines()) == len(page.splitlines())
    assert "Of 1: 1 refused." in renewed
