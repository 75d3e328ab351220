"""Sites: patched only where upstream is recognised, and the reason is said otherwise."""

import ast
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from omni_kit.errors import Refusal
from omni_kit.inspection import inspect
from omni_kit.pysource.library import Library
from omni_kit.pysource.source import SourceFile
from omni_kit.targets.veomni.text.patches import derive_patches
from omni_kit.targets.veomni.text.sites import SLOTS, Site, find_sites, refuse_without_loss, trained_part
from omni_kit.toys.modules import with_experts
from omni_kit.upstream.subject import open_source
from omni_kit.upstream.transformers.configs import ModelConfig, config_class
from omni_kit.upstream.transformers.models import UpstreamModel, upstream_model
from omni_kit.upstream.transformers.traits import profile
from tests.conftest import Models, first


def decisions(model: UpstreamModel) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for site in find_sites(model):
        assert site.reason
        assert site.evidence
        found.setdefault(site.site, set()).add(site.decision)
    return found


@pytest.mark.parametrize("model_type", ["qwen3_moe", "mixtral", "qwen2_moe"])
def test_standard_moe_is_patched_everywhere(model: Models, model_type: str) -> None:
    found = decisions(model(model_type))
    assert found.pop("router") == {"skip"}
    assert found.pop("router-replay") == {"adapt"}
    assert found.pop("attention") == {"upstream"}
    assert set().union(*found.values()) == {"patch"}


@pytest.mark.parametrize(
    ("model_type", "target", "router"),
    first(
        1,
        [
            ("olmoe", "OlmoeTopKRouter.forward", ("OlmoeTopKRouter", "self")),
            ("deepseek_v3", "DeepseekV3MoE.route_tokens_to_experts", ("DeepseekV3TopkRouter", "self.gate")),
            ("lfm2_moe", "Lfm2MoeSparseMoeBlock.route_tokens_to_experts", ("Lfm2MoeSparseMoeBlock", "self")),
        ],
    ),
)
def test_replay_follows_the_choice_of_experts(
    model: Models, model_type: str, target: str, router: tuple[str, str]
) -> None:
    (site,) = (one for one in find_sites(model(model_type)) if one.site == "router-replay")
    assert (site.target, site.router) == (target, router)


def test_replay_is_skipped_and_said_where_veomni_is_not_installed(
    model: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    subject = model("olmoe")
    monkeypatch.setattr("omni_kit.targets.veomni.text.replay.find_spec", lambda name: None)
    (site,) = (one for one in find_sites(subject) if one.site == "router-replay")
    assert (site.target, site.decision) == ("OlmoeTopKRouter.forward", "skip")
    assert "VeOmni is not installed" in site.reason
    patched = [one.target for one in derive_patches(subject, find_sites(subject)).patches]
    assert "OlmoeTopKRouter.forward" not in patched


@pytest.mark.parametrize(
    ("model_type", "targets"),
    first(
        2,
        [
            ("glm4_moe", ["Glm4MoeTopkRouter.forward"]),
            ("deepseek_v2", ["DeepseekV2Moe.forward"]),
            ("hy_v3", ["HYV3TopKRouter.forward"]),
            ("olmoe", []),
            ("ernie4_5_moe", []),
        ],
    ),
)
def test_products_in_float32_are_kept_from_autocast(model: Models, model_type: str, targets: list[str]) -> None:
    found = find_sites(model(model_type))
    assert [one.target for one in found if one.site == "router-precision"] == targets


@pytest.mark.parametrize("model_type", ["llama", "qwen2", "qwen3", "mistral"])
def test_standard_dense_has_no_moe_sites(model: Models, model_type: str) -> None:
    assert decisions(model(model_type)) == {
        "rms-norm": {"patch"}, "rotary": {"patch"}, "swiglu-mlp": {"patch"}, "attention": {"upstream"},
        "causal-lm-loss": {"patch"},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("model_type", "site", "reason"),
    first(
        4,
        [
            ("gemma3_text", "rms-norm", "does not compute weight"),
            ("olmo2", "rms-norm", "does not compute weight"),
            ("gemma3_text", "swiglu-mlp", "the activation is gelu_pytorch_tanh"),
            ("deepseek_v3", "rotary", "mla: only a part"),
            ("glm4", "rotary", "partial-rotary"),
            ("gpt_oss", "experts", "not \\[E, 2I, H\\]"),
            ("granitemoe", "experts", "not stored as gate_up_proj and down_proj"),
            ("olmoe", "swiglu-mlp", "nothing in the modeling file builds"),
        ],
    ),
)
def test_what_differs_is_left_alone(model: Models, model_type: str, site: str, reason: str) -> None:
    subject = model(model_type)
    skipped = [s for s in find_sites(subject) if s.site == site and s.decision == "skip"]
    assert skipped
    assert re.search(reason, skipped[0].reason)


@pytest.mark.parametrize("model_type", first(1, ["gemma2", "gemma3_text"]))
def test_changed_logits_are_only_adapted(model: Models, model_type: str) -> None:
    assert decisions(model(model_type))["causal-lm-loss"] == {"adapt"}


def mutated(library: Library, tmp_path: Path, old: str, new: str, **values: Any) -> UpstreamModel:
    """OLMoE in an unpacked library of its own, with one text of its modeling file replaced."""
    import shutil

    root = tmp_path / "transformers"
    for name in ("__init__.py", "activations.py", "conversion_mapping.py", "configuration_utils.py",
                 "modeling_outputs.py"):  # fmt: skip
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(library.root / name, root / name)
    for folder in ("olmoe", "auto", "mixtral"):
        shutil.copytree(library.root / "models" / folder, root / "models" / folder)
    file = root / "models" / "olmoe" / "modeling_olmoe.py"
    text = file.read_text(encoding="utf-8")
    assert text.count(old) >= 1
    file.write_text(text.replace(old, new), encoding="utf-8")
    other = Library("transformers", root)
    return upstream_model(other, ModelConfig(config_class(other, "olmoe"), values, ""))


@pytest.mark.parametrize(
    ("old", "new", "site"),
    first(2, [
        ("return self.weight * hidden_states", "return (1 + self.weight) * hidden_states", "rms-norm"),
        ("return torch.cat((-x2, x1), dim=-1)", "return torch.cat((x2, -x1), dim=-1)", "rotary"),
        ("self.act_fn(gate) * up", "self.act_fn(gate.clamp(max=7)) * up", "experts"),
        ("return overall_loss * num_experts", "return overall_loss", "load-balancing-loss"),
    ]),
)  # fmt: skip
def test_a_small_change_upstream_is_seen(library: Library, tmp_path: Path, old: str, new: str, site: str) -> None:
    """A kernel that is almost right is wrong: the slightest difference means that the site is left alone."""
    assert decisions(mutated(library, tmp_path, old, new))[site] == {"skip"}


def test_clamps_at_a_limit_are_those_of_the_kernel(model: Models) -> None:
    """VeOmni reads the attribute `limit` of experts, as DeepSeek-V4's have one."""
    assert decisions(model("deepseek_v4"))["experts"] == {"patch"}


def test_a_limit_that_nothing_applies_is_seen(library: Library, tmp_path: Path) -> None:
    """The kernel would clamp at it."""
    old = "self.act_fn = ACT2FN[config.hidden_act]"
    subject = mutated(library, tmp_path, old, f"{old}; self.limit = 0.5")
    assert decisions(subject)["experts"] == {"skip"}


def test_a_class_that_is_chosen_before_it_is_called_is_built(model: Models) -> None:
    """Every second layer of Jamba has one expert: an MLP, by a name that stands for either class."""
    assert decisions(model("jamba"))["swiglu-mlp"] == {"patch"}


@pytest.mark.parametrize(("name", "router"), [("granitemoe", "GraniteMoeTopKGating"), ("jetmoe", "JetMoeTopKGating")])
def test_the_router_is_no_class_of_experts(model: Models, name: str, router: str) -> None:
    (site,) = (one for one in find_sites(model(name)) if one.site == "router")
    assert site.target == router


def test_a_norm_without_weight_is_said_to_have_none(model: Models) -> None:
    found = find_sites(model("deepseek_v4"))
    reasons = {one.target: one.reason for one in found if one.site == "rms-norm"}
    assert reasons["DeepseekV4UnweightedRMSNorm.forward"].startswith("has no weight")


@pytest.mark.parametrize("name", first(2, ["granitemoe", "jetmoe", "deepseek_v4", "stablelm", "deepseek_v3"]))
def test_reasons_tell_of_the_code_and_not_of_what_evaluates_it(model: Models, name: str) -> None:
    for site in find_sites(model(name)):
        assert not re.search(r"gufunc|[A-Z]\w+Error|operands could not|uses config$", site.reason), site
        if site.read == "unreadable" and site.site != "swiglu-mlp":
            assert re.search(r"\.py:\d+ ", site.reason), site


def changed(model: UpstreamModel, old: str, new: str) -> dict[str, Site]:
    """The sites of a model, a text of whose file is another."""
    assert old in model.source.text
    text = model.source.text.replace(old, new)
    source = SourceFile(model.library, model.source.module, model.source.path, text, ast.parse(text))
    other = replace(model, source=source)
    return {one.site: one for one in find_sites(other)}


def test_the_bias_of_a_layer_that_has_none_is_none(model: Models) -> None:
    old = "self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))"
    new = old.replace("self.down_proj(", "nn.functional.linear(", 1)
    for biased in (False, True):
        spelt = f"{new[:-1]}, self.down_proj.weight, self.down_proj.bias)"
        assert changed(model("llama", mlp_bias=biased), old, spelt)["swiglu-mlp"].decision == "patch"
    assert (
        changed(model("llama", mlp_bias=True), old, f"{new[:-1]}, self.down_proj.weight)")["swiglu-mlp"].decision
        == "skip"
    )


def test_two_clamps_are_named_with_their_lines(library: Library, tmp_path: Path) -> None:
    """What a kernel would drop is named as file, line and expression, also where it takes several operations."""
    subject = mutated(
        library, tmp_path, "self.act_fn(gate) * up", "self.act_fn(gate.clamp(max=0.7)) * up.clamp(min=-0.7)"
    )
    (site,) = (one for one in find_sites(subject) if one.site == "experts")
    assert "`gate.clamp(max=0.7)` (transformers/models/olmoe/modeling_olmoe.py:" in site.reason
    assert "`up.clamp(min=-0.7)` (transformers/models/olmoe/modeling_olmoe.py:" in site.reason


def test_another_place_of_rounding_is_named(library: Library, tmp_path: Path) -> None:
    old = "return self.weight * hidden_states.to(input_dtype)"
    subject = mutated(library, tmp_path, old, "return (self.weight * hidden_states).to(input_dtype)")
    (site,) = (one for one in find_sites(subject) if one.site == "rms-norm")
    assert site.decision == "skip"
    assert "`self.weight * hidden_states` (transformers/models/olmoe/" in site.reason


HEAD = "logits = self.lm_head(hidden_states[:, slice_indices, :])"
SCALED = f"{HEAD}\n        logits = logits / self.config.router_aux_loss_coef"


@pytest.mark.parametrize(("new", "decision"), first(3, [
    (SCALED, "patch"),
    (f"{SCALED} / self.lm_head.weight.norm()", "adapt"),
    (f"{HEAD}\n        if use_cache:\n            logits = logits * 0.5", "adapt"),
    (f"{HEAD} * 0.5", "patch"),
    (f"{HEAD} * self.top_k_of_a_layer", "adapt"),
    (f"{HEAD}\n        shown = logits\n        logits = logits * 0.5\n        self.shown = shown", "adapt"),
]))  # fmt: skip
def test_a_fused_loss_takes_scaled_hidden_states(library: Library, tmp_path: Path, new: str, decision: str) -> None:
    subject = mutated(library, tmp_path, HEAD, new)
    (site,) = (one for one in find_sites(subject) if one.site == "causal-lm-loss")
    assert site.decision == decision, site.reason


def test_the_head_of_a_model_with_media_is_found_without_a_config_of_a_tower(model: Models) -> None:
    (site,) = (one for one in find_sites(model("chameleon")) if one.site == "causal-lm-loss")
    assert (site.target, site.decision) == ("ChameleonForConditionalGeneration.forward", "adapt")


def test_another_activation_is_seen(model: Models) -> None:
    assert decisions(model("olmoe", hidden_act="gelu"))["experts"] == {"skip"}


@pytest.mark.parametrize(
    "model_type", ["qwen3_moe", "olmoe", "llama", "mixtral", "gemma3_text", "granitemoe", "deepseek_v3"]
)
def test_patches_are_upstream_with_a_guard(model: Models, model_type: str) -> None:
    """Taking the guards out of a patched norm, MLP, rotary or experts gives upstream's own body back."""
    subject = model(model_type)
    derived = derive_patches(subject, find_sites(subject))
    assert derived.patches
    for patch in derived.patches:
        tree = ast.parse(patch.text).body[0]
        if patch.target.endswith(("ForCausalLM.forward", "ForSequenceClassification.forward")):
            continue
        stripped = ast.dump(_WithoutGuards().visit(tree))
        upstream = _upstream(subject, patch.target)
        assert stripped.replace(getattr(tree, "name", ""), "NAME") == ast.dump(upstream).replace(upstream.name, "NAME")


class _WithoutGuards(ast.NodeTransformer):
    def visit_With(self, node: ast.With) -> ast.AST | list[ast.stmt]:
        return node.body if ast.unparse(node.items[0]).startswith("torch.autocast(") else self.generic_visit(node)

    def visit_If(self, node: ast.If) -> ast.AST | None:
        guards = (".use_non_eager_impl", "get_active_replay() is not None")
        return None if ast.unparse(node.test).endswith(guards) else self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        return None if ast.unparse(node).startswith("record_router_indices(") else node


def _upstream(model: UpstreamModel, target: str) -> "ast.FunctionDef | ast.ClassDef":
    owner, _, method = target.rpartition(".")
    found: Any = model.source.method(owner, method) if owner else model.source.functions.get(target)
    found = ast.parse(ast.unparse(found or model.source.classes[target])).body[0]
    found.decorator_list = []
    return found  # type: ignore[no-any-return]


@pytest.mark.parametrize("model_type", ["qwen3_moe", "olmoe", "llama", "mixtral"])
def test_fused_loss_keeps_upstreams_outputs(model: Models, model_type: str) -> None:
    """Every field that upstream returns is still returned, and one more."""
    subject = model(model_type)
    derived = derive_patches(subject, find_sites(subject))
    patch = next(p for p in derived.patches if p.target.endswith("ForCausalLM.forward"))
    before = _upstream(subject, patch.target)
    after = ast.parse(patch.text).body[0]
    assert isinstance(before, ast.FunctionDef)
    assert isinstance(after, ast.FunctionDef)

    def fields(node: ast.FunctionDef) -> dict[str | None, str]:
        call = node.body[-1].value  # type: ignore[attr-defined]
        return {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}

    assert fields(after) == {**fields(before), "fused_linear_aux": "fused_linear_aux"}
    assert ast.dump(after.args) == ast.dump(before.args)


def test_only_used_slots_are_declared(model: Models) -> None:
    subject = model("gemma3_text")
    derived = derive_patches(subject, find_sites(subject))
    assert derived.slots == (SLOTS["rotary"],)
    assert derived.outputs == ()


def attending(model: UpstreamModel, old: str, new: str) -> tuple[str, str]:
    """What is decided about the attention of a model, a text of whose file is another."""
    site = changed(model, old, new)["attention"]
    return site.decision, site.reason


_SCALE, _MASK = "self.scaling = self.head_dim**-0.5", "            attention_mask,\n            dropout="


def test_attention_that_hands_over_all_that_it_computes_with_stays(model: Models) -> None:
    for name, spelt, otherwise in (
        ("gemma2", "softcap=self.attn_logit_softcapping", "softcap=self.config.attn_logit_softcapping"),
        ("gpt_oss", "s_aux=self.sinks", "s_aux=self.sinks.clone()"),
        ("llama", "* scaling\n", "* (1.0 * scaling)\n"),
        ("llama", _MASK, _MASK.replace("mask,", "mask[..., : key_states.shape[-2]],")),
        ("llama", _SCALE, f'{_SCALE} * (1.0 if config.rope_parameters["rope_type"] == "default" else 2.0)'),
    ):
        assert attending(model(name), spelt, otherwise)[0] == "upstream", name


@pytest.mark.parametrize(
    ("name", "spelt", "otherwise"),
    first(
        2,
        [
            ("gpt_oss", "s_aux=self.sinks,", ""),  # upstream's own function takes the sinks of the module
            ("llama", "* scaling\n", "* scaling + 0.1 * torch.arange(key.shape[2])\n"),
            ("llama", _MASK, _MASK.replace("mask,", "mask + 0.1 * key_states.shape[-2] * attention_mask.triu(),")),
            (
                "glm_moe_dsa",
                "index_mask + causal_mask",
                "causal_mask + index_mask",
            ),  # the mask of the selection is lost
        ],
    ),
)
def test_attention_that_veomni_would_change_is_named(model: Models, name: str, spelt: str, otherwise: str) -> None:
    decision, reason = attending(model(name), spelt, otherwise)
    assert decision == "skip"
    assert f"modeling_{name}.py:" in reason


def test_routers_are_told_by_what_they_compute(model: Models) -> None:
    told = {}
    for name in ("mixtral", "olmoe", "gpt_oss", "deepseek_v3"):
        (site,) = (one for one in find_sites(model(name)) if one.site == "router")
        assert site.decision == "skip"
        told[name] = site.reason.partition("weighs experts by ")[2]
    assert told["mixtral"] == told["gpt_oss"] == "the largest softmax scores, renormalised"
    assert told["olmoe"] == "the largest softmax scores, not renormalised"
    assert told["deepseek_v3"] == "a rule of its own"


def test_children_begin_as_upstream_has_them_where_transformers_asks_whose_code_it_is(
    model: Models, tmp_path: Path
) -> None:
    """Newer versions pass over modules without parameters in classes that are defined outside of transformers."""
    (tmp_path / "modeling_utils.py").write_text("def is_custom_code(): ...\n")
    newer = Library("transformers", tmp_path)
    for name, changed in (("nanochat", ["NanoChatPreTrainedModel._initialize_weights"]), ("llama", [])):
        subject = replace(model(name), library=newer)
        found, before = (
            [patch.target for patch in derive_patches(one, []).patches if "_initialize" in patch.target]
            for one in (subject, model(name))
        )
        assert (found, before) == (changed, [])


def test_experts_whose_number_is_left_open_have_those_of_a_toy() -> None:
    for name, decision in (("dots1", "patch"), ("hunyuan_v1_moe", "patch"), ("gemma4_text", "skip")):
        subject = with_experts(open_source(name).model)
        (site,) = (one for one in find_sites(subject) if one.site == "experts")
        assert site.decision == decision
    for name in ("deepseek_v3", "llama"):
        subject = open_source(name).model
        assert with_experts(subject) is subject


@pytest.mark.parametrize(("name", "named"), [("phi3", "partial_rotary_factor is 1"), ("gpt_oss", "half as wide")])
def test_tables_of_another_width_are_named(model: Models, name: str, named: str) -> None:
    (site,) = (one for one in find_sites(model(name)) if one.site == "rotary")
    assert site.decision == "skip"
    assert named in site.reason


@pytest.mark.parametrize(
    ("name", "experts", "router"),
    [
        ("hunyuan_v1_moe", "does not have several experts", "HunYuanMoEV1Gate"),
        ("dbrx", "DbrxExpertGLU holds w1, v1, w2", "DbrxRouter"),
    ],
)
def test_experts_of_every_kind_are_told(model: Models, name: str, experts: str, router: str) -> None:
    found = {one.site: one for one in find_sites(model(name))}
    assert found["experts"].decision == "skip"
    assert experts in found["experts"].reason
    assert found["router"].target == router


def test_what_a_router_returns_is_told_as_it_is(model: Models) -> None:
    subject = model("qwen3_moe")
    raw, shares = "return router_logits, router_scores", "return router_probs, router_scores"
    assert "over raw router logits" in changed(subject, raw, raw)["load-balancing-loss"].reason
    assert "which are not raw logits" in changed(subject, raw, shares)["load-balancing-loss"].reason


@pytest.mark.parametrize("field", ["hidden_size", "num_local_experts"])
def test_a_width_of_nothing_is_no_error(field: str, tmp_path: Path) -> None:
    config = {"model_type": "gpt_oss", "num_hidden_layers": 2, "num_local_experts": 2, "layer_types": None, field: 0}
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    assert "veomni" in inspect(str(tmp_path))["targets"]


@pytest.mark.parametrize(
    ("old", "new", "named"),
    first(
        1,
        [
            (
                "nn.functional.softmax(concatenated_gate_logits, dim=-1)",
                "sigmoid(concatenated_gate_logits)",
                "torch.sigmoid(",
            ),
            ("mean(-1, keepdim", "mean(-2, keepdim", "hidden_states.pow(2).mean(-2"),
            ("cat((-x2, x1)", "cat((x2, -x1)", "-x1"),
            ("gate, up = nn", "up, gate = nn", "self.act_fn(gate)"),
        ],
    ),
)
def test_the_line_where_values_part_is_in_the_models_own_file(model: Models, old: str, new: str, named: str) -> None:
    reasons = [one.reason for one in changed(model("qwen3_moe"), old, new).values() if one.read == "different"]
    assert any(f"the values part at `{named}" in one for one in reasons), reasons
    assert all("modeling_qwen3_moe.py:" in one for one in reasons)


def test_values_that_a_config_class_sets_are_told_with_their_line(model: Models) -> None:
    for name in ("stablelm", "glm4_moe", "nemotron", "gemma2"):
        for trait in profile(model(name)).traits:
            assert re.search(r":\d+", trait.evidence), trait


def test_sites_are_told_where_an_integration_is_refused() -> None:
    """LongCat-Flash stacks experts that compute nothing beside the others: no converter can be written."""
    report = inspect("longcat_flash")
    told = report["targets"]["veomni"]
    assert told["files"] == []
    reasons = {one["site"]: one["reason"] for one in told["patches"]}
    assert reasons["experts LongcatFlashExperts"].startswith("768 of gate_up_proj")
    assert any("there is no one number of experts" in note for note in report["notes"])
    assert "veomni" not in inspect("t5")["targets"]


@pytest.mark.parametrize(
    ("model_type", "why"),
    [
        ("xlm", r"passes labels to self.pred_layer \(.*modeling_xlm.py:\d+\), which computes the loss"),
        ("vibevoice_asr", r"forward \(.*modeling_vibevoice_asr.py:\d+\) takes no labels"),
        ("voxtral", r"passes labels to self.language_model \(.*modeling_voxtral.py:\d+\)"),
        ("gemma4_assistant", r"forward \(.*modeling_gemma4_assistant.py:\d+\) takes no labels"),
        ("musicgen", r"reads `labels\[\.\.\., codebook\]` \(.*modeling_musicgen.py:\d+\)"),
        ("moshi", r"shifts labels, and the loss function .*\(.*modeling_moshi.py:\d+\) shifts them again"),
        ("reformer", r"raises in training where .* != sequence_length` \(.*modeling_reformer.py:\d+\)"),
    ],
)
def test_a_class_without_a_loss_of_its_own_is_refused_with_the_line(model_type: str, why: str) -> None:
    found = open_source(model_type).model
    assert isinstance(found, UpstreamModel)
    with pytest.raises(Refusal, match=why):
        refuse_without_loss(found)


@pytest.mark.parametrize(
    ("model_type", "part"), [("qwen2_5_omni", "qwen2_5_omni_thinker"), ("qwen3_omni_moe", "qwen3_omni_moe_thinker")]
)
def test_a_class_without_a_forward_names_its_part_that_trains(model_type: str, part: str) -> None:
    found = open_source(model_type).model
    with pytest.raises(Refusal, match=rf"has no forward: train its part {part}$"):
        refuse_without_loss(found)
    assert trained_part(found) == part


@pytest.mark.parametrize("model_type", ["llava", "qwen3", "qwen2_audio"])
def test_a_class_with_a_loss_from_labels_is_not_refused(model_type: str) -> None:
    found = open_source(model_type).model
    assert isinstance(found, UpstreamModel)
    refuse_without_loss(found)
