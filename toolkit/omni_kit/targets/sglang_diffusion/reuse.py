"""The classes of diffusers in whose place SGLang's own can stand."""

from dataclasses import dataclass

from omni_kit.targets.sglang_diffusion.built_in import Own

# SGLang's class that takes any config: this one reads the whole config.json.
_OF_ANY = {"AutoencoderKL": "sglang.multimodal_gen.configs.models.vaes.flux:FluxVAEConfig"}
# Measured to decode what diffusers' classes decode, several pictures at once, too. SGLang's AutoencoderKLHunyuanVideo
# cannot: the mask of a batch has no dimension for heads.
_EQUAL = frozenset({"AutoencoderKL", "AutoencoderDC", "AutoencoderKLQwenImage", "AutoencoderKLWan"})
# Schedulers of SGLang whose steps and sigmas are those of diffusers, bit for bit, and which are SGLang's own only in
# what its denoising stage asks for besides. SGLang's UniPCMultistepScheduler takes other steps.
SAME_SCHEDULERS = ("FlowMatchEulerDiscreteScheduler",)


@dataclass(frozen=True)
class VAEConfigPlace:
    """Import location of an autoencoder's config."""

    module: str
    name: str


def reused(class_name: str, own: Own) -> VAEConfigPlace | None:
    """Return the config of SGLang's own autoencoder for a class of diffusers; None if it has none that decodes the
    same.
    """
    known = {**own.vae_configs, **_OF_ANY}
    if class_name not in own.models or class_name not in known or class_name not in _EQUAL:
        return None
    return VAEConfigPlace(*known[class_name].split(":"))
