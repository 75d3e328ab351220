"""Files that examples of rules on diffusion models share: VeOmni's integration of Wan, shortened and fixed."""

REGISTER = "wan_transformer/__init__.py"
CONFIG = "wan_transformer/configuration_wan_transformer.py"
MODEL = "wan_transformer/modeling_wan_transformer.py"
CONDITION = "wan_condition/modeling_wan_condition.py"
CONDITION_CONFIG = "wan_condition/configuration_wan_condition.py"

REGISTERS = """\
from ....loader import MODEL_CONFIG_REGISTRY, MODELING_REGISTRY


@MODEL_CONFIG_REGISTRY.register("WanTransformer3DModel")
def register_config():
    from .configuration_wan_transformer import WanTransformer3DModelConfig

    return WanTransformer3DModelConfig


@MODELING_REGISTRY.register("WanTransformer3DModel")
def register_modeling(architecture=None):
    from .modeling_wan_transformer import WanTransformer3DModel, apply_veomni_wan_transformer_patch

    apply_veomni_wan_transformer_patch()
    return WanTransformer3DModel
"""
"""`wan_transformer/__init__.py`."""

TO_DICTS = """\
    def to_diffuser_dict(self):
        return {key: getattr(self, key) for key in SIGNATURE.parameters if key != "self"}

    def to_dict(self):
        values = super().to_dict()
        values["_class_name"] = "WanTransformer3DModel"
        values["_diffusers_version"] = diffusers.__version__
        values.pop("dtype", None)
        return values
"""
CONFIGURATION = f"""\
import inspect

import diffusers
from diffusers import WanTransformer3DModel
from transformers import PretrainedConfig

SIGNATURE = inspect.signature(WanTransformer3DModel.__init__)


class WanTransformer3DModelConfig(PretrainedConfig):
    model_type = "WanTransformer3DModel"
    condition_model_type = "WanTransformer3DConditionModel"

    def __init__(self, **kwargs):
        for name, parameter in SIGNATURE.parameters.items():
            if name != "self":
                setattr(self, name, kwargs.pop(name, parameter.default))
        super().__init__(**kwargs)

{TO_DICTS}"""
"""`wan_transformer/configuration_wan_transformer.py`: what diffusers' constructor takes, taken from itself."""

INIT = """\
    def __init__(self, config, **kwargs):
        PreTrainedModel.__init__(self, config, **kwargs)
        del self._internal_dict
        _WanTransformer3DModel.__init__(self, **config.to_diffuser_dict())
        self.config = config
        self.config.tie_word_embeddings = False
"""
ATTRIBUTES = """\
class WanTransformer3DModel(PreTrainedModel, _InitShim):
    config_class = WanTransformer3DModelConfig
    supports_gradient_checkpointing = True
    _no_split_modules = ["WanTransformerBlock"]
"""
FORWARD = """\
    def forward(self, hidden_states, timestep, encoder_hidden_states, training_target, latents=None):
        losses, predictions = [], []
        for sample, when, context, target in zip(hidden_states, timestep, encoder_hidden_states, training_target):
            prediction = _WanTransformer3DModel.forward(self, sample, when, context, return_dict=False)[0]
            losses.append(F.mse_loss(prediction.float(), target.float()))
            predictions.append(prediction)
        return WanModelOutput(loss={"mse_loss": torch.stack(losses).mean()}, predictions=predictions)
"""
SAVING = """\
    def save_pretrained(self, path, **kwargs):
        config = self.config
        self.config = config.to_diffuser_dict()
        try:
            _WanTransformer3DModel.save_pretrained(self, path, **kwargs)
        finally:
            self.config = config
"""
LOADING = """\
    @classmethod
    def from_pretrained(cls, path, **kwargs):
        model = _WanTransformer3DModel.from_pretrained(path, **kwargs)
        model.__class__ = cls
        model.config = cls.config_class(**model.config)
        return model
"""
_HEAD = '''\
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from diffusers import WanTransformer3DModel as _WanTransformer3DModel
from transformers import PreTrainedModel
from transformers.modeling_outputs import ModelOutput

from .configuration_wan_transformer import WanTransformer3DModelConfig


@dataclass
class WanModelOutput(ModelOutput):
    loss: dict[str, torch.Tensor] | None = None
    predictions: list[torch.Tensor] | None = None


class _InitShim(_WanTransformer3DModel):
    """Keeps PreTrainedModel from building diffusers' default model first."""

    def __init__(self, *args, **kwargs):
        torch.nn.Module.__init__(self)


'''
PROPERTY = """\
    @property
    def config(self):
        return self._internal_dict

    @config.setter
    def config(self, value):
        self._internal_dict = value
"""
NO_PATCH = """

def apply_veomni_wan_transformer_patch():
    pass
"""
MODELING = "\n".join([_HEAD + ATTRIBUTES, INIT, PROPERTY, FORWARD, SAVING, LOADING]) + NO_PATCH
"""`wan_transformer/modeling_wan_transformer.py`."""

PATCHED = """\
from diffusers.models.modeling_outputs import Transformer2DModelOutput
from diffusers import WanTransformer3DModel as _WanTransformer3DModel

from .....distributed.parallel_state import get_parallel_state
from .....distributed.sequence_parallel import gather_outputs, slice_input_tensor


def WanTransformer3DModel_forward(
    self,
    hidden_states,
    timestep,
    encoder_hidden_states,
    encoder_hidden_states_image=None,
    return_dict=True,
    attention_kwargs=None,
):
    cos, sin = self.rope(hidden_states)
    tokens = self.patch_embedding(hidden_states).flatten(2).transpose(1, 2)
    temb, modulation, encoder_hidden_states, _ = self.condition_embedder(timestep, encoder_hidden_states, None)
    state = get_parallel_state()
    length = tokens.shape[1]
    if state.sp_enabled:
        tokens = slice_input_tensor(tokens, dim=1, group=state.sp_group)
        cos = slice_input_tensor(cos, dim=1, group=state.sp_group)
        sin = slice_input_tensor(sin, dim=1, group=state.sp_group)
    for block in self.blocks:
        tokens = self._gradient_checkpointing_func(block, tokens, encoder_hidden_states, modulation, (cos, sin))
    if state.sp_enabled:
        tokens = gather_outputs(tokens, gather_dim=1, group=state.sp_group)[:, :length]
    output = self.proj_out(self.norm_out(tokens))
    if not return_dict:
        return (output,)
    return Transformer2DModelOutput(sample=output)


def apply_veomni_wan_transformer_patch():
    _WanTransformer3DModel.forward = WanTransformer3DModel_forward
"""
"""`wan_transformer/parallel.py`: a forward of diffusers for sequences that several processes share."""
PARALLEL = "wan_transformer/parallel.py"
WITH_PATCH = REGISTERS.replace(
    "import WanTransformer3DModel, apply_veomni_wan_transformer_patch",
    "import WanTransformer3DModel\n    from .parallel import apply_veomni_wan_transformer_patch",
)
"""`wan_transformer/__init__.py` of a model whose patch is in a file of its own."""

PROCESSOR = """\
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS


class WanSPAttnProcessor:
    def __init__(self, attn_implementation):
        self.attn_implementation = attn_implementation

    def __call__(self, attn, hidden_states, encoder_hidden_states=None, attention_mask=None, rotary_emb=None):
        crossing = encoder_hidden_states is not None
        context = encoder_hidden_states if crossing else hidden_states
        query = attn.norm_q(attn.to_q(hidden_states)).unflatten(2, (attn.heads, -1))
        key = attn.norm_k(attn.to_k(context)).unflatten(2, (attn.heads, -1))
        value = attn.to_v(context).unflatten(2, (attn.heads, -1))
        attend = ALL_ATTENTION_FUNCTIONS[self.attn_implementation]
        mixed, _ = attend(
            self,
            query.transpose(1, 2),
            key.transpose(1, 2),
            value.transpose(1, 2),
            attention_mask=attention_mask,
            dropout=0.0,
            is_causal=False,
            skip_ulysses=crossing,
        )
        return attn.to_out[0](mixed.flatten(2, 3))
"""
"""`wan_transformer/attention.py`."""
ATTENTION = "wan_transformer/attention.py"

NORMALIZE = """\
    def _normalize_latents(self, latents):
        mean = torch.tensor(self.vae.config.latents_mean).view(1, -1, 1, 1, 1).to(latents)
        std = torch.tensor(self.vae.config.latents_std).view(1, -1, 1, 1, 1).to(latents)
        return (latents - mean) / std
"""
PROCESS = """\
    def process_condition(self, latents, context):
        inputs = {"hidden_states": [], "timestep": [], "encoder_hidden_states": []}
        inputs |= {"training_target": [], "latents": []}
        for sample, embeds in zip(latents, context):
            clean = self._normalize_latents(DiagonalGaussianDistribution(sample).mode())
            noise = torch.randn(clean.shape, generator=self.generator, device=self.generator.device)
            index = torch.randint(0, len(self.scheduler.timesteps), (1,), generator=self.generator)
            timestep = self.scheduler.timesteps[index]
            inputs["hidden_states"].append(self.scheduler.scale_noise(clean, timestep, noise))
            inputs["timestep"].append(timestep)
            inputs["encoder_hidden_states"].append(embeds)
            inputs["training_target"].append(noise - clean)
            inputs["latents"].append(clean)
        return inputs
"""
CONSTRUCTOR = """\
    def __init__(self, config, meta_init=False, **kwargs):
        super().__init__(config, **kwargs)
        self.scheduler = FlowMatchEulerDiscreteScheduler.from_pretrained(config.base_model_path, subfolder="scheduler")
        self.vae = self.text_encoder = None
        self.generator = torch.Generator(device=get_device_type())
        self.generator.manual_seed(config.seed + get_parallel_state().dp_rank)
        if not meta_init:
            self.vae = AutoencoderKLWan.from_pretrained(config.base_model_path, subfolder="vae")
            self.text_encoder = UMT5EncoderModel.from_pretrained(config.base_model_path, subfolder="text_encoder")
"""
GET = """\
    @torch.no_grad()
    def get_condition(self, inputs, videos, **kwargs):
        context = [self._encode(prompt) for prompt in inputs]
        latents = [self.vae.encode(video[0]).latent_dist.parameters for video in videos]
        return {"latents": latents, "context": context}
"""
_CONDITION_HEAD = """\
import torch
from diffusers import AutoencoderKLWan, FlowMatchEulerDiscreteScheduler
from diffusers.models.autoencoders.vae import DiagonalGaussianDistribution
from transformers import PreTrainedModel, UMT5EncoderModel

from .....distributed.parallel_state import get_parallel_state
from .....utils.device import get_device_type
from .configuration_wan_condition import WanTransformer3DConditionModelConfig


class WanTransformer3DConditionModel(PreTrainedModel):
    config_class = WanTransformer3DConditionModelConfig

"""
CONDITIONS = _CONDITION_HEAD + "\n".join([CONSTRUCTOR, GET, NORMALIZE, PROCESS])
"""`wan_condition/modeling_wan_condition.py`."""
CONDITION_CONFIGURATION = """\
from transformers import PretrainedConfig


class WanTransformer3DConditionModelConfig(PretrainedConfig):
    model_type = "WanTransformer3DConditionModel"

    def __init__(self, base_model_path="", num_train_timesteps=1000, seed=42, **kwargs):
        self.base_model_path = base_model_path
        self.num_train_timesteps = num_train_timesteps
        self.seed = seed
        super().__init__(**kwargs)

    @classmethod
    def get_config_dict(cls, pretrained_model_name_or_path, **kwargs):
        values, kwargs = super().get_config_dict(pretrained_model_name_or_path, **kwargs)
        values["base_model_path"] = pretrained_model_name_or_path
        return values, kwargs
"""
"""`wan_condition/configuration_wan_condition.py`."""
