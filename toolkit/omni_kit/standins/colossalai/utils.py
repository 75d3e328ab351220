"""Devices."""

import torch


def get_current_device() -> torch.device:
    """Return the GPU of this process, or the CPU without one."""
    return torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")
