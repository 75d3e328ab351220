"""The reference side of a sampler: the authors' own loop, told by a small file next to the integration."""

import importlib.util
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from omni_kit.errors import BadInput
from omni_kit.targets.provenance import ALONE, SCHEDULER
from omni_kit.targets.references.calls import asking
from omni_kit.targets.references.repositories import RepositoryBuilder
from omni_kit.targets.references.stepping import StandIn, rows_alike, runs_alone, seeded
from omni_kit.toys.batches.denoiser.sizes import ARGUMENTS
from omni_kit.toys.batches.sampling import LATENTS, NAMES, drawn_of
from omni_kit.toys.tensors import Tensors
from omni_kit.upstream.repositories.recorded import JOINED

FUNCTION = "sample"
_STEP = "timestep"


class SamplerBuilder(RepositoryBuilder):
    """Samples with the authors' class, as `sample(model, noise, steps, text, against, scale)` of a file does it."""

    def __init__(self) -> None:
        super().__init__()
        self._file = Path()
        self._sample: Callable[..., torch.Tensor] | None = None

    def open(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Open the class; its file is imported in the first run, when the authors' code is importable."""
        self._file = Path(options["sampler"])
        return super().open(options)

    @torch.no_grad()
    def forward(self, model: Any, inputs: Tensors, loss_only: bool = False) -> Tensors:
        """Return every run, step by step."""
        told = getattr(model, ARGUMENTS)
        names = {new: old for old, new in told[NAMES].items()}
        sample, found, form = self._sampler(), Tensors(), None
        model.eval()
        for number, run in enumerate(drawn_of(inputs)):
            seeded(number)
            calls = asking(model, (names[LATENTS], names[_STEP]), len(run.noise), told.get(JOINED))
            with calls as asked, rows_alike(number):
                latents = sample(
                    model=model, noise=run.noise.clone(), steps=run.steps, text=run.text, against=run.against,
                    scale=run.scale, **run.conditions,
                )  # fmt: skip
            found |= asked.named(run.name, run.answer(latents))
            form = asked.answer
        if told.get(SCHEDULER, {}).get(ALONE):
            found |= self._alone(model, names, form)
        return found

    @contextmanager
    def rounded_tables(self) -> Iterator[None]:
        """Round cumulative products to float32, the precision of diffusers' schedulers.

        Authors often keep these products in float64. Near 1, `1 - product` loses four digits in float32, and a
        correct port shows that difference. Of products that are float32 already every second one is rounded down:
        rounded alike, quotients of two would stay as they are.
        """
        exact = np.cumprod, torch.cumprod

        def rounded(*args: Any, **more: Any) -> Any:
            products = np.asarray(exact[0](*args, **more))  # numpy returns a tensor for one
            found = products.astype(np.float32)
            flat = found.reshape(-1)[:: 2 if products.dtype == np.float32 else 1]
            flat[...] = np.nextafter(flat, np.float32(0))
            return found.astype(products.dtype)

        def rounded_tensor(*args: Any, **more: Any) -> torch.Tensor:
            products = exact[1](*args, **more)
            found = products.to(torch.float32, copy=True)
            flat = found.view(-1)[:: 2 if products.dtype == torch.float32 else 1]
            flat.copy_(torch.nextafter(flat, torch.zeros(())))
            return found.to(products.dtype)

        np.cumprod, torch.cumprod = rounded, rounded_tensor
        try:
            yield
        finally:
            np.cumprod, torch.cumprod = exact

    def _alone(self, model: Any, names: Mapping[str, str], form: Any) -> Tensors:
        """Return the loop with a stand-in for the model, where it became a scheduler of its own."""
        found, order = Tensors(), list(inspect.signature(model.forward).parameters)
        for number, run in enumerate(runs_alone()):
            seeded(number)
            stand_in = StandIn(order, names[LATENTS], names[_STEP], form)
            latents = self._sampler()(
                model=stand_in, noise=run.noise.clone(), steps=run.steps, text=run.text, against=run.text, scale=1.0
            )
            found |= stand_in.calls.named(run.name, latents)
        return found

    def _sampler(self) -> Callable[..., torch.Tensor]:
        if self._sample is None:
            spec = importlib.util.spec_from_file_location("authors_sampling", self._file)
            assert spec is not None
            assert spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            with self.importing_files():
                spec.loader.exec_module(module)
            if not hasattr(module, FUNCTION):
                raise BadInput(f"{self._file} has no {FUNCTION}(model, noise, steps, text, against, scale)")
            self._sample = getattr(module, FUNCTION)
        return self._sample
