"""Clocks for a step: the device's own events, or the CPU's clock."""

import time
from collections.abc import Callable

import torch

from omni_kit.kernels.timing import Stopwatch


class DeviceStopwatch:
    """CUDA events around each step, read after the last; peak allocated memory."""

    def __init__(self) -> None:
        self._pairs: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []

    def start(self) -> None:
        """Reset times and peak memory."""
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        self._pairs.clear()

    def lap(self, step: Callable[[], None]) -> None:
        """Times one step."""
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        begin.record()
        step()
        end.record()
        self._pairs.append((begin, end))

    def read(self) -> tuple[list[float], float]:
        """Milliseconds of each lap, and the peak in GB since `start`."""
        torch.cuda.synchronize()
        return [begin.elapsed_time(end) for begin, end in self._pairs], torch.cuda.max_memory_allocated() / 1e9


class WallStopwatch:
    """The machine's clock; without memory."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._laps: list[float] = []

    def start(self) -> None:
        """Reset the times."""
        self._laps.clear()

    def lap(self, step: Callable[[], None]) -> None:
        """Times one step."""
        begun = self._clock()
        step()
        self._laps.append((self._clock() - begun) * 1e3)

    def read(self) -> tuple[list[float], float]:
        """Milliseconds of each lap, and no memory."""
        return list(self._laps), 0.0


def stopwatch_for(device: torch.device) -> Stopwatch:
    """Return the one that tells a device's own time."""
    return DeviceStopwatch() if device.type == "cuda" else WallStopwatch()
