"""Samplers of latent diffusion: a class that is made with the whole model, and asks its `apply_model`.

Such classes descend from one implementation: `make_schedule` reads the betas that the model keeps, `sample` goes along
evenly spaced steps of them, and guides.
"""

import ast
from collections.abc import Iterator

from omni_kit.pysource.reads import literal
from omni_kit.pysource.signatures import defaults, signature
from omni_kit.pysource.source import SourceFile, dotted, read_source
from omni_kit.upstream.repositories.names import Defined, resolve
from omni_kit.upstream.repositories.processes.process import Process
from omni_kit.upstream.repositories.repository import Repository

_METHODS = {"make_schedule", "ddim_sampling", "sample"}
_START, _END, _STEPS = "linear_start", "linear_end", "timesteps"
_KNOWN = {_START: 1e-4, _END: 2e-2, _STEPS: 1000}


def samplers(source: SourceFile, condition: str) -> Iterator[Process]:
    """Yield the uses of such a class in a file."""
    for call in (node for node in ast.walk(source.tree) if isinstance(node, ast.Call) and condition):
        meant = resolve(source, dotted(call.func) or "")
        if isinstance(meant, Defined) and isinstance(meant.node, ast.ClassDef) and _is_one(meant.node):
            yield _process(source, call, meant, condition)


def _is_one(cls: ast.ClassDef) -> bool:
    return {one.name for one in cls.body if isinstance(one, ast.FunctionDef)} >= _METHODS


def _process(source: SourceFile, call: ast.Call, meant: Defined, condition: str) -> Process:
    betas, where = _betas(source)
    start, end, steps = betas[_START], betas[_END], betas[_STEPS]
    config: dict[str, object] = {
        "num_train_timesteps": steps, "beta_schedule": "scaled_linear", "beta_start": start, "beta_end": end,
        "clip_sample": False, "set_alpha_to_one": False, "steps_offset": 1,
    }  # fmt: skip
    held = (
        f"betas = torch.linspace({start}**0.5, {end}**0.5, {steps}, dtype=torch.float64) ** 2",
        "products = torch.cumprod(1 - betas, dim=0).float()",
        "held = SimpleNamespace(",
        f"    num_timesteps={steps}, device=noise.device, betas=betas.float(), alphas_cumprod=products,",
        "    alphas_cumprod_prev=torch.cat([torch.ones(1), products[:-1]]),",
        f"    apply_model=lambda x, t, c: model(x, t, {condition}=c),",
        ")",
    )
    called = (
        f"{meant.name}(held).sample(\n"
        "        steps, len(noise), noise.shape[1:], conditioning=text, x_T=noise, verbose=False,\n"
        "        unconditional_guidance_scale=scale, unconditional_conditioning=against,\n    )[0]"
    )
    lines = ("from types import SimpleNamespace", f"from {meant.source.module} import {meant.name}")
    todo = [f"set the scheduler's betas as the config of the checkpoint does: these are the defaults of {where}"]
    reason = f"{meant.name} goes along evenly spaced steps without noise"
    return Process(
        source.where(call), lines, called, "DDIMScheduler", reason, config, held=held, todo=tuple(todo if where else ())
    )


def _betas(source: SourceFile) -> tuple[dict[str, float], str]:
    """Return the default betas of a model, and file:line of them; empty for those of the original implementation."""
    assert isinstance(source.library, Repository)
    for file in source.library.files:
        if _START not in file.read_text(encoding="utf-8", errors="ignore"):
            continue
        found = read_source(source.library, file)
        for node in (one for one in ast.walk(found.tree) if isinstance(one, ast.FunctionDef)):
            given = {name: literal(one) for name, one in defaults(signature(node)).items() if name in _KNOWN}
            if {_START, _END} <= {name for name, value in given.items() if isinstance(value, float)}:
                return {**_KNOWN, **given}, found.where(node)
    return dict(_KNOWN), ""
