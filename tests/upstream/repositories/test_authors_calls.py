"""Calls of the authors' samplers, derived from signatures: which there are, and what is left alone."""

from pathlib import Path

import pytest

from omni_kit.upstream.repositories.processes.authors_calls import authors_calls, chosen
from omni_kit.upstream.repositories.processes.sampler_entries import seeming_samplers
from omni_kit.upstream.repositories.reference import find_reference
from omni_kit.upstream.repositories.sampler_names import is_named

NET = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.inner = nn.Linear(dim, dim)

    def forward(self, x, t):
        return self.inner(x)
"""
OWNING = """

class Base(nn.Module):
    def __init__(self, model, *, image_size, timesteps=1000, sampling_timesteps=None, all_steps=False):
        super().__init__()
        self.model = model

    def loss(self, x):
        return x

    def ddim_sample(self, shape, return_all_timesteps=False):
        img = torch.randn(shape)
        for t in range(self.sampling_timesteps):
            img = self.model(img, t)
        return img

    def {train}(self, shape, steps):
        for t in range(steps):
            self.loss(shape)


class Diffusion(Base):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
"""
SOLVES = """

def solve_ode(vector_field, x0, mask, num_steps=10, device="cpu"):
    return odeint(lambda t, x: vector_field(x, t), x0, torch.linspace({ends}, num_steps + 1))[-1]
"""
CLEANS = """

def sample_euler(model, x, sigmas, num_steps=10):
    for i in range(num_steps):
        denoised = model(x, sigmas[i])
        x = x + (x - denoised) / sigmas[i] * (sigmas[i + 1] - sigmas[i])
    return x
"""
SPANNED = """

class Flow(nn.Module):
    def __init__(self, settings):
        super().__init__()
        self.estimator = make(settings)
        self.inference_cfg_rate = settings.rate

    def forward(self, mu, n_timesteps):
        return self.solve_euler(torch.randn_like(mu), {made}, mu)

    def solve_euler(self, x, t_span, mu):
        for t in t_span:
            x = x + self.estimator(x, t, mu)
        return x
"""

PARTED = """

class Path:
    def at(self, t):
        raise NotImplementedError


class Bent(Path):
    def __init__(self, rate):
        self.rate = rate


class Linear(Path):
    def at(self, t):
        return t


def plain_guidance_fn(out, scale):
    return out


class Sampler:
    def __init__(self, path: Path = None, weights: Path = None, guidance_fn=None, num_steps=10):
        self.path, self.guidance_fn, self.num_steps = path, guidance_fn, num_steps
        assert self.path is not None
        assert weights is not None or num_steps

    def sample(self, net, noise):
        for t in range(self.num_steps):
            noise = noise + self.path.at(t) * net(noise, t)
        return noise
"""

WHOLE = """

class Sampler(nn.Module):
    def __init__(self, model, beta_1, beta_T, T, mean_type="eps"):
        super().__init__()
        self.model, self.T = model, T

    def forward(self, x_T{more}):
        for t in reversed(range(self.T)):
            x_T = x_T - self.model(x_T, t)
        return x_T


def main():
    flags.DEFINE_float("beta_1", 1e-4, help="first")
    parser.add_argument("--beta_T", type=float, default=0.02)
    return Sampler(Net(), FLAGS.beta_1, args.beta_T, 500, "epsilon")
"""
OWN_MODEL = """

def predict(audio, steps):
    model = Net()
    for t in range(steps):
        audio = audio - model(audio, t)
    return audio


def prepare(audio, steps):
    for t in range(steps):
        audio = audio * t
    return audio
"""


def called(tmp_path: Path, rest: str) -> list[str]:
    (tmp_path / "net.py").write_text(NET + rest, encoding="utf-8")
    return [one.called for one in authors_calls(find_reference(f"{tmp_path / 'net.py'}::Net"))]


def test_an_object_gets_the_model_and_the_number_of_steps_in_its_constructor(tmp_path: Path) -> None:
    sampled = ".ddim_sample(shape=tuple(begun.shape))"
    assert called(tmp_path, OWNING.replace("{train}", "train")) == [
        f"{name}(model=denoiser, image_size=begun.shape[-1], {steps}=steps){sampled}"
        for steps in ("timesteps", "sampling_timesteps")  # all steps of training, which is their default, come first
        for name in ("Base", "Diffusion")
    ]
    (other := tmp_path / "other").mkdir()
    counted = OWNING.replace("{train}", "train").replace("sampling_timesteps=None", "sampling_timesteps=50")
    assert all("sampling_timesteps=steps" in one for one in called(other, counted))


SEVERAL = """

class Diffusion:
    def __init__(self, model, seq_length, betas_end=0.02, timesteps=100):
        self.model, self.steps = model, timesteps

    def p_sample_loop(self, shape):
        for t in range(self.steps):
            shape = self.model(shape, t)
        return shape

    def ddim_sample(self, shape):
        return self.p_sample_loop(shape)

    def sample(self, batch_size=16):
        take = self.ddim_sample if self.steps < 100 else self.p_sample_loop
        return take((batch_size, 8, 8))


def ddpm_steps(x, seq, model, b):
    for i in reversed(seq):
        x = model(x, i) - b[i]
    return x
"""


def test_samplers_that_another_one_calls_are_inner(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(NET + SEVERAL, encoding="utf-8")
    found = authors_calls(find_reference(f"{tmp_path / 'net.py'}::Net"))
    assert {one.function: one.inner for one in found} == {
        "sample": False, "p_sample_loop": True, "ddim_sample": True, "ddpm_steps": False}  # fmt: skip
    assert (
        found[0].called
        == "Diffusion(model=denoiser, seq_length=begun.shape[-1], timesteps=steps).sample(batch_size=len(begun))"
    )
    assert [is_named(one.full_name, "net.Diffusion.sample") for one in found].count(
        True
    ) == 2  # channels may be the last axis


def test_a_function_that_is_passed_betas_gets_some(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(NET + SEVERAL, encoding="utf-8")
    (found,) = [one for one in authors_calls(find_reference(f"{tmp_path / 'net.py'}::Net")) if one.name == "ddpm_steps"]
    assert (
        found.called == "ddpm_steps(x=begun, seq=range(steps), model=denoiser, b=torch.linspace(0.0001, 0.02, steps))"
    )
    assert any("0.0001" in one for one in found.todo)


def test_a_function_with_a_solver_gets_the_model_as_an_argument(tmp_path: Path) -> None:
    (found,) = called(tmp_path, SOLVES.replace("{ends}", "0, 1"))
    assert found == "solve_ode(vector_field=denoiser, x0=begun, mask=torch.ones_like(begun), num_steps=steps)"


@pytest.mark.parametrize(("name", "count"), [("denoised", 0), ("answer", 1)])
def test_a_sampler_for_a_preconditioned_model_is_not_called_with_the_model(
    name: str, count: int, tmp_path: Path
) -> None:
    assert len(called(tmp_path, CLEANS.replace("denoised", name))) == count


WRAPS = """

class Scaled(nn.Module):
    def __init__(self, size, sigma_data=0.5, MORE):
        super().__init__()
        self.model = MADE

    def forward(self, x, sigma):
        skip, out = 1 / (1 + sigma**2), sigma / (1 + sigma**2)
        return RETURNED
"""


@pytest.mark.parametrize(("more", "made", "given"), [
    ("kind='Net'", "globals()[kind](size)", "size=made_with.size"),
    ("*, inner_model", "inner_model", "size=made_with.size, inner_model=denoiser"),
])  # fmt: skip
def test_a_sampler_for_a_preconditioned_model_gets_an_object_that_holds_the_model(
    more: str, made: str, given: str, tmp_path: Path
) -> None:
    """The object makes the model, or is passed it."""
    text = WRAPS.replace("MORE", more).replace("MADE", made)
    text = text.replace("RETURNED", "skip * x + out * self.model(out * x, sigma.log())")
    (found,) = called(tmp_path, CLEANS + text)
    net = f"around(Scaled, 'model', denoiser, {given})"
    assert found == f"sample_euler(model={net}, x=begun, sigmas=torch.linspace(1, 0, steps + 1), num_steps=steps)"


def test_a_class_that_only_calls_the_model_does_not_precondition_it(tmp_path: Path) -> None:
    text = WRAPS.replace("MORE", "kind=''").replace("MADE", "Net(size)").replace("RETURNED", "self.model(x, sigma)")
    assert called(tmp_path, CLEANS + text) == []


OBJECT = """

class Denoising:
    def __init__(self, loss="l2"):
        self.loss = loss

    def denoise(self, model, x, sigma, **more):
        return model(x, sigma, **more)


def karras_sample(diffusion, model, shape, steps, model_kwargs=None):
    return {"euler": sample_by_steps}["euler"](lambda x, t: diffusion.METHOD(model, x, t, **model_kwargs), shape, steps)


def sample_by_steps(denoiser, x, steps):
    for t in range(steps):
        x = denoiser(x, t)
    return x
"""


@pytest.mark.parametrize(("method", "diffusion"), [
    ("denoise", "around(Denoising, (), None)"), ("other", "given.diffusion"),
])  # fmt: skip
def test_an_argument_is_an_object_of_the_class_whose_method_is_called(
    method: str, diffusion: str, tmp_path: Path
) -> None:
    """The loop is in a function that is only named."""
    (found,) = (one for one in called(tmp_path, OBJECT.replace("METHOD", method)) if one.startswith("karras"))
    given = "model=denoiser, shape=tuple(begun.shape), steps=steps, model_kwargs={}"
    assert found == f"karras_sample(diffusion={diffusion}, {given})"


@pytest.mark.parametrize(("default", "passed"), [("None", ", solver='euler'"), ("'dopri5'", ", solver='euler'"),
                                                 ("'midpoint'", "")])  # fmt: skip
def test_a_solver_that_adapts_its_steps_is_replaced_and_named(default: str, passed: str, tmp_path: Path) -> None:
    text = SOLVES.replace("{ends}", "0, 1").replace('device="cpu"', f"solver={default}")
    (tmp_path / "net.py").write_text(NET + text, encoding="utf-8")
    (found,) = authors_calls(find_reference(f"{tmp_path / 'net.py'}::Net"))
    assert found.called.endswith(f"num_steps=steps{passed})")
    assert any("adaptive steps" in one for one in found.todo) == bool(passed)


@pytest.mark.parametrize(
    ("made", "levels"),
    [("torch.linspace(0, 1, n_timesteps + 1)", "torch.linspace(0, 1, steps + 1)"),
     ("torch.linspace(1, 0, n_timesteps + 1)", "torch.linspace(1, 0, steps + 1)"), ("made(n_timesteps)", "")],
)  # fmt: skip
def test_levels_go_the_way_that_the_class_makes_them(made: str, levels: str, tmp_path: Path) -> None:
    """An object whose constructor needs settings is made without it; the authors' own guidance is off."""
    settings = "settings=made_with.settings"
    held = f"around(Flow, ['estimator'], denoiser, kept={{'inference_cfg_rate': 0.0}}, {settings})"
    solved = f"{held}.solve_euler(x=begun, t_span={levels}, mu=given.mu)"
    whole = f"{held}.forward(mu=given.mu, n_timesteps=steps)"
    assert called(tmp_path, SPANNED.replace("{made}", made)) == [whole, *([solved] if levels else [])]


def test_a_sampler_gets_the_parts_that_its_constructor_must_have(tmp_path: Path) -> None:
    """The class that needs no argument, and the function that guides; what may be None stays None."""
    (found,) = called(tmp_path, PARTED)
    made = "Sampler(path=Linear(), guidance_fn=plain_guidance_fn, num_steps=steps)"
    assert found == f"{made}.sample(net=denoiser, noise=begun)"


def test_a_sampler_that_goes_all_steps_of_training_is_made_with_their_number(tmp_path: Path) -> None:
    """What else its constructor gets is what the authors pass it: literals, and defaults of their command line."""
    (tmp_path / "net.py").write_text(NET + WHOLE.replace("{more}", ""), encoding="utf-8")
    (found,) = authors_calls(find_reference(f"{tmp_path / 'net.py'}::Net"))
    assert found.called == (
        "Sampler(model=denoiser, beta_1=0.0001, beta_T=0.02, T=steps, mean_type='epsilon')(x_T=begun)"
    )
    assert found.trained == 500
    assert is_named(found.full_name, "forward")
    assert not is_named(found.full_name, "Net.forward")


def test_a_sampler_with_a_number_of_steps_of_its_own_keeps_that_of_training(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(NET + WHOLE.replace("{more}", ", num_steps"), encoding="utf-8")
    (found,) = authors_calls(find_reference(f"{tmp_path / 'net.py'}::Net"))
    assert "T=500" in found.called
    assert "num_steps=steps" in found.called
    assert found.trained == 0


COUNTED = """

class Noising:
    def __init__(self, model, timesteps=1000):
        self.model, self.timesteps = model, timesteps

    def sample(self, n_samples, size):
        x = torch.randn(n_samples, *size)
        for step in reversed(range(self.timesteps)):
            x = x - self.model(x, step)
        return x
"""


def test_a_number_of_samples_next_to_a_shape_says_that_it_is_of_one(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(NET + COUNTED)
    (found,) = authors_calls(find_reference(f"{tmp_path}/net.py::Net"))
    assert "n_samples=len(begun), size=tuple(begun.shape[1:])" in found.called


TAKES = """

class Heun:
    def forward(self, noise, fn, num_steps):
        for step in range(num_steps):
            noise = noise - fn(noise, step)
        return noise
"""


@pytest.mark.parametrize(("rest", "names"), [(WHOLE.replace("{more}", ""), ["Sampler.forward"]),
                                             (OWN_MODEL, ["predict"]), (TAKES, ["Heun.forward"]),
                                             (TAKES.replace("Heun", "HeunLoss"), []), ("", [])])  # fmt: skip
def test_functions_that_seem_to_sample_are_named(rest: str, names: list[str], tmp_path: Path) -> None:
    """One that makes its model is among them; a loop without a model is not."""
    (tmp_path / "net.py").write_text(NET + rest, encoding="utf-8")
    assert [name for name, _ in seeming_samplers(find_reference(f"{tmp_path / 'net.py'}::Net"))] == names


def test_guidance_that_is_off_by_default_is_named(tmp_path: Path) -> None:
    text = SOLVES.format(ends="0, 1").replace('device="cpu"', "cfg_kwargs=None, guidance_scale=None, scale=2.0")
    (tmp_path / "net.py").write_text(NET + text)
    (call,) = authors_calls(find_reference(f"{tmp_path}/net.py::Net"))
    assert call.off == ("cfg_kwargs", "guidance_scale")
    assert "compare the guidance that cfg_kwargs, guidance_scale of solve_ode switches on" in " ".join(call.todo)


GAUSSIAN = """
import enum

import torch


class Mean(enum.Enum):
    NOISE = enum.auto()
    CLEAN = enum.auto()


class Gaussian:
    def __init__(self, *, betas, mean):
        self.betas, self.mean = betas, mean

    def p_sample_loop(self, model, shape, noise=None, clip_denoised=True, progress=False):
        for out in self.p_sample_loop_progressive(model, shape, noise, clip_denoised):
            pass
        return out

    def p_sample_loop_progressive(self, model, shape, noise=None, clip_denoised=True):
        for t in range(len(self.betas)):
            noise = model(noise, t)
            yield noise

    def ddim_sample_loop(self, model, shape, noise=None, clip_denoised=True):
        for t in range(len(self.betas)):
            noise = model(noise, t)
        return noise
"""
TRAINER = """
from gaussian import Gaussian, Mean


class Trainer:
    def __init__(self, net, betas):
        self.net, self.process = net, Gaussian(betas=betas, mean=Mean.CLEAN)

    def draw(self, shape):
        return self.process.p_sample_loop(self.net, shape, clip_denoised=False, progress=True)
"""


def test_members_and_switches_are_those_that_the_authors_pass(tmp_path: Path) -> None:
    for name, text in (("net.py", NET), ("gaussian.py", GAUSSIAN), ("trainer.py", TRAINER)):
        (tmp_path / name).write_text(text, encoding="utf-8")
    reference = find_reference(f"{tmp_path / 'net.py'}::Net")
    found = {one.function: one for one in authors_calls(reference)}
    made = "Gaussian(betas=torch.linspace(0.0001, 0.02, steps), mean=Mean.CLEAN)"
    given = "model=denoiser, shape=tuple(begun.shape), noise=begun"
    assert found["p_sample_loop"].called == f"{made}.p_sample_loop({given}, clip_denoised=False)"
    assert found["ddim_sample_loop"].called == f"{made}.ddim_sample_loop({given})"
    assert found["p_sample_loop"].parts == (("gaussian", "Mean"),)
    assert chosen(reference, [*found.values()]) == "p_sample_loop"  # the others are called nowhere


ENTRY = '''

class Diffusion(nn.Module):
    def __init__(self, denoise_fn, sample_shape, timesteps=1000):
        super().__init__()
        self.denoise_fn, self.sample_shape, self.timesteps = denoise_fn, sample_shape, timesteps

    def sample(self, GIVEN):
        """Return denoised samples."""
        for i in reversed(range(self.timesteps)):
            if mel is None:
                x = self.denoise_fn(x, i)
        return x
'''


@pytest.mark.parametrize(("given", "shape", "passed"), [
    ("cond, mel, speedup=10", "tuple(begun.shape)", "cond=given.cond, mel=None, speedup=1000 // steps"),
    ("n, mel, num_steps=9", "tuple(begun.shape[1:])", "n=len(begun), mel=None, num_steps=steps"),
])  # fmt: skip
def test_numbers_of_steps_and_of_samples_and_what_may_be_none(
    given: str, shape: str, passed: str, tmp_path: Path
) -> None:
    """A word of the docstring is not a variable."""
    made = f"Diffusion(denoise_fn=denoiser, sample_shape={shape})"
    assert f"{made}.sample({passed})" in called(tmp_path, ENTRY.replace("GIVEN", given))
