"""A loop whose step no scheduler does becomes one; what one does is reused; both go where the authors go."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from omni_kit.parity import run_parity
from omni_kit.parity.processes.workers import Sides
from omni_kit.scaffold import new_model
from omni_kit.scaffold.new_model import Scaffold, draft
from tests.conftest import first

from .checkouts import copied_checkout
from .loops import (
    ALONG_SIGMAS,
    ALPHAS,
    CALLED,
    CHURNED,
    DDIM,
    DIFFUSION,
    DPM,
    EULER,
    HELD,
    HEUN,
    KNOWN,
    METHODS,
    MIDPOINT,
    OWN_SCHEDULER,
    PIPED,
    TWO_STEPS,
    WITHIN,
)
from .test_new_model import DOVE


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sides]:
    with Sides(tmp_path_factory.mktemp("sides")) as both:
        yield both


def made(name: str, loop: str, place: Path, kind: str | None = None) -> Scaffold:
    """The integration of a model with that loop."""
    source = place / f"of_{name}" / f"{name}_authors.py"
    source.parent.mkdir()
    source.write_text(DOVE + loop, encoding="utf-8")
    return new_model(name, f"{source}::Dove", target="diffusers", into=place, kind=kind)


def chosen(written: Scaffold) -> tuple[str, str]:
    """The scheduler, and why."""
    return next((one.choice, one.reason) for one in written.plan.decisions if one.what == "scheduler")


def delivered(place: Path, *tests: str, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests],
        cwd=place, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": str(path or place)},
    )  # fmt: skip


@pytest.mark.sweep
@pytest.mark.parametrize(("name", "loop", "why", "old", "new"), [
    ("twice", HEUN, "calls its model 2 times a step", "self.sigmas[i + 1], v2", "self.sigmas[i + 1], -v2"),
    ("churn", CHURNED, "draws noise", "self.sigmas[i + 1] - sigma_hat", "self.sigmas[i] - sigma_hat"),
    ("past", TWO_STEPS, "remembers old", "(after - now)", "(now - after)"),
    ("within", WITHIN, "remembers prev", "torch.expm1(-h)", "torch.expm1(h)"),
    ("middle", MIDPOINT, "2 times a step", "(b - a) *", "(a - b) *"),
    ("beta", ALPHAS, "draws noise", "[self.ts[i + 1]] if", "[self.ts[i]] if"),
])  # fmt: skip
def test_a_step_that_none_does_is_moved_and_goes_where_the_authors_go(
    name: str, loop: str, why: str, old: str, new: str, tmp_path: Path, sides: Sides
) -> None:
    choice, reason = chosen(made(name, loop, tmp_path))
    assert choice == "a new class"
    assert why in reason
    assert run_parity(tmp_path / name / f"pipeline_{name}.py", ("stages",), sides=sides).ok
    file = tmp_path / name / f"scheduling_{name}.py"
    text = file.read_text(encoding="utf-8")
    assert old in text
    file.write_text(text.replace(old, new), encoding="utf-8")
    assert not run_parity(tmp_path / name / f"pipeline_{name}.py", ("stages",), sides=sides).ok


def test_noise_of_a_moved_step_is_drawn_with_the_generator_that_the_step_is_given(tmp_path: Path) -> None:
    loop = ALPHAS.replace("eta=0.0", "eta=0.5, generator=None")
    loop = loop.replace("torch.randn_like(x)", "torch.randn(x.shape, generator=generator, device=x.device)")
    (tmp_path / "dove.py").write_text(DOVE + loop, encoding="utf-8")
    _, files, _ = draft("drawn", f"{tmp_path}/dove.py::Dove", target="diffusers", style="plugin", into=tmp_path)
    text = files["drawn/scheduling_drawn.py"]
    assert "randn_tensor(x.shape, generator=generator, device=x.device, dtype=x.dtype)" in text
    assert "self.generator" not in text


@pytest.mark.sweep
def test_faults_of_a_moved_step_are_noticed_and_located(tmp_path: Path, sides: Sides) -> None:
    made("proven", HEUN, tmp_path)
    report = run_parity(tmp_path / "proven" / "pipeline_proven.py", ("stages",), sides=sides, prove=True)
    assert report.ok, report.levels
    assert report.prove is not None
    assert {"answer-sign", "levels-one-late"} <= {fault.kind for fault in report.prove.planted}
    assert report.prove.detected == report.prove.located == report.prove.faults


@pytest.mark.sweep
def test_a_scheduler_that_does_the_same_is_reused_wherever_its_steps_come_from(tmp_path: Path, sides: Sides) -> None:
    written = made("known", KNOWN, tmp_path)
    assert chosen(written)[0] == "FlowMatchHeunDiscreteScheduler"
    assert not (tmp_path / "known" / "scheduling_known.py").exists()
    assert run_parity(tmp_path / "known" / "pipeline_known.py", ("stages",), sides=sides).ok
    assert chosen(made("plain", EULER, tmp_path))[0] == "FlowMatchEulerDiscreteScheduler"


@pytest.fixture(scope="module")
def piped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The port of a model that is sampled by a pipeline of theirs, and takes more than a prompt; not to be changed."""
    place = tmp_path_factory.mktemp("piped")
    taken = ("t, context):", "t, context, pooled):"), ("context).mean(1))", "context).mean(1) + self.c_in(pooled))")
    net = DOVE
    for old, new in taken:
        assert old in net
        net = net.replace(old, new)
    (place / "dove.py").write_text(net + PIPED, encoding="utf-8")
    written = new_model("piped", f"{place / 'dove.py'}::Dove", target="diffusers", into=place)
    assert chosen(written)[0] == "FlowMatchEulerDiscreteScheduler"
    assert "takes its steps with self.scheduler" in chosen(written)[1]
    return place / "piped"


def test_a_loop_of_the_authors_pipeline_is_cut_out_and_gone_along(piped: Path, tmp_path: Path) -> None:
    """What else their model takes is passed on, and there is another one of it to guide against."""
    file = shutil.copytree(piped, tmp_path / "piped") / "pipeline_piped.py"
    with Sides(tmp_path / "own") as sides:  # its reference imports diffusers, which others must not
        report = run_parity(file, ("stages",), sides=sides)
        assert report.ok, report.levels
        text = file.read_text(encoding="utf-8")
        assert "pooled=negative_pooled" in text
        file.write_text(text.replace("pooled=negative_pooled", "pooled=pooled"), encoding="utf-8")
        assert not run_parity(file, ("stages",), sides=sides).ok


@pytest.mark.sweep
def test_the_delivered_tests_pass_where_a_pipeline_was_cut_up(piped: Path) -> None:
    done = delivered(piped.parent, "piped")
    assert done.returncode == 0, done.stdout


@pytest.mark.sweep
def test_the_authors_own_scheduler_is_copied(tmp_path: Path) -> None:
    loop = PIPED.replace("import DiffusionPipeline, FlowMatchEulerDiscreteScheduler", "import DiffusionPipeline")
    loop = loop.replace("FlowMatchEulerDiscreteScheduler", "DoveScheduler").replace(", pooled)", ")")
    written = made("copied", OWN_SCHEDULER + loop, tmp_path)
    assert chosen(written)[0] == "a copy of DoveScheduler"
    file = tmp_path / "copied" / "scheduling_copied.py"
    text = file.read_text(encoding="utf-8")
    assert "class CopiedScheduler(SchedulerMixin, ConfigMixin)" in text
    with Sides(tmp_path / "own") as sides:
        report = run_parity(tmp_path / "copied" / "pipeline_copied.py", ("stages",), sides=sides)
    assert report.ok, report.levels
    done = delivered(tmp_path, "copied")
    assert done.returncode == 0, done.stdout
    file.write_text(text.replace("- sigmas[self.place]", "- 1.01 * sigmas[self.place]"), encoding="utf-8")
    with Sides(tmp_path / "own") as sides:
        assert not run_parity(tmp_path / "copied" / "pipeline_copied.py", ("stages",), sides=sides).ok


OWN = "beta_schedule=scaled_linear, beta_start=0.00085, beta_end=0.012"
LINEAR = ("start**0.5, end**0.5, n, dtype=torch.float64) ** 2", "start, end, n)")
COSINE = """    left = lambda u: math.cos((u + 0.008) / 1.008 * math.pi / 2) ** 2
    betas = []
    for i in range(n):
        betas.append(min(1 - left((i + 1) / n) / left(i / n), 0.999))
    return torch.tensor(betas)
"""


@pytest.mark.parametrize(("loop", "changed", "choice", "settings"), first(1, [
    (DDIM, (), "DDIMScheduler", f"{OWN}, clip_sample=False"),
    (DDIM, (LINEAR,), "DDIMScheduler", "; beta_start=0.00085, beta_end=0.012, clip_sample=False"),
    (DDIM, (LINEAR, ("0.00085, end=0.012", "0.0001, end=0.02")), "DDIMScheduler", "side by side; clip_sample=False"),
    (DDIM, (("    return torch.linspace(start**0.5, end**0.5, n, dtype=torch.float64) ** 2\n", COSINE),
            ("\n\ndef make", "import math\n\n\ndef make")),
     "DDIMScheduler", "beta_schedule=squaredcos_cap_v2, clip_sample=False"),
    (DDIM, (("torch.ones(())", "alphas[0]"), ("range((steps - 1) * jump, -1, -jump)",
                                             "[1 + jump * k for k in range(steps - 1, -1, -1)]")),
     "DDIMScheduler", f"{OWN}, steps_offset=1, clip_sample=False, set_alpha_to_one=False"),
    (DDIM, (("/ a.sqrt()\n", "/ a.sqrt()\n        x0 = x0.clamp(-1, 1)\n"),), "DDIMScheduler", OWN),
    (DDIM, (("eps = u", "f = u"), ("x0 = (x - (1 - a).sqrt() * eps) / a.sqrt()",
            "x0 = a.sqrt() * x - (1 - a).sqrt() * f\n        eps = a.sqrt() * f + (1 - a).sqrt() * x")),
     "DDIMScheduler", "prediction_type=v_prediction, clip_sample=False"),
    (DPM, (), "DPMSolverMultistepScheduler", OWN),
    (ALONG_SIGMAS, (), "EulerDiscreteScheduler", f"{OWN}, timestep_spacing=trailing"),
    (DDIM, (("**0.5, end**0.5", "**0.6, end**0.6"), (") ** 2\n", ") ** (1 / 0.6)\n")), "a new class", ""),
    (DDIM, (("/ a.sqrt()\n", "/ a.sqrt()\n        x0 = x0.clamp(-0.9, 0.9)\n"),), "a new class", ""),
    (DDIM, (("(1 - a_prev).sqrt() * eps", "(1 - a_prev) * eps"),), "a new class", ""),
]))  # fmt: skip
def test_a_scheduler_is_reused_with_the_settings_whose_numbers_are_the_authors_own(
    loop: str, changed: tuple[tuple[str, str], ...], choice: str, settings: str, tmp_path: Path
) -> None:
    for old, new in changed:
        assert old in loop
        loop = loop.replace(old, new)
    found, why = chosen(made("along", loop, tmp_path))
    assert found == choice
    assert why.endswith(settings)


@pytest.mark.sweep
@pytest.mark.parametrize(("name", "loop"), first(1, [("betas", DDIM), ("sigmas", ALONG_SIGMAS)]))
def test_what_is_reused_along_betas_goes_where_the_authors_go(
    name: str, loop: str, tmp_path: Path, sides: Sides
) -> None:
    made(name, loop, tmp_path)
    file = tmp_path / name / f"pipeline_{name}.py"
    report = run_parity(file, ("stages",), sides=sides, prove=name == "sigmas")
    assert report.ok
    if report.prove is not None:
        assert "latents-shift-left-out" in {fault.kind for fault in report.prove.planted}
    test = tmp_path / name / "toy_config.json"
    test.write_text(test.read_text(encoding="utf-8").replace("0.012", "0.02"), encoding="utf-8")
    assert not run_parity(file, ("stages",), sides=sides).ok


@pytest.mark.parametrize(("old", "new", "said"), first(1, [
    ("        old = v\n", "        if old is not None and old.abs().max() > 9:\n            break\n", "has a `break`"),
    ("neg + cfg * (v - neg)", "neg + cfg**2 * (v - neg)", "guides differently from"),
    ("sigmas = get_sigmas(steps, 2.0)", "sigmas = get_sigmas(steps, float(noise.shape[-1]))", "of noise"),
    ("    old = None\n", "    old = None\n    noise = noise.clamp(-1, 1)\n", "begins with"),
    ("blend * v", "torch.rand(1) * v", "draws noise by"),
]))  # fmt: skip
def test_what_cannot_be_moved_is_left_to_a_person_in_one_line(old: str, new: str, said: str, tmp_path: Path) -> None:
    assert old in TWO_STEPS
    written = made("left", TWO_STEPS.replace(old, new), tmp_path)
    told = [todo.what for todo in written.plan.todo if todo.what.startswith("write the authors' step as a scheduler")]
    assert len(told) == 1
    assert said in told[0]
    assert not (tmp_path / "left" / "scheduling_left.py").exists()


REMEMBERED = ("        prev = sample + (self.sigmas[i + 1] - self.sigmas[i]) * answer\n", """\
        self.kept = answer if self.kept is None else 0.9 * answer + 0.1 * self.kept
        prev = sample + (self.sigmas[i + 1] - self.sigmas[i]) * self.kept
""")  # fmt: skip
KEPT = ("        self.sigmas = None\n", "        self.sigmas = None\n        self.kept = None\n")


@pytest.mark.sweep
@pytest.mark.parametrize(("name", "loop", "changed", "choice", "why"), first(1, [
    ("method", METHODS, (), "a new class", "Sampler.sample remembers old"),
    ("called", CALLED, (), "a new class", "Heun.__call__ calls its model 2 times a step"),
    ("diffusion", DIFFUSION, (), "DDIMScheduler", "it takes the steps of Diffusion.sample, computed side by side"),
    ("held", HELD, (), "FlowMatchEulerDiscreteScheduler", "sample uses the noise levels of shift=2.5"),
    ("bent", HELD, (("self.shift * s / (1 + (self.shift - 1) * s)", "s**self.shift"),), "a new class",
     "sample computes its own noise levels"),
    ("kept", HELD, (REMEMBERED, KEPT), "a new class", "sample remembers kept"),
]))  # fmt: skip
def test_steps_of_objects_go_where_the_authors_go(
    name: str, loop: str, changed: tuple[tuple[str, str], ...], choice: str, why: str, tmp_path: Path, sides: Sides
) -> None:
    for old, new in changed:
        assert old in loop
        loop = loop.replace(old, new)
    found, reason = chosen(made(name, loop, tmp_path))
    assert found == choice
    assert reason.startswith(why)
    report = run_parity(tmp_path / name / f"pipeline_{name}.py", ("stages",), sides=sides, prove=name == "method")
    assert report.ok, report.levels
    if report.prove is not None:
        assert {"answer-sign", "levels-one-late"} <= {fault.kind for fault in report.prove.planted}
        assert report.prove.detected == report.prove.located == report.prove.faults


@pytest.mark.parametrize(("old", "new", "said"), first(1, [
    ("        self.old = v\n", "        log(self)\n        self.old = v\n", "passes its Sampler to other code"),
    ("        self.old = v\n", "        self.old = v * self.scale\n", "reads self.scale, which Sampler does not set"),
    ("class Sampler:", "class Base:\n    pass\n\n\nclass Sampler(Base):", "made of another class of theirs"),
    ("net, shift=3.0", "net, cfg, shift=3.0", "also takes or sets cfg, an argument of Sampler"),
]))  # fmt: skip
def test_objects_that_cannot_be_told_are_left_to_a_person_in_one_line(
    old: str, new: str, said: str, tmp_path: Path
) -> None:
    assert old in METHODS
    written = made("left", METHODS.replace(old, new), tmp_path)
    told = [todo.what for todo in written.plan.todo if todo.what.startswith("write the authors' step as a scheduler")]
    assert len(told) == 1
    assert said in told[0]


@pytest.mark.sweep
def test_the_delivered_tests_pass_and_blocks_take_the_scheduler(tmp_path: Path) -> None:
    made("tests_of", HEUN, tmp_path, kind="both")
    done = delivered(tmp_path, "tests_of/tests/test_scheduler_tests_of.py", "tests_of/tests/test_modular_tests_of.py")
    assert done.returncode == 0, done.stdout[-3000:]


@pytest.mark.parametrize("needed", first(1, [True, False]))
def test_a_pipeline_without_an_argument_that_the_model_needs_raises(needed: bool, tmp_path: Path) -> None:
    dove = DOVE.replace("t, context):", "t, context, y=None):")
    dove = dove.replace("b, c, h, w = x.shape", f"b, c, h, w = x.shape\n        assert y is not None or not {needed}")
    source = tmp_path / "authors_of_need.py"
    told = "self.c_in(context).mean(1) + (0 if y is None else y.float().mean()))"
    source.write_text(dove.replace("self.c_in(context).mean(1))", told) + TWO_STEPS)
    assert not new_model("in_need", f"{source}::Dove", target="diffusers", into=tmp_path).refused
    text = (tmp_path / "in_need" / "pipeline_in_need.py").read_text(encoding="utf-8")
    assert ("they do not pass y, which the small model needs" in text) is needed
    assert ("raise NotImplementedError" in text) is needed


def bare(tmp_path: Path) -> None:
    """Port a model without prompts: its pipeline raises, and forward has a mask that is not one of a prompt."""
    source = tmp_path / "authors.py"
    source.write_text(
        "import torch\nfrom torch import nn\n\n\nclass Net(nn.Module):\n    def __init__(self, in_channels=3):\n"
        "        super().__init__()\n        self.net = nn.Conv2d(in_channels, in_channels, 1)\n\n"
        "    def forward(self, x, t, mask):\n        b, c, h, w = x.shape\n"
        "        return self.net(x) * mask.view(b, 1, 1, 1) + t.view(b, 1, 1, 1)\n"
    )
    new_model("bare", f"{source}::Net", target="diffusers", into=tmp_path)


def test_what_takes_no_prompt_has_neither_a_text_encoder_nor_a_required_autoencoder(tmp_path: Path) -> None:
    bare(tmp_path)
    text = (tmp_path / "bare" / "pipeline_bare.py").read_text(encoding="utf-8")
    assert "raise NotImplementedError" in text
    assert "vae: AutoencoderKL | None = None" in text
    assert not [word for word in ("tokenizer", "text_encoder", "prompt", "Text-to-image") if word in text]
    page = (tmp_path / "bare" / "docs" / "bare.md").read_text(encoding="utf-8")
    assert "from text" not in page
    assert "lighthouse" not in page


@pytest.mark.sweep
def test_the_delivered_tests_pass_where_nothing_is_prompted(tmp_path: Path) -> None:
    bare(tmp_path)
    done = delivered(tmp_path, "bare/tests/test_bare.py")
    assert done.returncode == 0, done.stdout[-3000:]


@pytest.mark.sweep
def test_in_a_checkout_it_stands_where_schedulers_stand(tmp_path: Path) -> None:
    root = copied_checkout(tmp_path / "checkout")
    source = tmp_path / "theirs" / "authors.py"
    source.parent.mkdir()
    source.write_text(DOVE + TWO_STEPS, encoding="utf-8")
    given = {"target": "diffusers", "style": "in-tree", "into": root, "kind": "both"}
    assert not new_model("past", f"{source}::Dove", **given).refused  # type: ignore[arg-type]
    asked = (
        "from diffusers import PastScheduler, PastPipeline; from diffusers.schedulers import PastScheduler as P;"
        "from diffusers.utils.dummy_pt_objects import PastScheduler as D; print(P.__module__, D.__module__, P is D)"
    )
    done = subprocess.run(
        [sys.executable, "-c", asked], capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(root / "src")},
    )  # fmt: skip
    assert done.stdout.split() == [
        "diffusers.schedulers.scheduling_past", "diffusers.utils.dummy_pt_objects", "False"
    ], done.stderr[-2000:]  # fmt: skip
    done = delivered(root, "tests/schedulers", "tests/pipelines", path=root / "src")
    assert done.returncode == 0, done.stdout[-3000:]
    lines = (root / "docs" / "source" / "en" / "_toctree.yml").read_text(encoding="utf-8").splitlines()
    assert lines.index("    title: PastScheduler") == lines.index("    title: DDIMScheduler") + 2
    again = new_model("past", f"{source}::Dove", dry_run=True, **given)  # type: ignore[arg-type]
    assert {change.action for change in again.changes} == {"unchanged"}
    report = run_parity(root / "src/diffusers/pipelines/past/pipeline_past.py", ("stages",))
    assert report.ok, report.levels
