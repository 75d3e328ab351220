"""Integrations of diffusion transformers: what is quiet, how packages inside packages count, what formulas give."""

from pathlib import Path

import pytest

from omni_checkers import NotApplicable, check
from omni_checkers.symbolic import Opaque
from omni_checkers.veomni.examples_diffusion import CONDITION_CONFIGURATION, CONDITIONS, CONFIGURATION, MODELING
from omni_checkers.veomni.facts.diffusion import mixtures, numbers
from omni_checkers.veomni.facts.diffusion.mixtures import Mixture
from omni_checkers.veomni.facts.diffusion.noising import on_every_path
from omni_checkers.veomni.facts.diffusion.numbers import Flat
from omni_checkers.veomni.facts.model import model_facts
from omni_kit.diagnostics.definition import family_of

from .conftest import Subject, found, home_of

REGISTER = """\
from veomni.models.loader import MODEL_CONFIG_REGISTRY, MODELING_REGISTRY


@MODEL_CONFIG_REGISTRY.register("{key}")
def register_config():
    from .configuration import {key}Config

    return {key}Config


@MODELING_REGISTRY.register("{key}")
def register_modeling(architecture: str | None = None):
    from .modeling import {key}

    return {key}
"""
FORWARD = """\
    def forward(self, **batch):
        targets = batch.pop("training_target")
        batch.pop("latents", None)
        losses, predictions = [], []
        with shared(self, _WanTransformer3DModel._cp_plan):
            for index, target in enumerate(targets):
                sample = {name: values[index] for name, values in batch.items()}
                (prediction,) = _WanTransformer3DModel.forward(self, **sample, return_dict=False)
                losses.append(F.mse_loss(prediction.float(), target.float()))
                predictions.append(prediction)
        return WanModelOutput(loss={"mse_loss": torch.stack(losses).mean()}, predictions=predictions)
"""
HOOKS = '''\
from contextlib import contextmanager

from veomni.distributed.parallel_state import get_parallel_state
from veomni.distributed.sequence_parallel import gather_outputs, slice_input_tensor


@contextmanager
def shared(model, plan):
    """Slices and gathers where diffusers' own plan says so."""
    hooks = []
    if get_parallel_state().sp_enabled:
        for name, entries in plan.items():
            module = model.get_submodule(name)
            hooks.append(module.register_forward_pre_hook(lambda m, given: slice_input_tensor(given[0], dim=1)))
            hooks.append(module.register_forward_hook(lambda m, given, out: gather_outputs(out, gather_dim=1)))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
'''


def _plugin(place: Path) -> Path:
    """An integration that patches nothing: hooks by diffusers' plan, and dicts made by comprehensions."""
    top = place / "wan"
    transformer, condition = top / "wan_transformer", top / "wan_condition"
    for folder in (transformer, condition):
        folder.mkdir(parents=True)
    start, end = MODELING.index("    def forward"), MODELING.index("    def save_pretrained")
    modeling = MODELING[:start] + FORWARD + "\n" + MODELING[end:]
    modeling = modeling.replace("from .configuration_wan_transformer", "from .hooks import shared\nfrom .configuration")
    names = '"hidden_states", "timestep", "encoder_hidden_states", "training_target", "latents"'
    conditions = CONDITIONS.replace(
        'inputs = {"hidden_states": [], "timestep": [], "encoder_hidden_states": []}', "pass"
    )
    conditions = conditions.replace(
        'inputs |= {"training_target": [], "latents": []}', f"inputs = {{n: [] for n in ({names})}}"
    )
    conditions = conditions.replace("from .....", "from veomni.").replace(
        "configuration_wan_condition", "configuration"
    )
    texts = {
        top / "__init__.py": "from . import wan_condition, wan_transformer\n",
        transformer / "__init__.py": REGISTER.format(key="WanTransformer3DModel"),
        transformer / "configuration.py": CONFIGURATION,
        transformer / "modeling.py": modeling,
        transformer / "hooks.py": HOOKS,
        condition / "__init__.py": REGISTER.format(key="WanTransformer3DConditionModel"),
        condition / "configuration.py": CONDITION_CONFIGURATION,
        condition / "modeling.py": conditions,
    }
    for file, text in texts.items():
        file.write_text(text, encoding="utf-8")
    return top


def test_an_integration_by_hooks_is_quiet(tmp_path: Path) -> None:
    report = check([_plugin(tmp_path)])
    assert report.findings == []
    judged = {result.rule for result in report.results if result.status == "pass"}
    assert judged >= {"VEO621", "VEO622", "VEO623", "VEO624", "VEO625", "VEO626", "VEO627", "VEO635", "VEO636"}


class TestPackagesInside:
    def test_both_are_imported(self, subject: Subject) -> None:
        assert found(subject("wan_t2v"), "VEO1") == []

    @pytest.mark.parametrize("kept", ["condition", "transformer"])
    def test_one_is_forgotten(self, kept: str, subject: Subject) -> None:
        path = subject("wan_t2v", {"__init__.py": f"from . import wan_{kept}\n"})
        (finding,) = found(path, "VEO101")
        assert "never reached" in finding.message
        assert (finding.path, finding.line) == (path / "__init__.py", 1)

    @pytest.mark.parametrize(
        "text",
        [
            "from .wan_condition import MODELING_REGISTRY\nfrom .wan_transformer import MODEL_CONFIG_REGISTRY\n",
            "from importlib import import_module\nfor n in ('condition', 'transformer'):\n"
            "    import_module(f'.wan_{n}', __name__)\n",
            "from .wan_condition.configuration_wan_condition import *\nfrom .wan_transformer import *\n",
        ],
    )
    def test_however_they_are_imported(self, text: str, subject: Subject) -> None:
        assert found(subject("wan_t2v", {"__init__.py": text}), "VEO101") == []

    def test_the_aggregate_forgets_the_model(self, subject: Subject) -> None:
        (finding,) = found(subject("wan_t2v", {"../__init__.py": "from . import qwen_image\n"}), "VEO103")
        assert "'wan_t2v'" in finding.message


@pytest.mark.parametrize("model", ["wan_t2v", "qwen_image", "ltx2_3", "minimax_h3"])
def test_rules_about_language_models_say_nothing(model: str, veomni_models: Path) -> None:
    findings = check([home_of(veomni_models, model)]).findings
    of_any_model = {"VEO427"}
    assert {finding.rule[:5] for finding in findings if family_of(finding.rule) not in of_any_model} <= {
        "VEO62",
        "VEO63",
    }


class TestFormulas:
    def test_numbers(self) -> None:
        one, two = Flat(3.0, 10, trained=True), Flat(1.0, 30)
        assert numbers.binary("sub", one, two) == Flat(2.0, 30, trained=True)
        assert numbers.together([one, two], True, "mean").value == 1.5
        assert numbers.together([one, two], False, "mean").value == 2.0
        assert one.method("detach", [], {}) == Flat(3.0, 10)

    def test_mixtures(self) -> None:
        clean, noise, sigma = Mixture(1, 0), Mixture(0, 1), Opaque("scheduler.sigmas[0]")
        rest = mixtures.combined("sub", 1, sigma)
        mixed = mixtures.combined("add", mixtures.combined("mul", rest, clean), mixtures.combined("mul", sigma, noise))
        assert mixed == mixtures.noised(clean, noise)
        assert mixtures.combined("sub", noise, clean) == Mixture(-1, 1)
        assert mixtures.combined("sub", clean, Opaque("mean")).steps == (("sub", "mean"),)


def test_what_is_wrong_on_every_path() -> None:
    assert on_every_path([]) is None
    assert on_every_path([["sign", "level"], ["level"]]) == {"level"}
    paths = iter([["sign"], [], ["sign"]])
    assert on_every_path(paths) == set()
    assert list(paths) == [["sign"]]  # those after the one that is right are not followed


class TestCopiesOfTheLibrary:
    """What VeOmni wrote by hand in the place of diffusers' own: a subclass, a renamed copy, a patched one, a helper."""

    @pytest.mark.parametrize(
        ("model", "part", "rule", "old", "new"),
        [
            ("wan_t2v", "wan_transformer", "VEO415", "sin = freqs_sin[..., 1::2]", "sin = freqs_sin[..., 0::2]"),
            ("wan_t2v", "wan_transformer", "VEO416", "        key = attn.norm_k(key)\n", ""),
            ("wan_t2v", "wan_transformer", "VEO415", "* (1 + scale) + shift", "* scale + shift"),
            ("qwen_image", "qwen_image_transformer", "VEO415", "attn.norm_k(img_key)", "attn.norm_q(img_key)"),
            ("qwen_image", "qwen_image_transformer", "VEO415", "guidance.to(hidden_states.dtype) *", "guidance *"),
            ("qwen_image", "qwen_image_condition", "VEO415", "permute(0, 2, 4, 1, 3, 5)", "permute(0, 2, 4, 3, 5, 1)"),
        ],
    )
    def test_a_slip_is_found(self, model: str, part: str, rule: str, old: str, new: str, subject: Subject) -> None:
        assert found(subject(model, {f"{part}/modeling_{part}.py": (old, new)}), rule)

    @pytest.mark.parametrize("model", ["wan_t2v", "qwen_image"])
    def test_what_is_meant_is_quiet(self, model: str, subject: Subject) -> None:
        path = subject(model)
        assert found(path, "VEO415") == found(path, "VEO416") == []
        functions = {one.name for one in model_facts(path)[0].get("copies")}
        assert any(name.endswith("SPAttnProcessor.__call__") for name in functions)
        assert any(name.endswith("Model_forward") for name in functions)

    def test_what_was_written_anew_is_no_copy(self, subject: Subject) -> None:
        path = subject("ltx2_3")
        with pytest.raises(NotApplicable, match="replaces a library's"):
            model_facts(path)[0].get("copies")
