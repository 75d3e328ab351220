"""Authors' code runs on the CPU and uncompiled for the rest of its process: other tests of this process compile."""

from collections.abc import Iterator

import pytest
import torch

from omni_kit.targets.references import on_cpu


@pytest.fixture(autouse=True)
def torch_as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Undo what keeps a process on the CPU and uncompiled: other tests compile."""
    monkeypatch.setattr(torch, "compile", torch.compile)
    yield
    for mode in on_cpu._mode:
        mode.__exit__(None, None, None)  # type: ignore[no-untyped-call]
    on_cpu._mode.clear()
