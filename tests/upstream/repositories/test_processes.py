"""Objects that authors sample with are found by what they do, and told as diffusers has them."""

from pathlib import Path

import pytest

from omni_kit.upstream.repositories.processes.left_out import left_out
from omni_kit.upstream.repositories.processes.process import Process
from omni_kit.upstream.repositories.processes.sampler_object import process_of
from omni_kit.upstream.repositories.reference import find_reference

MODEL = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.layer = nn.Linear(width, width)

    def forward(self, x, t, context):
        return self.layer(x)
"""
TRANSPORT = """
from torchdiffeq import odeint
import torch


def create_transport(path_type="Linear", prediction="velocity"):
    return (path_type, prediction)


class Sampler:
    def __init__(self, transport):
        self.transport = transport

    def sample_ode(self, *, sampling_method="dopri5", num_steps=50, reverse=False, time_shifting_factor=None):
        return lambda x, model, **more: odeint(lambda t, x: model(x, t, **more), x, torch.linspace(0, 1, num_steps))


class ODE:
    def __init__(self, num_steps, sampler_type="euler", t0=0.0, t1=1.0):
        self.t = torch.linspace(t0, t1, num_steps)
        self.sampler_type = sampler_type

    def sample(self, x, model, **more):
        return odeint(lambda t, x: model(x, t, **more), x, self.t, method=self.sampler_type)
"""
GAUSSIAN = """
class Diffusion:
    def __init__(self, betas):
        self.betas = betas


def create_diffusion(timestep_respacing="", learn_sigma=True, diffusion_steps=1000, noise_schedule="linear"):
    return Diffusion(betas=[noise_schedule] * diffusion_steps)


def create_both(respacing=""):
    model = object()
    diffusion = create_diffusion(respacing)
    return model, diffusion
"""
SOLVER = """
import torch


class Solver:
    def __init__(self, floor=0.0, num_steps=25):
        self.floor = floor
        self.num_steps = num_steps

    def to_noise(self, change, x1):
        return self.along(change, x1, 1, 0)

    def to_data(self, change, x0):
        return self.along(change, x0, 0, 1)

    def along(self, change, x, begin, end):
        points = torch.linspace(begin, end - self.floor, self.num_steps + 1)
        for i, t in enumerate(points[:-1]):
            x = x + (points[i + 1] - t) * {change}
        return x
"""
DDIM = """
class DDIMSampler:
    def __init__(self, model, **kwargs):
        self.model = model

    def make_schedule(self, steps):
        pass

    def sample(self, S, batch_size, shape, conditioning=None):
        pass

    def ddim_sampling(self, cond, shape):
        pass
"""
KEPT = """
class Latent:
    def register_schedule(self, timesteps=1000, linear_start=2e-4, linear_end=1e-2):
        pass
"""


def found(folder: Path, uses: str, change: str = "change(t, x)", kept: bool = True) -> Process | None:
    files = {
        "net": MODEL, "transport": TRANSPORT, "gaussian": GAUSSIAN, "ddim": DDIM, "sample": uses,
        "kept": KEPT if kept else "",
        "solver": SOLVER.replace("{change}", change),
    }  # fmt: skip
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
    return process_of(find_reference(f"{folder / 'net.py'}::Net"), "context")


def test_a_transport_takes_eulers_steps_from_zero(tmp_path: Path) -> None:
    one = found(
        tmp_path,
        """
from transport import Sampler, create_transport

transport = create_transport("Linear", "velocity")
sampler = Sampler(transport)
sample_fn = sampler.sample_ode(sampling_method=args.solver, num_steps=args.steps, time_shifting_factor=args.shift)
""",
    )
    assert one is not None
    assert (one.scheduler, one.rises) == ("FlowMatchEulerDiscreteScheduler", True)
    assert "Sampler(create_transport()).sample_ode(num_steps=steps + 1, sampling_method='euler')" in one.called
    assert [what for what in one.todo if "time_shifting_factor=args.shift" in what]


@pytest.mark.parametrize("made", ['create_transport("GVP")', 'create_transport(prediction="noise")'])
def test_a_transport_along_another_path_is_not_told(made: str, tmp_path: Path) -> None:
    uses = f"from transport import Sampler, create_transport\nsampler = Sampler({made})\nf = sampler.sample_ode()\n"
    assert found(tmp_path, uses) is None


@pytest.mark.parametrize(("more", "rises"), [("", True), (", t0=1.0, t1=0.0", None)])
def test_an_object_is_made_with_its_number_of_points(more: str, rises: bool | None, tmp_path: Path) -> None:
    one = found(tmp_path, f"from transport import ODE\nx = ODE(9, args.solver{more}).sample(z, net)[-1]\n")
    assert (one.rises if one is not None else None) == rises
    assert one is None or "ODE(num_steps=steps + 1, sampler_type='euler').sample(begun" in one.called


@pytest.mark.parametrize(("method", "change", "rises"), [
    ("to_data", "change(t, x)", True), ("to_noise", "change(t, x)", False), ("to_data", "2 * change(t, x)", None),
    ("to_data", "change(t + 0.1, x)", None), ("other", "change(t, x)", None),
])  # fmt: skip
def test_a_loop_of_its_own_counts_where_its_steps_are_eulers(
    method: str, change: str, rises: bool | None, tmp_path: Path
) -> None:
    one = found(tmp_path, f"from solver import Solver\nx = Solver(num_steps=9).{method}(guided, noise)\n", change)
    assert (one.rises if one is not None else None) == rises
    assert one is None or f"Solver(num_steps=steps).{method}(change=lambda t, x: asked(" in one.called


def test_literal_settings_of_an_object_are_kept(tmp_path: Path) -> None:
    """It may be an attribute, and its betas are those that it is made with."""
    one = found(
        tmp_path,
        """
from gaussian import create_diffusion


class Head:
    def __init__(self, steps):
        self.diffusion = create_diffusion(timestep_respacing=steps, noise_schedule="cosine")

    def sample(self, net, noise):
        return self.diffusion.p_sample_loop(net, noise.shape, noise)
""",
    )
    assert one is not None
    assert one.config["beta_schedule"] == "squaredcos_cap_v2"
    assert "create_diffusion(timestep_respacing=str(steps), noise_schedule='cosine').p_sample" in one.called


@pytest.mark.parametrize("made", ["diffusion = create_diffusion('25')", "net, diffusion = create_both('25')"])
def test_betas_are_found_however_the_object_comes(made: str, tmp_path: Path) -> None:
    one = found(
        tmp_path,
        f"""
from gaussian import create_both, create_diffusion

{made}
run = diffusion.p_sample_loop if not args.ddim else diffusion.ddim_sample_loop
x = run(net.forward, z.shape, z, clip_denoised=False)
""",
    )
    assert one is not None
    assert one.scheduler == "DDPMScheduler"
    assert one.config["variance_type"] == "learned_range"
    assert one.config["clip_sample"] is False
    assert "create_diffusion(timestep_respacing=str(steps)).p_sample_loop(" in one.called


SPACED = """
class Spaced:
    def p_sample_loop(self, model, shape, noise=None, **more):
        return noise

def create_spaced(steps, learn_sigma, predict_xstart, timestep_respacing):
    return Spaced(betas=betas_of(steps))
"""


@pytest.mark.parametrize(
    ("more", "known"), [("", True), ("  other: {steps: 50, learn_sigma: true, predict_xstart: true}", False)]
)
def test_what_an_object_must_be_made_with_is_that_of_a_config(more: str, known: bool, tmp_path: Path) -> None:
    """The loop may yield its steps; configs that say different values say none."""
    said = "{steps: 400, learn_sigma: false, predict_xstart: true}"
    (tmp_path / "config.yaml").write_text(f"all:\n  diffusion: {said}\n{more}\n", encoding="utf-8")
    (tmp_path / "spaced.py").write_text(SPACED, encoding="utf-8")
    one = found(
        tmp_path,
        """
from spaced import create_spaced

diffusion = create_spaced(**kwargs)
for out in diffusion.p_sample_loop_progressive(net, shape, clip_denoised=True):
    x = out["sample"]
""",
    )
    assert (one is not None and "create_spaced(" in one.called) is known
    if known:
        assert one is not None
        assert "(timestep_respacing=str(steps), learn_sigma=False, predict_xstart=True, steps=400).p_s" in one.called
        assert (one.config["num_train_timesteps"], one.config["prediction_type"]) == (400, "sample")


def test_a_sampler_of_latent_diffusion_guides_itself(tmp_path: Path) -> None:
    one = found(tmp_path, "from ddim import DDIMSampler\nsampler = DDIMSampler(net)\n")
    assert one is not None
    assert (one.scheduler, one.config["beta_start"], one.config["steps_offset"]) == ("DDIMScheduler", 2e-4, 1)
    assert any("context=c" in line for line in one.held)
    assert "kept.py:3" in one.todo[0]


JOINING = """
import torch


class Wrapper:
    def forward(self, x, t, c_concat=None, c_crossattn=None):
        return self.net(torch.cat({order}, dim=1), t, context=c_crossattn[0])


def against(c):
    return {{"c_crossattn": [torch.zeros(1, 1, 4)], **c}}
"""


@pytest.mark.parametrize(("order", "key", "parts"), [
    ("[x] + c_concat", "hybrid", ("", "c_concat")), ("c_concat + [x]", "concat", ("c_concat", "")),
    ("[x]", "hybrid", None), ("[x] + c_concat", "crossattn", ()),
])  # fmt: skip
def test_a_sampler_of_latent_diffusion_passes_conditions_that_its_model_joins(
    order: str, key: str, parts: tuple[str, ...] | None, tmp_path: Path
) -> None:
    """Without the place where they are joined nothing is known of it."""
    text = WHOLE.format(more=f"conditioning_key: {key}").replace("net:", "net:\n    target: net.Net")
    (tmp_path / "config.yaml").write_text(text, encoding="utf-8")
    (tmp_path / "wrapper.py").write_text(JOINING.format(order=order), encoding="utf-8")
    one = found(tmp_path, "from ddim import DDIMSampler\nsampler = DDIMSampler(net)\n")
    assert (one is not None) == (parts is not None)
    if one is not None:
        assert (one.joined.parts if one.joined is not None else ()) == parts
        assert ("context=c" in one.held[-2]) == (key != "concat")


SCALED = KEPT.replace(
    "class Latent:", "class Latent:\n    def __init__(self, {given}):\n        self.use_scale = use_scale\n"
)


@pytest.mark.parametrize(
    ("given", "filled"), [("use_scale=False", True), ("use_scale=True", False), ("use_scale", False)]
)
def test_what_a_sampler_reads_of_its_model_is_filled_or_it_is_not_taken(
    given: str, filled: bool, tmp_path: Path
) -> None:
    """An array that only a scale needs has no value by default."""
    reads = "self.scaled = self.model.use_scale\n        if self.model.use_scale:\n            self.model.scale_arr\n"
    (tmp_path / "scaled.py").write_text(SCALED.format(given=given), encoding="utf-8")
    (tmp_path / "reading.py").write_text(DDIM.replace("pass\n", reads, 1), encoding="utf-8")
    one = found(tmp_path, "from reading import DDIMSampler\nsampler = DDIMSampler(net)\n", kept=False)
    assert (one is not None) == filled
    assert one is None or any("use_scale=False" in line for line in one.held)


@pytest.mark.parametrize(("usual", "filled"), [("eps", True), ("v", False)])
def test_an_attribute_that_decides_a_branch_is_filled(usual: str, filled: bool, tmp_path: Path) -> None:
    kept = KEPT.replace("class Latent:", f"class Latent:\n    def __init__(self):\n        self.kind = {usual!r}\n")
    (tmp_path / "kinds.py").write_text(kept, encoding="utf-8")
    reads = 'if self.model.kind == "v":\n            self.model.from_velocity()\n'
    (tmp_path / "reading.py").write_text(DDIM.replace("pass\n", reads, 1), encoding="utf-8")
    one = found(tmp_path, "from reading import DDIMSampler\nsampler = DDIMSampler(net)\n", kept=False)
    assert (one is not None) == filled
    assert one is None or any("kind='eps'" in line for line in one.held)


@pytest.mark.parametrize(("usual", "predicts"), [("eps", None), ("v", "v_prediction")])
def test_a_model_may_predict_the_velocity(usual: str, predicts: str | None, tmp_path: Path) -> None:
    init = f"class Latent:\n    def __init__(self):\n        self.parameterization = {usual!r}\n"
    (tmp_path / "kinds.py").write_text(KEPT.replace("class Latent:", init), encoding="utf-8")
    reads = 'if self.model.parameterization == "v":\n            e = self.model.predict_eps_from_z_and_v(x, t, v)\n'
    (tmp_path / "reading.py").write_text(DDIM.replace("pass\n", reads, 1), encoding="utf-8")
    one = found(tmp_path, "from reading import DDIMSampler\nsampler = DDIMSampler(net)\n", kept=False)
    assert one is not None
    assert one.config.get("prediction_type") == predicts
    assert any("predict_eps_from_z_and_v=lambda" in line for line in one.held) == (predicts is not None)


WHOLE = """
model:
  linear_start: 0.003
  linear_end: 0.03
  timesteps: 500
  {more}
  net:
    width: 8
"""


@pytest.mark.parametrize(("more", "start"), [
    ("scale: 1", 3e-3), ("beta_schedule: cosine", None), ("zero_snr_betas: true", None),
])  # fmt: skip
def test_betas_are_those_around_the_published_config(more: str, start: float | None, tmp_path: Path) -> None:
    (tmp_path / "whole.yaml").write_text(WHOLE.format(more=more), encoding="utf-8")
    one = found(tmp_path, "from ddim import DDIMSampler\nsampler = DDIMSampler(net)\n")
    assert (one.config["beta_start"] if one is not None else None) == start
    assert one is None or (one.config["num_train_timesteps"], "whole.yaml" in one.todo[0]) == (500, True)


@pytest.mark.parametrize(("told", "near", "far"), [
    ('told["view"] = view', ["view"], []),
    ("sampler.sample(9, view=view)", ["view"], []),
    ("told = dict(view=view)", ["view"], []),
    ('told["view"] = None', [], []),
    ("def run(n):\n    view = None\n    sampler.sample(n, view=view)", [], []),
    ("def run(n, view=None):\n    sampler.sample(n, view=view)", [], []),
    ("def run(n, view):\n    sampler.sample(n, view=view)", ["view"], []),
    ("def run(n, view=None):\n    if n:\n        view = 3\n    sampler.sample(n, view=view)", ["view"], []),
    ('told["unread"] = view', [], []),
    ('told["quick"] = view', [], ["quick"]),
    ("show(view=view)", [], []),
    ("model(x, t, view=view)", [], ["view"]),
])  # fmt: skip
def test_arguments_that_a_call_leaves_out_are_named(told: str, near: list[str], far: list[str], tmp_path: Path) -> None:
    one = found(tmp_path, f"from ddim import DDIMSampler\nsampler = DDIMSampler(net)\n{told}\n")
    taken = MODEL.replace("context)", "context, view=None, unread=None, quick=False)")
    (tmp_path / "seen.py").write_text(taken.replace("layer(x)", "layer(x) + view * quick"), encoding="utf-8")
    assert one is not None
    by_sampling, elsewhere = left_out(find_reference(f"{tmp_path / 'seen.py'}::Net"), one, ["x", "t", "context"])
    assert (by_sampling, [*elsewhere]) == (near, far)


LABELLED = """
from torch import nn


class Net(nn.Module):
    def __init__(self, width=4, classes={classes}):
        super().__init__()
        self.layer, self.classes = nn.Linear(width, width), None
        self.classes = classes

    def forward(self, x, t, context, y=None):
        assert (y is None) == (self.classes is None)
        if {test}:
            x = x + y
        return self.layer(x)
"""


@pytest.mark.parametrize(("classes", "test", "near"), [
    ("None", "self.classes is not None", []),
    ("False", "self.classes", []),
    ("10", "self.classes is not None", ["y"]),
    ("None", "y is not None", ["y"]),
    ("None", "self.classes is None", ["y"]),
])  # fmt: skip
def test_an_argument_for_what_the_constructor_leaves_unset_is_not_left_out(
    classes: str, test: str, near: list[str], tmp_path: Path
) -> None:
    one = found(tmp_path, 'from ddim import DDIMSampler\nsampler = DDIMSampler(net)\ntold["y"] = labels\n')
    (tmp_path / "labelled.py").write_text(LABELLED.format(classes=classes, test=test), encoding="utf-8")
    assert one is not None
    reference = find_reference(f"{tmp_path / 'labelled.py'}::Net")
    assert left_out(reference, one, ["x", "t", "context"]) == (near, {})


@pytest.mark.parametrize(("kept", "near"), [
    ("exists(classes)", []), ("exists(classes) or width > 2", ["y"]), ("unknown(classes)", ["y"]),
])  # fmt: skip
def test_what_the_constructor_works_out_may_be_unset(kept: str, near: list[str], tmp_path: Path) -> None:
    one = found(tmp_path, 'from ddim import DDIMSampler\nsampler = DDIMSampler(net)\ntold["y"] = labels\n')
    text = LABELLED.format(classes="None", test="self.classes").replace("classes = classes", f"classes = {kept}")
    exists = "def exists(one):\n    return one is not None\n\n\nclass Net("
    (tmp_path / "labelled.py").write_text(text.replace("class Net(", exists), encoding="utf-8")
    assert one is not None
    reference = find_reference(f"{tmp_path / 'labelled.py'}::Net")
    assert left_out(reference, one, ["x", "t", "context"])[0] == near


def test_the_nearest_use_counts(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "ddim.py").write_text(DDIM, encoding="utf-8")
    (tmp_path / "far" / "a.py").write_text("from far.ddim import DDIMSampler\nDDIMSampler(net)\n", encoding="utf-8")
    one = found(tmp_path, "from transport import ODE\nx = ODE(9).sample(z, net)[-1]\n")
    assert one is not None
    assert one.imports == ("from transport import ODE",)


LOOPS = """
class Diffusion:
    def p_sample_loop(self, model, shape, noise=None, clip_denoised=True, model_kwargs={{}}, device=None, conf=None):
        {reads}
"""


@pytest.mark.parametrize(("reads", "known"), [
    ("return conf.jumps", False), ("return conf['jumps']", False),
    ("return noise if conf is None else conf.jumps", True),
    ("if conf is not None:\n            return conf.jumps", True), ("if conf.jumps:\n            pass", False),
])  # fmt: skip
def test_a_loop_that_reads_what_is_null_by_default_is_another_one(reads: str, known: bool, tmp_path: Path) -> None:
    made = "\ndef create(timestep_respacing=''):\n    return Diffusion(betas=[0.1])\n"
    (tmp_path / "jumping.py").write_text(LOOPS.format(reads=reads) + made, encoding="utf-8")
    uses = "from jumping import create\ndiffusion = create()\nx = diffusion.p_sample_loop(net, z.shape, z)\n"
    assert (found(tmp_path, uses) is not None) == known


@pytest.mark.parametrize(("taken", "made", "known"), [
    ("shape, noise=None, clip_denoised=True, model_kwargs=None, device=None", "Diffusion", True),
    ("shape, noise=None, **more", "Diffusion", True), ("noise, measured, operator, record", "Diffusion", False),
    ("shape, noise=None, **more", "chosen()", False),
])  # fmt: skip
def test_a_loop_that_takes_other_arguments_is_another_one(taken: str, made: str, known: bool, tmp_path: Path) -> None:
    text = f"class Diffusion:\n    def p_sample_loop(self, model, {taken}):\n        return noise\n"
    made = f"\ndef create(timestep_respacing=''):\n    return {made}(betas=[0.1])\n"
    (tmp_path / "measuring.py").write_text(text + made, encoding="utf-8")
    uses = "from measuring import create\ndiffusion = create()\nx = diffusion.p_sample_loop(net, z.shape, z)\n"
    assert (found(tmp_path, uses) is not None) == known


def test_a_named_sampler_is_the_one_that_is_taken(tmp_path: Path) -> None:
    uses = "from gaussian import create_diffusion\nd = create_diffusion()\nx = d.p_sample_loop(net, z.shape, z)\n"
    assert found(tmp_path, uses) is not None
    net = tmp_path / "net.py"
    for name, taken in (("Diffusion.p_sample_loop_progressive", True), ("Own.walk", False)):
        one = process_of(find_reference(f"{net}::Net::{name}"), "context")
        assert (one is not None) == taken
