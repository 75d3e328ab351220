"""Coverage of a batch: parameters without a gradient are not verified."""

from collections.abc import Sequence

from omni_kit.toys.tensors import Tensors


def unexercised(parameters: Sequence[str], gradients: Tensors) -> list[str]:
    """Return the parameters, and the single experts of stacked ones, that no gradient reaches: unproven ones."""
    found = [name for name in parameters if name not in gradients or not bool(gradients[name].any())]
    for name, gradient in gradients.items():
        if gradient.dim() == 3 and name not in found:
            found += [f"{name}[{index}]" for index, part in enumerate(gradient) if not bool(part.any())]
    return found
