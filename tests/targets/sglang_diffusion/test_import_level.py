# ruff: noqa: E501
"""Rules that run: imported, constructed and called beside SGLang itself: `make test-sglang`."""

import importlib.util
from collections.abc import Mapping
from pathlib import Path

import pytest

from omni_checkers import Rule, all_rules, check
from omni_checkers.engine.report import Report
from omni_checkers.sglang_diffusion.examples import ARCH, CONFIG, PACKAGE, QWEN, SAMPLING, changed
from omni_checkers.sglang_diffusion.runs.experiments import IMPORTS, LIMIT, MODULE, describe
from omni_kit.isolation.requests import run_workers
from omni_kit.resources import resource_dir
from tests.checkers.sglang_diffusion.test_sweep import pipelines

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("sglang") is None, reason="needs SGLang, in an environment of its own: make test-sglang"
)
LIVE = [rule for rule in all_rules() if rule.id.startswith("SGD") and rule.level == "import"]
_HOOK = "    def get_decode_scale"
_ROW = "class QwenSamplingParams(SamplingParams):\n"
# Rule -> what breaks it, and what does not, each written differently.
BROKEN: dict[str, list[dict[str, str]]] = {
    "SGD701": [
        {PACKAGE: QWEN[PACKAGE] + "\nraise RuntimeError('no')\n"},
        changed(CONFIG, ("        overwrite=True,\n", "")),  # SGLang has a pipeline of that name
        {PACKAGE: "import os\n\nos._exit(3)\n"},
    ],
    "SGD702": [
        changed(ARCH, ("        super().__post_init__()\n", "        super().__post_init__()\n        self.in_channels = 64\n")),
        changed(CONFIG, ('    vae_precision: str = "bf16"', '    vae_precision: str = "bf16"\n\n    def __post_init__(self):\n        raise ValueError("no")')),
        changed(ARCH, ("        super().__post_init__()\n", "        assert self.num_layers == 60\n        self.num_layers //= 2\n")),
    ],
    "SGD703": [
        changed(CONFIG, ("return scale, mean", "return 0.0, None")),
        changed(CONFIG, ("return scale, mean", "return scale, mean[:, :1].expand(1, 7, 1, 1, 1)")),
        changed(CONFIG, (_HOOK, f"    def prepare_latent_shape(self, batch, batch_size, num_frames):\n        return (1, 16, batch.height / 8, 8)\n\n{_HOOK}")),
    ],
}  # fmt: skip
FINE: dict[str, list[dict[str, str]]] = {
    "SGD701": [
        {PACKAGE: QWEN[PACKAGE].replace('"QwenDiT", QwenDiT', '"QwenDiT", "qwen.dit:QwenDiT"')},
        changed(CONFIG, ('    vae_precision: str = "bf16"', '    vae_precision: str = "bf16"\n    transformer_class_override: str | None = "QwenDiT"')),
        {PACKAGE: QWEN[PACKAGE].replace("\nregister()\n", "\n\nfor step in (register,):\n    step()\n")},
    ],
    "SGD702": [
        changed(ARCH, ("        super().__post_init__()\n", "        super().__post_init__()\n        self.num_layers = int(self.num_layers)\n")),
        changed(SAMPLING, (_ROW, f'{_ROW}    """Those of diffusers."""\n\n')),
        changed(ARCH, ("axes_dims_rope: tuple[int, int, int] = (16, 56, 56)", "axes_dims_rope: list = field(default_factory=lambda: [16, 56, 56])")),
    ],
    "SGD703": [
        changed(CONFIG, ("return scale, mean", "return [scale, mean]")),
        changed(CONFIG, (_HOOK, f"    def prepare_sigmas(self, sigmas, num_inference_steps):\n        return [1 - i / num_inference_steps for i in range(num_inference_steps)]\n\n{_HOOK}")),
        changed(CONFIG, (_HOOK, f"    def prepare_latent_shape(self, batch, batch_size, num_frames):\n        return (batch_size, 16, batch.height // 8, 8)\n\n{_HOOK}")),
    ],
}  # fmt: skip
CASES: list[tuple[str, bool, Mapping[str, str]]] = [
    *((rule.id, True, example) for rule in LIVE for example in (*rule.BAD, *BROKEN[rule.id])),
    *((rule.id, False, example) for rule in LIVE for example in (*rule.GOOD, *FINE[rule.id])),
]


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> list[Report]:
    """One run over all of them: importing SGLang takes seconds."""
    paths = []
    for number, (_, _, edits) in enumerate(CASES):
        place = tmp_path_factory.mktemp(f"case{number}") / "qwen"
        place.mkdir()
        for name, text in {**QWEN, **edits}.items():
            (place / name).write_text(text, encoding="utf-8")
        paths.append(place)
    whole = check(paths, select=["SGD7"], level="import")
    return [
        Report(
            findings=[finding for finding in whole.findings if finding.path.is_relative_to(path)],
            results=[result for result in whole.results if result.model == path],
        )
        for path in paths
    ]


@pytest.mark.parametrize("number", range(len(CASES)))
def test_what_is_broken_is_found_and_nothing_else(number: int, judged: list[Report]) -> None:
    rule, broken, _ = CASES[number]
    found = {finding.rule for finding in judged[number].findings}
    assert (rule in found) if broken else (found == set()), [one.message for one in judged[number].findings]
    assert {result.status for result in judged[number].results} <= {"pass", "fail"}


def test_every_live_rule_has_variants() -> None:
    known: list[type[Rule]] = LIVE
    assert {rule.id for rule in known} == set(BROKEN) == set(FINE)


def test_the_worked_examples_pass() -> None:
    examples = sorted((resource_dir("reference_models") / "sglang_diffusion").iterdir())
    report = check([path for path in examples if (path / "__init__.py").is_file()], level="import")
    assert [(one.rule, one.path.name, one.message) for one in report.findings] == []
    assert {result.status for result in report.results if result.rule.startswith("SGD7")} == {"pass"}


def test_the_other_ways_pass(tmp_path: Path) -> None:
    from omni_kit.scaffold import new_model

    for way, pipeline in (("native", "LuminaPipeline"), ("modular", "StableDiffusion3Pipeline")):
        new_model(f"live_{way}", pipeline, target="sglang-diffusion", force=True, into=tmp_path, kind=way)
    report = check([tmp_path / "live_native", tmp_path / "live_modular"], level="import")
    assert [(one.rule, one.path.name, one.message) for one in report.findings] == []


@pytest.mark.sweep
def test_sglangs_own_pipelines_pass() -> None:
    spec = importlib.util.find_spec("sglang")
    assert spec is not None
    root = Path(next(iter(spec.submodule_search_locations or ())))
    models = [describe(serving, Path(f"/{n}/{serving.name}")) for n, serving in enumerate(pipelines(root))]
    models = [{**model, "root": ""} for model in models]  # installed
    answers = run_workers(f"{MODULE}:look_at", models, timeout=LIMIT, modules=IMPORTS)
    answer = {model["path"]: facts for model, facts in zip(models, answers, strict=True)}
    wrong = {(Path(path).name, *one) for path, facts in answer.items() for one in facts["wrong"]}
    assert len(models) >= 66
    assert [(path, facts["error"]) for path, facts in answer.items() if facts["error"] and not facts["lacks"]] == []
    assert wrong == set()
