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
# Schedulers of SGLang whose steps and sigmas are those of diffusers, bit for bit, and which are SGLang's own only in
# what its denoising stage asks for besides. SGLang's UniPCMultistepScheduler takes other steps.
SAME_SCHEDULERS = ("FlowMatchEulerDiscreteScheduler",)


@dataclass(frozen=True)
class VAEConfigPlace:
    """Where the config of an autoencoder is imported from."""

    module: str
    name: str


def reused(class_name: str) -> VAEConfigPlace | None:
    """The config that SGLang has for a class of diffusers; None where it has none."""
    found = _REUSED.get(class_name)
    return VAEConfigPlace(f"{_CONFIGS}.{found[0]}", found[1]) if found is not None else None
