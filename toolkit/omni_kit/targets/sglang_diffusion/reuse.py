"""The classes of diffusers in whose place SGLang's own can stand."""

from dataclasses import dataclass

_CONFIGS = "sglang.multimodal_gen.configs.models.vaes"
# Class -> the file and the name of its config: each reads the whole config.json of that class.
_REUSED = {
    "AutoencoderKL": ("flux", "FluxVAEConfig"),
    "AutoencoderDC": ("sana", "SanaVAEConfig"),
    "AutoencoderKLQwenImage": ("qwenimage", "QwenImageVAEConfig"),
    "AutoencoderKLWan": ("wanvae", "WanVAEConfig"),
}
# Schedulers whose steps and sigmas are those of diffusers, bit for bit. SGLang's UniPCMultistepScheduler takes others.
_SCHEDULERS = frozenset({"FlowMatchEulerDiscreteScheduler"})


@dataclass(frozen=True)
class VAEConfigPlace:
    """Where the config of an autoencoder is imported from."""

    module: str
    name: str


def reused(class_name: str) -> VAEConfigPlace | None:
    """The config that SGLang has for a class of diffusers; None where it has none."""
    found = _REUSED.get(class_name)
    return VAEConfigPlace(f"{_CONFIGS}.{found[0]}", found[1]) if found is not None else None


def same_scheduler(class_name: str) -> bool:
    """Whether SGLang has a scheduler of this name that takes the same steps."""
    return class_name in _SCHEDULERS
