"""The scheduler of diffusers for a sampler of the authors' that goes all steps of its training."""

from pathlib import Path

import pytest
import torch

from omni_kit.targets.diffusers.scheduling.authors_process import process_along
from omni_kit.targets.references.authors_calls import unclamped
from omni_kit.upstream.repositories.processes.process import Process
from omni_kit.upstream.repositories.reference import find_reference
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
    assert process.called == "unclamped(lambda: Sampler(model=denoiser, T=steps)(x_T=begun), begun.shape)"


def test_a_sampler_without_a_clamp_and_with_another_number_of_steps(tmp_path: Path) -> None:
    process = found(tmp_path, trained=400, noise="self.variance", left="x")
    assert process is not None
    assert process.config == {"clip_sample": False, "num_train_timesteps": 400}
    assert process.called.startswith("latents_of(")


@pytest.mark.parametrize("wrong", [{"last": "0.02 * 60 / T"}, {"left": "torch.tanh(x)"}])
def test_other_numbers_have_no_scheduler(wrong: dict[str, str], tmp_path: Path) -> None:
    """Betas that depend on the number of steps agree for one number only; nor is a result bent otherwise."""
    assert found(tmp_path, **wrong) is None  # type: ignore[arg-type]


def test_only_the_last_clamp_is_undone() -> None:
    x = torch.tensor([0.5, 2.0])
    assert unclamped(lambda: x.clamp(-1, 1), x.shape).tolist() == [0.5, 2.0]
    assert unclamped(lambda: x.clone().clamp_(-1, 1), x.shape).tolist() == [0.5, 2.0]
    assert unclamped(lambda: x.clamp(-1, 1) * 2, x.shape).tolist() == [1.0, 2.0]
