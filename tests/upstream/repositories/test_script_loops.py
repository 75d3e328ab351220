"""Loops that no function offers: cut out of scripts and trainings, with what they read."""

from pathlib import Path

import pytest

from omni_kit.upstream.repositories.processes.script_loops import script_loops
from omni_kit.upstream.repositories.reference import find_reference

SCRIPT = """
import argparse

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.inner = nn.Linear(dim, dim)

    def forward(self, x, t):
        return self.inner(x)


class Noising:
    def __init__(self, num_timesteps, end):
        self.betas = torch.linspace(0.0001, end, num_timesteps)

    def back(self, answer, t, x):
        return x - self.betas[t] * answer


def one_step(x, t):
    return x - betas[t] * model(x, t)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--num_timesteps", type=int, default=50)
    parser.add_argument("--end", type=float, default=0.02)
    parser.add_argument("--rows", type=int, default=1000)
    args = parser.parse_args()
    T = 300
    betas = torch.linspace(0.0001, 0.02, T)
    model = Net().to("cpu")
    optimizer = torch.optim.Adam(model.parameters())
    for epoch in range(3):
        for batch in range(2):
            loss = model(torch.randn(4, 8), batch).mean()
            loss.backward()
        kept = []
        {loop}
"""
OPTIONS = """noising = Noising(args.num_timesteps, args.end)
        x = torch.randn(args.rows, 8)
        for t in range(args.num_timesteps - 1, -1, -1):
            answer = model(x, torch.full((args.rows,), t))
            x = noising.back(answer, t, x)
            kept.append(x)
"""
HELPED = """image = torch.randn((1, 3, 8, 8))
        for i in reversed(range(T)):
            image = one_step(image, i)
            image = image.clamp(-1, 1)
"""
COUNTED = """x = torch.randn(4, 8)
        at = T - 1
        while at >= 0:
            x = x - betas[at] * model(x, at)
            at -= 1
"""


@pytest.mark.parametrize(("loop", "moved", "trained", "statements"), [
    (OPTIONS, "x", 50, (
        "args = namespace(num_timesteps=steps, end=0.02)", "noising = Noising(args.num_timesteps, args.end)",
        "x = begun.clone()", "for t in range(args.num_timesteps - 1, -1, -1):",
        "    answer = model(x, torch.full((begun.shape[0],), t))", "    x = noising.back(answer, t, x)",
    )),
    (HELPED, "image", 300, (
        "T = steps", "betas = torch.linspace(0.0001, 0.02, T)", "image = begun.clone()",
        "for i in reversed(range(T)):", "    image = one_step(image, i)", "    image = image.clamp(-1, 1)",
    )),
    (COUNTED, "x", 300, (
        "T = steps", "betas = torch.linspace(0.0001, 0.02, T)", "x = begun.clone()", "at = T - 1",
        "while at >= 0:", "    x = x - betas[at] * model(x, at)", "    at -= 1",
    )),
])  # fmt: skip
def test_a_loop_is_cut_out_with_what_it_reads(
    loop: str, moved: str, trained: int, statements: tuple[str, ...], tmp_path: Path
) -> None:
    """Once for all steps of training, and once for a number of steps."""
    (tmp_path / "script.py").write_text(SCRIPT.format(loop=loop), encoding="utf-8")
    reference = find_reference(f"{tmp_path / 'script.py'}::Net")
    found = [*script_loops(reference, reference.cls.source)]
    assert [one.trained for one in found] == [trained, 0]
    assert found[0].called == f"ran(script, 'script', {moved!r}, model=denoiser, begun=begun, steps=steps)"
    assert tuple(found[0].script.splitlines()) == statements


@pytest.mark.parametrize("loop", [
    "x = batch\n        for t in range(T):\n            x = model(x, t)",  # begins with no noise
    "x = torch.randn(4, 8)\n        for t in range(9):\n            x = model(x, t)",
    "x = torch.randn(4, 8)\n        with open('f') as f:\n            betas = f.read()\n"
    "        for t in range(T):\n            x = x - betas[t] * model(x, t)",
    "for t in range(T):\n            y = model(torch.randn(4, 8), t)",
    "x = torch.randn(4, 8)\n        for t in range(T):\n            x = optimizer(x, t)",
])  # fmt: skip
def test_other_loops_are_left_alone(loop: str, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT.format(loop=loop), encoding="utf-8")
    reference = find_reference(f"{tmp_path / 'script.py'}::Net")
    assert [*script_loops(reference, reference.cls.source)] == []
