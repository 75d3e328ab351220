"""Decisions are confirmed by running upstream's classes; a class that reads and runs differently is an error."""

import ast
from dataclasses import replace
from pathlib import Path

import pytest

from omni_kit.errors import Refusal
from omni_kit.pysource.library import Library
from omni_kit.pysource.source import SourceFile
from omni_kit.scaffold import new_model
from omni_kit.targets.protocol import Decision, IntegrationPlan
from omni_kit.targets.veomni.text.kernel_confirmation import confirmed
from omni_kit.targets.veomni.text.sites import find_sites
from omni_kit.upstream.transformers.models import UpstreamModel
from tests.conftest import Models, first

_PLAIN = "return self.weight * self._norm(x.float()).to(x.dtype)"
_CENTRED = (
    "wide = x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + self.variance_epsilon)\n"
    "    return (1 + self.weight) * wide.to(x.dtype)"
)


def plan_of(model: UpstreamModel) -> IntegrationPlan:
    sites = find_sites(model)
    decisions = [Decision(f"{one.site} {one.target}", one.decision, one.reason, one.evidence) for one in sites]
    return IntegrationPlan("base", (), decisions=decisions)


def read_as(model: UpstreamModel, class_name: str, body: str) -> UpstreamModel:
    """A model that is read with another forward than the one that runs."""
    tree, source = ast.parse(model.source.text), model.source
    (cls,) = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == class_name)
    (forward,) = (node for node in cls.body if isinstance(node, ast.FunctionDef) and node.name == "forward")
    (made,) = ast.parse(f"def forward(self, x):\n    {body}").body
    cls.body[cls.body.index(forward)] = made
    text = ast.unparse(ast.fix_missing_locations(tree))
    return replace(model, source=SourceFile(source.library, source.module, source.path, text, ast.parse(text)))


@pytest.mark.parametrize("model_type", first(3, ["mixtral", "gpt_oss", "gemma2", "deepseek_v4", "glm4"]))
def test_what_runs_as_it_reads_is_confirmed(model: Models, model_type: str) -> None:
    subject = model(model_type)
    found = confirmed(subject, plan_of(subject))
    read = {f"{one.site} {one.target}" for one in find_sites(subject) if one.read}
    for decision in found.decisions:
        assert ("running" in decision.evidence) == (decision.what in read), decision
        if decision.choice in {"patch", "upstream"} and decision.what in read:
            assert decision.evidence.endswith("; confirmed by running"), decision


def test_a_skipped_class_is_run_too(model: Models) -> None:
    subject = model("gemma2")
    said = {one.what: one.evidence for one in confirmed(subject, plan_of(subject)).decisions}
    assert "; confirmed by running: forward off by" in said["rms-norm Gemma2RMSNorm.forward"]
    assert "; confirmed by running: forward off by" in said["swiglu-mlp Gemma2MLP.forward"]
    assert said["attention Gemma2Attention.forward"].endswith("; confirmed by running")


def test_a_class_that_runs_otherwise_is_an_error_with_both(model: Models) -> None:
    """Gemma's norm multiplies by 1 + weight when it runs; its text is made to say weight."""
    subject = read_as(model("gemma2"), "Gemma2RMSNorm", _PLAIN)
    plan = plan_of(subject)
    assert {one.choice for one in plan.decisions if one.what.startswith("rms-norm")} == {"patch"}
    with pytest.raises(Refusal, match=r"computes weight \* norm\(x\).*running it.*forward off by") as raised:
        confirmed(subject, plan)
    assert "modeling_gemma2.py:" in raised.value.message


def test_a_class_that_runs_as_the_kernel_and_reads_otherwise_is_an_error_with_both(model: Models) -> None:
    """Llama's norm is the kernel's when it runs; its text is made to say 1 + weight."""
    subject = read_as(model("llama"), "LlamaRMSNorm", _CENTRED)
    plan = plan_of(subject)
    assert {one.choice for one in plan.decisions if one.what.startswith("rms-norm")} == {"skip"}
    with pytest.raises(Refusal, match=r"does not compute weight \* norm\(x\): .*running it.*both agree") as raised:
        confirmed(subject, plan)
    assert "modeling_llama.py:" in raised.value.message


def test_another_version_than_the_installed_one_is_only_read(model: Models, tmp_path: Path) -> None:
    subject = model("llama")
    other = replace(subject, library=Library("transformers", tmp_path))
    plan = plan_of(subject)
    assert confirmed(other, plan) == plan


def test_new_model_confirms_and_a_dry_run_does_not(tmp_path: Path) -> None:
    for dry_run in (True, False):
        plan = new_model("mine", "llama", target="veomni", into=tmp_path, dry_run=dry_run).plan
        said = [one.what for one in plan.decisions if "confirmed by running" in one.evidence]
        assert len(said) == (0 if dry_run else 4)
