"""The rules on all of VeOmni: every finding there is a defect that was proven by a run."""

from collections import Counter
from pathlib import Path

import pytest

from omni_checkers import Report, Severity, check
from omni_kit.diagnostics.definition import family_of
from tests.conftest import first

_GATED = {"qwen2_5_omni": 1, "qwen3_omni_moe": 1}
_DUMMIES = {"qwen2_5vl": 1, "qwen2_vl": 1, "qwen3_5": 1, "qwen3_5_moe": 2, "qwen3_vl": 1, "qwen3_vl_moe": 2}
_NO_NAME = (
    "deepseek_v3 deepseek_v4 glm_moe_dsa llama qwen2 qwen2_5_omni qwen2_5vl qwen2_vl qwen3 qwen3_5 qwen3_5_moe "
    "qwen3_moe qwen3_omni_moe qwen3_vl qwen3_vl_moe seed_oss"
)

KNOWN = {
    # MODELING_REGISTRY["qwen3_moe"]("Qwen3MoeForSequenceClassification") is Qwen3MoeForCausalLM; a checkpoint of the
    # former then loads with "Unexpected key in state dict: score.weight" and an lm_head that is randomly initialised.
    "VEO104": {"gemma3": 1, "llama": 1, "qwen2": 1, "qwen3": 1, "qwen3_5": 4, "qwen3_5_moe": 2, "qwen3_moe": 1},
    # MODELING_REGISTRY["llama"](None): TypeError: argument of type 'NoneType' is not iterable.
    "VEO105": dict.fromkeys(_NO_NAME.split(), 1),
    # Per-expert checkpoints, which transformers writes and reads, leave the stacked experts randomly initialised:
    # "Find missing key(s) in state dict: {'model.layers.3.mlp.experts.down_proj', ...}, initialize them."
    "VEO204": {"glm_moe_dsa": 2, "qwen3_5_moe": 2},
    # The classes have no get_parallel_plan: the experts cannot be cut.
    "VEO303": {"glm_moe_dsa": 1, "qwen3_omni_moe": 1},
    # "[ERROR] `cache_position` is part of ...forward's signature, but not documented", at import.
    "VEO405": {
        "deepseek_v3": 2,
        "glm_moe_dsa": 2,
        "llama": 1,
        "qwen2": 2,
        "qwen2_5_omni": 1,
        "qwen3": 2,
        "qwen3_omni_moe": 3,
        "seed_oss": 2,
    },
    # Another release's text: `return_dict=True` is not passed down, as `model.config.return_dict = False` shows (the
    # answer of the text model is a tuple, and `outputs.past_key_values` an AttributeError); three rows of positions in
    # the place of upstream's four, of which the first is read in either case.
    "VEO415": {"qwen2_5_omni": 1, "qwen3_omni_moe": 1},
    # Read, not run: what the merger is padded by is one rank's rows less the patches of all, and never above zero; a
    # seed of None, which the config allows, is added to a number; [3, batch, length] is taken for [batch, 3, length].
    "VEO427": {"qwen2_5_omni": 2, "wan_t2v": 1, "qwen2_vl": 1},
    # Read, not run: the gather of sequence parallelism is skipped when the module is not in training.
    "VEO504": _GATED,
    # Convention: the docstring of the config does not say how to regenerate; a mark in it never closes; the flat tensor
    # of all pictures is returned where upstream returns one for each.
    "VEO410": {"gemma3": 1, "glm_moe_dsa": 2},
    "VEO411": {
        "deepseek_v4": 2,
        "qwen2_5_omni": 2,
        "qwen2_5vl": 3,
        "qwen3_5": 2,
        "qwen3_5_moe": 2,
        "qwen3_omni_moe": 2,
        "qwen3_vl": 3,
    },
    "VEO413": {"qwen2_5vl": 2, "qwen2_vl": 2, "qwen3_5": 1, "qwen3_5_moe": 2, "qwen3_vl": 1, "qwen3_vl_moe": 2},
    # Convention: `loss += ...` on a line that is not upstream's own.
    "VEO511": {"qwen3_5_moe": 1},
    # hasattr(Qwen3OmniMoeThinkerForConditionalGeneration, "get_metadata_collate_func") is False; the class that wraps
    # it has one.
    "VEO601": {"qwen3_omni_moe": 2},
    # pickle.dumps(model.get_position_id_func()): AttributeError: Can't pickle local object
    # 'Qwen2VLForConditionalGeneration.get_position_id_func.<locals>.get_position_id'.
    "VEO602": {"qwen2_vl": 1},
    # A vision tower with patch_size 8 (or in_channels 1): dummy_forward ends in a RuntimeError about shapes.
    "VEO607": {
        "qwen2_5_omni": 1,
        "qwen2_5vl": 1,
        "qwen2_vl": 1,
        "qwen3_5": 1,
        "qwen3_5_moe": 2,
        "qwen3_omni_moe": 1,
    },
    # Read, not run: without position_ids it makes them from the shard of one rank; its siblings raise RuntimeError.
    "VEO609": {"qwen2_vl": 1},
    # Read, not run: the config for NPUs leaves these patches out, as the router replay of qwen3_moe.
    "VEO703": {"glm_moe_dsa": 1, "qwen3_5": 1, "qwen3_5_moe": 1, "qwen3_moe": 1, "seed_oss": 1},
    # model._no_split_modules is None: PreTrainedModel stands before diffusers' class, which names blocks.
    "VEO625": {"wan_t2v": 1},
    # save_pretrained(..., max_shard_size="nonsense") ends in a ValueError and leaves type(model.config) is dict;
    # type(from_pretrained(path)) is diffusers' WanTransformer3DModel.
    "VEO626": {"wan_t2v": 2, "qwen_image": 1},
    # diffusers' own object, called with return_dict=False for two samples, answers a tensor: [0] is the first sample.
    "VEO628": {"wan_t2v": 1},
    # Nine tokens in two processes: RuntimeError, 5 tokens meet 4 rotary embeddings, or a picture of 10 tokens.
    "VEO633": {"wan_t2v": 1, "ltx2_3": 2},
    # With a LoraLinear in place of to_q: AttributeError: 'LoraLinear' object has no attribute 'weight'.
    "VEO634": {"wan_t2v": 5},
    # ModuleNotFoundError: torchvision; MiniMaxH3ConditionModelConfig.from_pretrained(path).base_model_path is None, and
    # MiniMaxH3ConditionModel takes meta_init in **kwargs and reads it nowhere.
    "VEO636": {"wan_t2v": 1, "qwen_image": 1, "ltx2_3": 1, "minimax_h3": 2},
    # Read, not run: the functions that choose experts call neither get_active_replay nor maybe_replay_indices.
    "VEO518": {
        "deepseek_v3": 2,
        "glm_moe_dsa": 2,
        "gpt_oss": 1,
        "qwen3_moe": 1,
        "qwen3_omni_moe": 2,
        "qwen3_vl_moe": 2,
    },
    # Read, not run: GlmMoeDsaTopkRouter.forward casts to float32, and autocast lowers the product.
    "VEO519": {"glm_moe_dsa": 2},
    # Read, not run: dummy_forward takes the dtype of the first parameter, or keeps its first input.
    "VEO505": _DUMMIES,
    "VEO506": {"qwen2_5vl": 2, "qwen2_vl": 2},
}


@pytest.fixture(scope="module")
def report(veomni_models: Path) -> Report:
    return check([veomni_models.parents[1]])


@pytest.mark.sweep
def test_the_findings_are_the_known_defects(report: Report) -> None:
    found = Counter((family_of(finding.rule), _model(finding.path)) for finding in report.findings)
    assert found == {(rule, model): count for rule, models in KNOWN.items() for model, count in models.items()}


@pytest.mark.sweep
def test_an_error_is_something_that_breaks_or_corrupts(report: Report) -> None:
    assert {finding.rule for finding in report.findings if finding.severity is Severity.error} == {
        "VEO104",
        "VEO204",
        "VEO602",
        "VEO628",
    }


def _model(path: Path) -> str:
    return path.parts[path.parts.index("models") + 2]


@pytest.mark.sweep
def test_every_model_that_registers_was_looked_at(report: Report) -> None:
    assert {path.name for path in report.models} >= {"deepseek_v3", "qwen3_moe", "qwen3_omni_moe", "llama", "flux"}
    assert len(report.models) >= 20
    assert report.files > 100


@pytest.mark.sweep
@pytest.mark.parametrize("model", ["deepseek_v3", "deepseek_v4", "qwen3_moe", "qwen3_omni_moe", "qwen3_vl_moe"])
def test_rules_about_experts_judge_models_with_experts(model: str, report: Report) -> None:
    """Precision by looking away would be worth nothing."""
    judged = {result.rule for result in report.results if result.model.name == model and result.status == "pass"}
    assert judged >= {
        "VEO101",
        "VEO102",
        "VEO103",
        "VEO201",
        "VEO203",
        "VEO301",
        "VEO302",
        "VEO401",
        "VEO402",
        "VEO403",
    }


@pytest.mark.sweep
def test_reasons_are_given_for_what_was_not_judged(report: Report) -> None:
    assert all(result.reason for result in report.results if result.status == "not-applicable")


def test_torch_is_not_imported(veomni_models: Path) -> None:
    import subprocess
    import sys

    code = (
        "import sys; from pathlib import Path; from omni_checkers import check;"
        f"check([Path({str(veomni_models / 'qwen3_moe')!r})]);"
        "print(sorted({'torch', 'transformers', 'veomni', 'omni_kit.cli', 'omni_kit.scaffold'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("model", first(1, ["llama", "glm_moe_dsa"]))
def test_the_same_run_gives_the_same_report(model: str, veomni_models: Path) -> None:
    path = veomni_models / model
    first, second = check([path]), check([path])
    assert first.as_json() == second.as_json()
