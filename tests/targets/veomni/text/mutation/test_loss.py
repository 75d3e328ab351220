"""The fused loss takes the place of any spelling of head and loss that computes the same, and of no other.

Each rewriting is patched, and torch compares the patched forward with the rewriting itself: loss, logits, gradients.
"""

import ast
import copy
from dataclasses import dataclass, field, make_dataclass, replace
from typing import Any

import pytest
import torch

from omni_kit.pysource.source import SourceFile
from omni_kit.targets.veomni.text.loss import OUTPUTS
from omni_kit.targets.veomni.text.patches import derive_patches
from omni_kit.targets.veomni.text.sites import find_sites
from omni_kit.upstream.transformers.models import UpstreamModel
from tests.conftest import SIZES, Models, sampled
from tests.targets.veomni.text.mutation.truth import definitions

HEAD = "logits = self.lm_head(hidden_states[:, slice_indices, :])"
START = "        loss = None\n        if labels is not None:\n"
LLAMA = "self.loss_function(logits=logits, labels=labels, vocab_size=self.config.vocab_size, **kwargs)"
MIXTRAL = "self.loss_function(logits, labels, self.vocab_size, **kwargs)"
BLOCK = f"{START}            loss = {{call}}\n"

KEEPING = {
    "other names": (HEAD, HEAD.replace("logits", "scores") + "\n        logits = scores"),
    "hidden states with a name": (
        HEAD, "kept = hidden_states[:, slice_indices, :]\n        logits = self.lm_head(kept)"
    ),
    "an alias of the head": (HEAD, "head = self.lm_head\n        " + HEAD.replace("self.lm_head", "head")),
    "forward of the head": (HEAD, HEAD.replace("lm_head(", "lm_head.forward(")),
    "linear": (HEAD, HEAD.replace("self.lm_head(", "nn.functional.linear(").replace(":])", ":], self.lm_head.weight)")),
    "matmul": (HEAD, "logits = hidden_states[:, slice_indices, :] @ self.lm_head.weight.T"),
    "transposed": (HEAD, "logits = torch.matmul(hidden_states[:, slice_indices, :], self.lm_head.weight.t())"),
    "a statement between": (HEAD, HEAD + "\n        count = labels.shape[0] if labels is not None else 0"),
    "the result of a call is called": (HEAD, HEAD + "\n        size = torch.Tensor.size.__get__(hidden_states)()"),
    "the condition negated": (START, "        if labels is None:\n            loss = None\n        else:\n"),
    "else last": (
        BLOCK, "        if not labels is None:\n            loss = {call}\n        else:\n            loss = None\n"
    ),
    "a conditional expression": (BLOCK, "        loss = {call} if labels is not None else None\n"),
    "a condition with a name": (
        BLOCK, "        given = labels is not None\n" + BLOCK.replace("labels is not None", "given")
    ),
    "an alias of the loss": (BLOCK, BLOCK.replace("{call}", "function(*given, **kwargs)").replace(
        START, "        function, given = self.loss_function, (logits, labels, self.config.vocab_size)\n" + START)),
    "arguments by name": (
        "{call}", "self.loss_function(vocab_size=self.config.vocab_size, labels=labels, logits=logits, **kwargs)"
    ),
    "arguments by place": ("{call}", "self.loss_function(logits, labels, self.lm_head.out_features, **kwargs)"),
    "annotated": (HEAD, HEAD.replace("logits =", "logits: torch.Tensor =")),
    "the loss scaled": (BLOCK, BLOCK + "            loss = loss * 0.5\n"),
    "an output with a name": ("        return {output}(", "        output = {output}("),
}  # fmt: skip
CHANGING = {
    "a factor of the batch": (HEAD, HEAD + " * input_ids.shape[0]"),
    "a cap": (HEAD, HEAD + "\n        logits = 30 * torch.tanh(logits / 30)"),
    "a bias": (HEAD, HEAD + " + 1"),
    "a cast": (HEAD, HEAD + ".double()"),
    "other labels": ("{call}", "self.loss_function(logits, labels + 1, self.config.vocab_size, **kwargs)"),
    "shifted logits": ("{call}", "self.loss_function(logits.roll(1, 1), labels, self.vocab_size, **kwargs)"),
    "an index to ignore": ("{call}", "self.loss_function(logits, labels, self.vocab_size, ignore_index=3, **kwargs)"),
    "a share of the vocabulary": ("{call}", "self.loss_function(logits, labels, self.vocab_size // 2, **kwargs)"),
    "the loss of the logits": (BLOCK, BLOCK + "            loss = loss + logits.logsumexp(-1).mean()\n"),
    "the loss left out": (BLOCK, BLOCK + "            loss = logits.sum()\n"),
    "labels changed": (HEAD, HEAD + "\n        if labels is not None:\n            labels[:, :1] = -100"),
    "logits changed in place": (HEAD, HEAD + "\n        logits[..., :2] = -1.0"),
    "two heads": (HEAD, HEAD.replace(", :])", ", :] * 2)") + " + self.lm_head(hidden_states)"),
    "another head": (HEAD, HEAD.replace("lm_head", "other_head")),
}  # fmt: skip


def mutated(model: UpstreamModel, name: str, old: str, new: str) -> UpstreamModel:
    """The model with a text of its head's forward replaced."""
    call = LLAMA if name == "llama" else MIXTRAL
    output = "CausalLMOutputWithPast" if name == "llama" else "MoeCausalLMOutputWithPast"
    old, new = (one.replace("{call}", call).replace("{output}", output) for one in (old, new))
    text, source = model.source.text, model.source
    begins = text.index(f"class {model.class_name}")
    assert old in text[begins:], old
    text = text[:begins] + text[begins:].replace(old, new, 1)
    if new.strip().startswith("output = "):
        ends = text.index("\n        )\n", text.index(new)) + len("\n        )\n")
        text = f"{text[:ends]}        return output\n{text[ends:]}"
    return replace(model, source=SourceFile(source.library, source.module, source.path, text, ast.parse(text)))


def decision(model: UpstreamModel) -> tuple[str, str]:
    (site,) = (one for one in find_sites(model) if one.site == "causal-lm-loss")
    return site.decision, site.reason


@dataclass
class Slot:
    """A slot with a kernel bound: it makes the loss of hidden states, and no logits."""

    bound: bool
    function: Any = None

    @property
    def use_non_eager_impl(self) -> bool:
        return self.bound

    def __call__(self, *args: Any, **given: Any) -> Any:
        return self.function(*args, **given)


def _veomni_loss(fused: bool) -> Any:
    def loss(
        logits: Any, labels: Any, vocab_size: int, hidden_states: Any = None, weights: Any = None, **rest: Any
    ) -> Any:
        from transformers.loss.loss_utils import ForCausalLMLoss

        made = hidden_states @ weights.T if fused else logits
        return ForCausalLMLoss(made, labels, vocab_size, **rest), None if fused else made, None

    return loss


def outputs(model: UpstreamModel, labels: bool, patched: bool | None) -> list[torch.Tensor]:
    """Loss, logits and gradients of a forward: as it is, or patched with a kernel bound or none."""
    from transformers import AutoConfig

    owner = copy.deepcopy(model.source.classes[model.class_name])
    for method in owner.body:
        if isinstance(method, ast.FunctionDef):
            method.decorator_list = []  # they look for the file that it stands in
    names = definitions(model.source.module, [owner])
    if patched is not None:
        sites = [one for one in find_sites(model) if "loss" in one.site]
        target = f"{model.class_name}.forward"
        (patch,) = [one for one in derive_patches(model, sites).patches if one.target == target]
        for old, new in OUTPUTS.items():
            if old in names:
                more = [("fused_linear_aux", Any, field(default=None))]
                names[new] = make_dataclass(new, more, bases=(names[old],))
        names["veomni_causal_lm_loss"] = Slot(patched, _veomni_loss(fused=True))
        names["veomni_load_balancing_loss"] = Slot(patched, names.get("load_balancing_loss_func"))
        exec(compile(patch.text, "<patched>", "exec"), names)
        names[model.class_name].forward = next(one for name, one in names.items() if name.endswith("_forward_patched"))
    torch.manual_seed(0)
    default = AutoConfig.for_model(model.config.model_type)
    given = {k: v for k, v in SIZES.items() if hasattr(default, k)} | {"output_router_logits": True}
    built = names[model.class_name](AutoConfig.for_model(model.config.model_type, **given))
    if patched is not None:
        built.loss_function = _veomni_loss(fused=False)
    ids = torch.randint(0, 90, (2, 7))
    result = built(input_ids=ids, labels=ids.clone() if labels else None)
    if not labels:
        return [result.logits]
    gradients = torch.autograd.grad(result.loss, list(built.parameters()), allow_unused=True)
    return [result.loss, *(torch.zeros(()) if one is None else one for one in gradients)]


@pytest.mark.parametrize("model_type", sampled(["llama", "mixtral"], "llama"))
@pytest.mark.parametrize("name", sampled(KEEPING, *[*KEEPING][::3]))
def test_another_spelling_is_patched_and_computes_the_same(model: Models, model_type: str, name: str) -> None:
    subject = mutated(model(model_type), model_type, *KEEPING[name])
    assert decision(subject)[0] == "patch", decision(subject)[1]
    for labels in (True, False):
        expected = outputs(subject, labels, None)
        for bound in (True, False):
            for found, wanted in zip(outputs(subject, labels, bound), expected, strict=True):
                assert torch.allclose(found, wanted, rtol=1e-4, atol=1e-6), (labels, bound)


@pytest.mark.parametrize("model_type", sampled(["llama", "mixtral"], "mixtral"))
@pytest.mark.parametrize("name", sampled(CHANGING, *[*CHANGING][::2]))
def test_a_changed_meaning_is_not_patched(model: Models, model_type: str, name: str) -> None:
    found, reason = decision(mutated(model(model_type), model_type, *CHANGING[name]))
    assert found != "patch"
    assert reason
