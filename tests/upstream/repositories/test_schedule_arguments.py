"""Values for the arguments of a sampler that make its schedule."""

from pathlib import Path

import pytest

from omni_kit.upstream.repositories.processes.authors_calls import authors_calls
from omni_kit.upstream.repositories.reference import find_reference
from tests.upstream.repositories.test_authors_calls import NET

SAMPLER = """

class Sampler(nn.Module):
    def __init__(self, model, {given}):
        super().__init__()
        self.model, self.steps = model, 9

    def sample(self, x_T):
        for t in reversed(range(self.steps)):
            x_T = x_T - self.model(x_T, t)
        return x_T
"""
CONFIG = """

def main(config={"beta_1": 0.002, "beta_T": 0.03, "T": 500}):
    Sampler(Net(), config["beta_1"], config["beta_T"], config["T"])
"""


@pytest.mark.parametrize(("given", "config", "called", "assumed"), [
    ("beta_1, beta_T, T", CONFIG, "beta_1=0.002, beta_T=0.03, T=steps", []),
    ("beta_1, beta_T, T", "", "beta_1=0.0001, beta_T=0.02, T=steps", ["beta_1=0.0001", "beta_T=0.02"]),
    ("betas, n_T", "", "betas=(0.0001, 0.02), n_T=steps", ["betas=(0.0001, 0.02)"]),
    ("betas", "", "betas=torch.linspace(0.0001, 0.02, steps)", ["betas from 0.0001 to 0.02"]),
])  # fmt: skip
def test_betas_are_those_of_a_config_or_assumed(
    given: str, config: str, called: str, assumed: list[str], tmp_path: Path
) -> None:
    (tmp_path / "net.py").write_text(NET + SAMPLER.replace("{given}", given) + config, encoding="utf-8")
    (call,) = authors_calls(find_reference(f"{tmp_path / 'net.py'}::Net"))
    assert call.called == f"Sampler(model=denoiser, {called}).sample(x_T=begun)"
    assert (call.trained, [*call.assumed]) == (1000, assumed)
    assert any("is assumed" in one for one in call.todo) == bool(assumed)


def test_a_config_in_a_file_has_values(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(NET + SAMPLER.replace("{given}", "beta, T"), encoding="utf-8")
    (tmp_path / "config.yml").write_text("trainer:\n  beta: [0.001, 0.04]\n  T: 300\n", encoding="utf-8")
    (call,) = authors_calls(find_reference(f"{tmp_path / 'net.py'}::Net"))
    assert "beta=[0.001, 0.04]" in call.called
