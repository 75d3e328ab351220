"""The scheduler of diffusers for a sampler of the authors' that goes all steps of its training."""

from pathlib import Path

import pytest
import torch

from omni_kit.targets.diffusers.scheduling.authors_process import confirmed, process_along
from omni_kit.targets.references.authors_calls import limited
from omni_kit.targets.references.sampled_latents import unclamped
from omni_kit.upstream.repositories.processes.process import Process
from omni_kit.upstream.repositories.processes.sampler_object import process_of
from omni_kit.upstream.repositories.processes.used_samplers import UNUSED
from omni_kit.upstream.repositories.reference import find_reference
from tests.conftest import first
from tests.upstream.repositories.test_authors_calls import NET

SAMPLER = """

class Sampler(nn.Module):
    def __init__(self, model, T=TRAINED):
        super().__init__()
        self.model, self.T = model, T
        self.register_buffer("betas", torch.linspace(1e-4, LAST, T).double())
        kept = torch.cumprod(1 - self.betas, 0)
        before = torch.cat([torch.ones(1).double(), kept[:-1]])
        self.register_buffer("kept", kept)
        self.register_buffer("variance", self.betas * (1 - before) / (1 - kept))

    def forward(self, x_T):
        x = x_T
        for step in reversed(range(self.T)):
            t = torch.full((len(x),), step)
            beta, kept = self.betas[step].float(), self.kept[step].float()
            x = (x - beta / (1 - kept).sqrt() * self.model(x, t)) / (1 - beta).sqrt()
            if step > 0:
                x = x + NOISE[step].float().sqrt() * torch.randn_like(x)
        return LEFT
"""


def found(place: Path, trained: int = 1000, last: str = "0.02", noise: str = "self.betas",
          left: str = "torch.clip(x, -1, 1)") -> Process | None:  # fmt: skip
    file, text = place / "net.py", NET + SAMPLER
    for name, value in {"TRAINED": str(trained), "LAST": last, "NOISE": noise, "LEFT": left}.items():
        text = text.replace(name, value)
    file.write_text(text, encoding="utf-8")
    return process_along(find_reference(f"{file}::Net"), {"x": "hidden_states", "t": "timestep"})


def test_a_sampler_that_clamps_its_result_is_compared_before_that(tmp_path: Path) -> None:
    process = found(tmp_path)
    assert process is not None
    assert (process.scheduler, process.every_step) == ("DDPMScheduler", True)
    assert process.config == {"clip_sample": False, "variance_type": "fixed_large"}
    assert (
        process.called == "unclamped(lambda: denoiser.ended(Sampler(model=denoiser, T=steps)(x_T=begun), begun.shape))"
    )


def test_a_sampler_without_a_clamp_and_with_another_number_of_steps(tmp_path: Path) -> None:
    process = found(tmp_path, trained=400, noise="self.variance", left="x")
    assert process is not None
    assert process.config == {"clip_sample": False, "num_train_timesteps": 400}
    assert process.called.startswith("denoiser.ended(")


def test_a_result_that_is_bent_has_no_scheduler(tmp_path: Path) -> None:
    assert found(tmp_path, left="torch.tanh(x)") is None


def test_betas_are_those_of_the_number_of_steps(tmp_path: Path) -> None:
    """They grow as steps become fewer: those of training are linear in diffusers, too."""
    process = found(tmp_path, last="0.02 * 1000 / T", noise="self.variance")
    assert process is not None
    assert process.config == {"clip_sample": False}
    assert process.small["num_train_timesteps"] == len(process.small["trained_betas"]) == 24  # type: ignore[arg-type]
    assert not any("trained_betas" in one for one in process.todo)


def test_betas_of_no_schedule_of_diffusers_are_left_to_a_person(tmp_path: Path) -> None:
    file = tmp_path / "net.py"
    betas = "torch.linspace(1e-4, LAST, T).double()"
    text = (NET + SAMPLER).replace(betas, "torch.sigmoid(torch.linspace(-6, 6, T).double()) * 0.02 + 1e-5")
    for name, value in {"TRAINED": "200", "NOISE": "self.betas", "LEFT": "(x + 1) * 0.5"}.items():
        text = text.replace(name, value)
    file.write_text(text, encoding="utf-8")
    process = process_along(find_reference(f"{file}::Net"), {"x": "hidden_states", "t": "timestep"})
    assert process is not None
    assert process.config == {"num_train_timesteps": 200, "clip_sample": False, "variance_type": "fixed_large"}
    assert process.called.endswith("* 2 - 1")
    assert any("the 200 betas of Sampler" in one for one in process.todo)


def test_the_last_clamp_of_all_latents_is_undone() -> None:
    x = torch.tensor([0.5, 2.0])
    assert unclamped(lambda: x.clamp(-1, 1)).tolist() == [0.5, 2.0]
    assert unclamped(lambda: x.clone().clamp_(-1, 1)).tolist() == [0.5, 2.0]
    assert unclamped(lambda: (x.clamp(-1, 1) * 255).to(torch.uint8)).tolist() == [0.5, 2.0]
    assert unclamped(lambda: x * x[:1].clamp(-1, 1)).tolist() == [0.25, 1.0]


PRECONDITIONED = """

class Precond(nn.Module):
    def __init__(self, resolution, sigma_data=0.5, label_dim=0, **more):
        super().__init__()
        self.sigma_data, self.label_dim = sigma_data, label_dim
        self.model = Net(resolution, **more)

    def forward(self, x, sigma):
        sigma = sigma.reshape(-1, 1, 1, 1)
        total = sigma**2 + self.sigma_data**2
        answer = self.model(x / total.sqrt(), sigma.log().flatten() / 4)
        return self.sigma_data**2 / total * x + SIGN sigma * self.sigma_data / total.sqrt() * answer


def edm_sampler(net, latents, num_steps=18, sigma_min=0.002, sigma_max=80, rho=7):
    indices = torch.arange(num_steps)
    first, last = sigma_max ** (1 / rho), sigma_min ** (1 / rho)
    levels = (first + indices / (num_steps - 1) * (last - first)) ** rho
    levels = torch.cat([levels, torch.zeros(1)])
    x = latents * levels[0]
    for i, (now, after) in enumerate(zip(levels[:-1], levels[1:])):
        slope = (x - net(x, now.expand(len(x)))) / now
        moved = x + (after - now) * slope
        if i < num_steps - 1:
            denoised = net(moved, after.expand(len(x)))
            moved = x + (after - now) * (0.5 * slope + 0.5 * (moved - denoised) / after)
        x = moved
    return x
"""


@pytest.mark.parametrize(("sign", "taken"), [("", True), ("-", False)])
def test_a_preconditioned_model_is_integrated_by_a_scheduler_of_our_own(sign: str, taken: bool, tmp_path: Path) -> None:
    """Theirs is Heun's method, with the last step Euler's. Another preconditioning has no scheduler."""
    (tmp_path / "net.py").write_text(NET + PRECONDITIONED.replace("SIGN", sign), encoding="utf-8")
    process = process_along(find_reference(f"{tmp_path / 'net.py'}::Net"), {"x": "hidden_states", "t": "timestep"})
    assert (process is not None) == taken
    if process is not None:
        assert process.scheduler == "RungeKuttaScheduler"
        assert (process.whole, process.real, process.scales) == (True, True, True)
        assert {name: process.config[name] for name in ("method", "sigma_data", "sigma_max", "rho")} == {
            "method": "heun", "sigma_data": 0.5, "sigma_max": 80.0, "rho": 7.0}  # fmt: skip
        assert "around(Precond, 'model', denoiser, resolution=1)" in process.called


INTEGRATED = """

def sample(model, noise, num_steps):
    levels = torch.linspace(0, 1, num_steps + 1)
    x = noise
    for now, after in zip(levels[:-1], levels[1:]):
        h = after - now
        first = model(x, now.expand(len(x)))
        STEP
    return x
"""
_STEPS = {
    "midpoint": "x = x + h * model(x + h / 2 * first, (now + h / 2).expand(len(x)))",
    "heun": "x = x + h / 2 * (first + model(x + h * first, after.expand(len(x))))",
    "": "x = x + h * (0.4 * first + 0.6 * model(x + h * first, after.expand(len(x))))",
}


@pytest.mark.parametrize("method", first(1, _STEPS))
def test_a_velocity_is_integrated_with_several_calls_a_step(method: str, tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(NET + INTEGRATED.replace("STEP", _STEPS[method]), encoding="utf-8")
    process = process_along(find_reference(f"{tmp_path / 'net.py'}::Net"), {"x": "hidden_states", "t": "timestep"})
    if not method:
        assert process is None
    else:
        assert process is not None
        assert (process.scheduler, process.config, process.rises) == ("RungeKuttaScheduler", {"method": method}, True)


PREDICTED = """

def velocity(model, x, t):
    return (model(x, t.expand(len(x))) SIGN x) / (1 - t).clamp_min(LEAST)


def sample(model, noise, num_steps):
    levels = torch.linspace(0, 1, num_steps + 1)
    x = noise
    for now, after in zip(levels[:-1], levels[1:]):
        h = after - now
        first = velocity(model, x, now)
        if after < 1:
            first = (first + velocity(model, x + h * first, after)) / 2
        x = x + h * first
    return x
"""


@pytest.mark.parametrize(("sign", "least", "kept"), first(2, [("-", "0.1", 0.1), ("+", "0.1", None), ("-", "1e-6", 0)]))
def test_a_velocity_may_be_made_of_the_data_that_the_model_predicts(
    sign: str, least: str, kept: float | None, tmp_path: Path
) -> None:
    """The last step is Euler's; a division by a small noise level is one by the least that the authors allow."""
    (tmp_path / "net.py").write_text(NET + PREDICTED.replace("SIGN", sign).replace("LEAST", least), encoding="utf-8")
    process = process_along(find_reference(f"{tmp_path / 'net.py'}::Net"), {"x": "hidden_states", "t": "timestep"})
    if kept is None:
        assert process is None
    else:
        assert process is not None
        assert (process.scheduler, process.denoised, process.rises) == ("RungeKuttaScheduler", kept, True)
        assert process.config == {"method": "heun", "euler_last": True}


OWNED = """

class Flow(nn.Module):
    def __init__(self, channels, width, sigma_min):
        super().__init__()
        self.channels = channels
        self.model = Net(width)
        self.sigma_min = USED

    def sample(self, mu, cond, num_steps):
        x = torch.randn_like(mu)
        for name, value in cond.items():
            x = x + value
        for i in range(num_steps):
            x = x + self.sigma_min * self.model(x, torch.full((len(x),), i / num_steps)) / num_steps
        return x
"""


@pytest.mark.parametrize(("used", "taken"), [("1.0", True), ("channels", False)])
def test_values_that_are_made_up_must_have_no_effect(used: str, taken: bool, tmp_path: Path) -> None:
    """The object makes its model; what nothing is known of is tried: a tensor, a mapping, a number."""
    (tmp_path / "net.py").write_text(NET + OWNED.replace("USED", used), encoding="utf-8")
    process = process_along(find_reference(f"{tmp_path / 'net.py'}::Net"), {"x": "hidden_states", "t": "timestep"})
    assert (process is not None) == taken
    if process is not None:
        assert process.called.endswith(".sample(mu=torch.zeros_like(begun), cond={}, num_steps=steps), begun.shape)")
        assert "width=1, sigma_min=1" in process.called


TRANSPORT = """
from torchdiffeq import odeint
import torch


def create_transport(path_type="Linear", prediction="velocity"):
    return (path_type, prediction)


class Sampler:
    def __init__(self, transport):
        self.transport = transport

    def sample_ode(self, *, sampling_method="dopri5", num_steps=50):
        return lambda x, model, **more: odeint(
            lambda t, x: CHANGE, x, TIMES, method=sampling_method
        )
"""
_CHANGE = "model(x, t * torch.ones(len(x)), **more)"


@pytest.mark.parametrize(("times", "change", "scheduler", "rises", "config"), first(3, [
    ("torch.linspace(0, 1, num_steps)", _CHANGE, "FlowMatchEulerDiscreteScheduler", True, {}),
    ("torch.linspace(1, 0, num_steps)", _CHANGE, "FlowMatchEulerDiscreteScheduler", False, {}),
    ("1 - torch.linspace(0, 0.999, num_steps)", _CHANGE, "RungeKuttaScheduler", False,
     {"method": "euler", "last_level": 0.001}),
    ("2 * torch.linspace(1, 0, num_steps) / (1 + torch.linspace(1, 0, num_steps))", _CHANGE,
     "FlowMatchEulerDiscreteScheduler", False, {"shift": 2.0}),
    ("torch.linspace(0, 1, num_steps)", "model(x, t * torch.ones(len(x)), **more) - x", "", None, {}),
    ("torch.linspace(0, 1, num_steps)", "models(x)", "FlowMatchEulerDiscreteScheduler", True, {}),
]))  # fmt: skip
def test_an_integration_goes_as_a_run_of_it_shows(
    times: str, change: str, scheduler: str, rises: bool | None, config: dict[str, object], tmp_path: Path
) -> None:
    """Time may fall, end before 0, or be shifted; what does not run stays as it was read."""
    (tmp_path / "net.py").write_text(NET, encoding="utf-8")
    text = TRANSPORT.replace("CHANGE", change).replace("TIMES", times)
    (tmp_path / "transports.py").write_text(text, encoding="utf-8")
    use = "from transports import Sampler, create_transport\nrun = Sampler(create_transport()).sample_ode()\n"
    (tmp_path / "draw.py").write_text(use, encoding="utf-8")
    reference = find_reference(f"{tmp_path / 'net.py'}::Net")
    read = process_of(reference, "")
    assert read is not None
    one = confirmed(reference, read, {"x": "hidden_states", "t": "timestep"})
    assert (one.scheduler if one is not None else "", one.rises if one is not None else None) == (scheduler, rises)
    if one is not None:
        assert {**one.config, **({"shift": one.shift} if one.shift != 1 else {})} == config


DIFFUSION = """

class Steps:
    def __init__(self, num_timesteps, beta_start, beta_end):
        self.betas = torch.linspace(beta_start, beta_end, num_timesteps)
        self.kept = torch.cumprod(1 - self.betas, 0)

    def before(self, x, noise, t):
        mean = (x - self.betas[t] * noise / (1 - self.kept[t]).sqrt()) / (1 - self.betas[t]).sqrt()
        if t == 0:
            return mean, x
        variance = (1 - self.kept[t - 1]) / (1 - self.kept[t]) * self.betas[t]
        return mean + variance.sqrt() * torch.randn(x.shape), x


def sample(model, steps_of, settings):
    x = torch.randn(settings["num_samples"], 4, settings["im_size"], settings["im_size"])
    for t in reversed(range(settings["num_timesteps"])):
        x, clean = steps_of.before(x, model(x, torch.as_tensor(t).unsqueeze(0)), torch.as_tensor(t))
        os.mkdir("pictures")
        make_grid(x.clamp(-1, 1), nrow=3).save("pictures/last.png")
    LEFT
"""


@pytest.mark.parametrize("left", ["print('done')", "return x"])
def test_a_script_that_saves_pictures_is_run_with_an_object_of_its_own(left: str, tmp_path: Path) -> None:
    file = tmp_path / "net.py"
    head = "import os\nfrom torchvision.utils import make_grid\n"
    file.write_text(head + NET + DIFFUSION.replace("LEFT", left), encoding="utf-8")
    said = "{num_timesteps: 1000, num_samples: 16, im_size: 8, beta_start: 0.0001, beta_end: 0.02}"
    (tmp_path / "config.yaml").write_text(f"sampling: {said}\n", encoding="utf-8")
    process = process_along(find_reference(f"{file}::Net"), {"x": "hidden_states", "t": "timestep"})
    assert process is not None
    assert (process.scheduler, process.every_step) == ("DDPMScheduler", True)
    assert process.config == {"clip_sample": False}


def test_noise_that_a_default_draws_is_drawn_late(tmp_path: Path) -> None:
    file = tmp_path / "net.py"
    body = SAMPLER.replace("def forward(self, x_T):\n        x = x_T", (
        "def sample(self, shape, noise_fn=torch.randn):\n        x = noise_fn(shape)"
    ))  # fmt: skip
    text = NET + body.replace("torch.randn_like(x)", "noise_fn(shape)")
    for name, value in {"TRAINED": "1000", "LAST": "0.02", "NOISE": "self.variance", "LEFT": "x"}.items():
        text = text.replace(name, value)
    file.write_text(text, encoding="utf-8")
    process = process_along(find_reference(f"{file}::Net"), {"x": "hidden_states", "t": "timestep"})
    assert process is not None
    assert process.config == {"clip_sample": False}


SEVERAL = """

class Two:
    def __init__(self, model, num_steps=10):
        self.model, self.levels = model, torch.linspace(1, 0, num_steps + 1)

    def sample(self, x):
        for now, after in zip(self.levels[:-1], self.levels[1:]):
            x = x + (after - now) * self.model(x, now.expand(len(x)))
        return x

    def sample_shifted(self, x):
        levels = 3 * self.levels / (1 + 2 * self.levels)
        for now, after in zip(levels[:-1], levels[1:]):
            x = x + (after - now) * self.model(x, now.expand(len(x)))
        return x

    def sample_other(self, x):
        for now in self.levels[:-1]:
            x = x * 0.9 + self.model(x, now.expand(len(x))).tanh()
        return x

    def sample_broken(self, x):
        for now in self.levels:
            x = self.model(x, now) + self.unknown
        return x
"""


def test_each_of_several_samplers_has_its_reason(tmp_path: Path) -> None:
    file = tmp_path / "net.py"
    file.write_text(NET + SEVERAL, encoding="utf-8")
    why: dict[str, str] = {}
    names = {"x": "hidden_states", "t": "timestep"}
    assert process_along(find_reference(f"{file}::Net"), names, why) is None
    reasons = list(why.values())
    assert sorted(reasons)[:2] == ["", ""]  # each of these can be named
    assert "steps as no scheduler of diffusers does" in reasons
    assert any("has no attribute 'unknown'" in one for one in reasons)
    one = process_along(find_reference(f"{file}::Net::Two.sample_shifted"), names)
    assert one is not None
    assert one.shift == 3.0


DOWN_TO_ONE = """

class Diffusion:
    def __init__(self, model, T=1000):
        self.model, self.T = model, T
        self.betas = torch.linspace(1e-4, 0.02, T + MORE)
        self.kept = torch.cumprod(1 - self.betas, 0)

    def sample(self, n_sample, size):
        x = torch.randn(n_sample, *size)
        for i in reversed(range(1, self.T + MORE)):
            noise = torch.randn_like(x) if i > 1 else 0
            t = torch.full((n_sample,), i)
            answer = self.model(x, TIME)
            x = (x - self.betas[i] / (1 - self.kept[i]).sqrt() * answer) / (1 - self.betas[i]).sqrt()
            x = x + self.betas[i].sqrt() * noise
        return x
"""


@pytest.mark.parametrize(("more", "time", "whole"), [("1", "t / self.T", False), ("0", "t", True)])
def test_a_sampler_may_end_at_step_one(more: str, time: str, whole: bool, tmp_path: Path) -> None:
    """What was noised before that step stays noised, which no scheduler of diffusers does."""
    file = tmp_path / "net.py"
    file.write_text(NET + DOWN_TO_ONE.replace("MORE", more).replace("TIME", time), encoding="utf-8")
    process = process_along(find_reference(f"{file}::Net"), {"x": "hidden_states", "t": "timestep"})
    assert process is not None
    assert (process.scheduler, process.whole, process.every_step) == ("AncestralScheduler", whole, True)
    assert process.config == ({"counts_from_one": True} if more == "1" else {})


def test_pictures_of_whole_numbers_are_compared_as_the_latents_before(tmp_path: Path) -> None:
    """They have three channels, whatever the model's latents have, and are drawn inside."""
    text = (
        DOWN_TO_ONE.replace("MORE", "0").replace("TIME", "t").replace("(n_sample, *size)", "(n, 3, self.T0, self.T0)")
    )
    text = text.replace("n_sample, size", "n").replace("n_sample", "n").replace("T=1000", "T=1000, img_size=64")
    text = text.replace("self.T = model, T", "self.T, self.T0 = model, T, img_size")
    text = text.replace("return x", "return (((x.clamp(-1, 1) + 1) / 2) * 255).type(torch.uint8)")
    file = tmp_path / "net.py"
    file.write_text(NET + text, encoding="utf-8")
    process = process_along(find_reference(f"{file}::Net"), {"x": "hidden_states", "t": "timestep"})
    assert process is not None
    assert process.called.startswith("unclamped(")


def test_a_first_beta_of_zero_counts_steps_from_one(tmp_path: Path) -> None:
    """The tables may be the values of a mapping."""
    text = DOWN_TO_ONE.replace("MORE", "1").replace("TIME", "t / self.T").replace("T + 1)", "T)")
    text = text.replace("self.betas = ", "self.tables = {}\n        self.tables['betas'] = ")
    text = text.replace("torch.linspace(1e-4, 0.02, T)", "torch.cat([torch.zeros(1), torch.linspace(1e-4, 0.02, T)])")
    text = text.replace("self.kept = torch.cumprod(1 - self.betas, 0)", "self.tables['kept'] = self.made()")
    text += "\n    def made(self):\n        return torch.cumprod(1 - self.tables['betas'], 0)\n"
    text = text.replace("self.betas[", "tables['betas'][").replace("self.kept[", "tables['kept'][")
    text = text.replace("x = torch.randn(n", "tables = self.tables\n        x = torch.randn(n")
    text = text.replace("range(1, self.T)", "range(1, self.T + 1)")
    file = tmp_path / "net.py"
    file.write_text(NET + text, encoding="utf-8")
    process = process_along(find_reference(f"{file}::Net"), {"x": "hidden_states", "t": "timestep"})
    assert process is not None
    assert (process.scheduler, process.config["counts_from_one"]) == ("AncestralScheduler", True)


@pytest.mark.skipif(not Path("/proc/self/statm").is_file(), reason="no count of memory")
def test_a_sampler_that_takes_much_memory_raises() -> None:
    with limited(5.0):
        kept = bytearray(1 << 20)
    with pytest.raises(MemoryError), limited(5.0):
        kept = bytearray(1 << 33)
    assert len(kept) == 1 << 20


CLASSES = """

class Plain:
    def __init__(self, model, num_steps=10):
        self.model, self.levels = model, torch.linspace(1, 0, num_steps + 1)

    def sample(self, x):
        for now, after in zip(self.levels[:-1], self.levels[1:]):
            x = x + (after - now) * self.model(x, now.expand(len(x)))
        return x


class Odd(nn.Module):
    def __init__(self, model, num_steps=10):
        super().__init__()
        self.model, self.levels = model, torch.linspace(1, 0, num_steps + 1)

    def sample(self, x):
        for now in self.levels[:-1]:
            x = x * 0.9 + self.model(x, now.expand(len(x))).tanh()
        return x
"""


@pytest.mark.parametrize(("script", "named", "reasons"), first(1, [
    ("Plain(Net()).sample(x)", "Plain", {UNUSED}),
    ("Odd(Net()).sample(x)", "", {UNUSED, "steps as no scheduler of diffusers does"}),
    ("pass", "", {"", "steps as no scheduler of diffusers does"}),  # nothing says which one
]))  # fmt: skip
def test_a_class_that_is_not_used_does_not_decide(tmp_path: Path, script: str, named: str, reasons: set[str]) -> None:
    file = tmp_path / "net.py"
    file.write_text(NET + CLASSES, encoding="utf-8")
    (tmp_path / "run.py").write_text(f"from net import Net, Odd, Plain\n{script}\n", encoding="utf-8")
    why: dict[str, str] = {}
    names = {"x": "hidden_states", "t": "timestep"}
    process = process_along(find_reference(f"{file}::Net"), names, why)
    assert (process is not None and named in process.called) == bool(named)
    assert {*why.values()} == reasons
    one = process_along(find_reference(f"{file}::Net::Plain.sample"), names)
    assert one is not None


PAIRED = """

def make_betas(num_timesteps=1000, last=0.012):
    return torch.linspace(0.00085**0.5, last**0.5, num_timesteps, dtype=torch.float64) ** 2


class Diffusion:
    def __init__(self, betas):
        self.kept, self.num_timesteps = torch.cumprod(1 - betas, 0), len(betas)

    def noise_of(self, x, t, model, model_kwargs, guide_scale):
        if guide_scale is None:
            return model(x, t, **model_kwargs)
        with_prompt, without = (model(x, t, **model_kwargs[i]) for i in (0, 1))
        assert len(model_kwargs) == 2 and model_kwargs[1] is not None
        return GUIDED

    def ddim_sample_loop(self, noise, model, model_kwargs={}, guide_scale=None, ddim_timesteps=20):
        x, stride = noise, self.num_timesteps // ddim_timesteps
        for step in (1 + torch.arange(0, self.num_timesteps, stride)).clamp(0, self.num_timesteps - 1).flip(0):
            eps = self.noise_of(x, step.expand(len(x)), model, model_kwargs, guide_scale)
            now, after = self.kept[step].float(), self.kept[(step - stride).clamp(0)].float()
            x = after.sqrt() * (x - (1 - now).sqrt() * eps) / now.sqrt() + (1 - after).sqrt() * eps
        return x
"""
PAIRING = """
from net import Diffusion, make_betas


def main(model, noise, kwargs):
    betas = make_betas(1000, last=0.012)
    diffusion = Diffusion(betas=betas)
    return diffusion.ddim_sample_loop(noise, model, model_kwargs=kwargs, guide_scale=9.0, ddim_timesteps=50)
"""


@pytest.mark.parametrize(
    ("guided", "reads"),
    [("without + guide_scale * (with_prompt - without)", True), ("without * guide_scale + with_prompt", False)],
)
def test_a_diffusion_object_that_guides_by_a_pair_of_keywords(guided: str, reads: bool, tmp_path: Path) -> None:
    """Its betas are those that the authors' code makes; its steps are more where their number does not divide 1000."""
    (tmp_path / "net.py").write_text(NET + PAIRED.replace("GUIDED", guided), encoding="utf-8")
    (tmp_path / "main.py").write_text(PAIRING, encoding="utf-8")
    process = process_along(find_reference(f"{tmp_path / 'net.py'}::Net"), {"x": "hidden_states", "t": "timestep"})
    assert (process is not None) == reads
    if process is not None:
        assert (process.scheduler, process.guides, process.scale) == ("DDIMScheduler", True, 9.0)
        assert process.config["beta_schedule"] == "scaled_linear"
        assert process.config["beta_end"] == 0.012
        assert "make_betas = defined('net', 'make_betas')" in process.imports
        assert [one.partition(":")[0] for one in process.todo] == ["sample with a number of steps that divides 1000"]
