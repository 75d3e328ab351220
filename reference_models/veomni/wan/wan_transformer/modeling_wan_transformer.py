"""WanTransformer3DModel as VeOmni trains it: sample by sample, with a loss."""

import copy
import json
from collections.abc import Iterator
from dataclasses import dataclass
from types import MethodType
from typing import Any

import torch
import torch.nn.functional as F
from diffusers import WanTransformer3DModel as _WanTransformer3DModel
from torch.distributed.fsdp import FSDPModule
from transformers import PreTrainedModel
from transformers.modeling_outputs import ModelOutput
from veomni.distributed.parallel_state import get_parallel_state

from .attention import use_veomni_attention
from .configuration_wan_transformer import WanTransformerConfig
from .sequence_parallel import SequenceShare


@dataclass
class WanOutput(ModelOutput):
    """Losses by name, each a scalar, and the prediction for every sample."""

    loss: dict[str, torch.Tensor] | None = None
    predictions: list[torch.Tensor] | None = None


class _InitShim(_WanTransformer3DModel):
    """Stands between two constructors: that of PreTrainedModel calls the next one without arguments.

    It would build a model of diffusers' default size, and throw it away.
    """

    def __init__(self, *args, **kwargs):
        torch.nn.Module.__init__(self)


class WanTransformer3DModel(PreTrainedModel, _InitShim):
    """Reads and writes what diffusers reads and writes; its name is upstream's, because diffusers saves it."""

    config_class = WanTransformerConfig
    supports_gradient_checkpointing = True
    # PreTrainedModel's own None would hide diffusers' list, and FSDP would wrap no block.
    _no_split_modules = ["WanTransformerBlock"]
    _keep_in_fp32_modules = _WanTransformer3DModel._keep_in_fp32_modules  # which PreTrainedModel's None would hide, too
    _supports_sdpa = True
    _supports_flash_attn = True

    def __init__(self, config: WanTransformerConfig, **kwargs):
        PreTrainedModel.__init__(self, config, **kwargs)
        del self._internal_dict  # diffusers would add its config to this one
        _WanTransformer3DModel.__init__(self, **config.to_diffuser_dict())
        self._keep_in_float32()
        self._become(config)

    def _become(self, config: WanTransformerConfig) -> None:
        """What makes a model that diffusers built one of VeOmni's."""
        self.config = config
        self.config.tie_word_embeddings = False
        self._share = SequenceShare(self, _WanTransformer3DModel._cp_plan)
        use_veomni_attention(self, config._attn_implementation, self._share)
        if config.compile_blocks:
            self.compile_blocks()

    def compile_blocks(self) -> None:
        """Compile the forward of every block: FSDP's hooks stay outside, and blocks of one class share their graphs."""
        for block in self.modules():
            if type(block).__name__ in self._no_split_modules:
                block.forward = MethodType(torch.compile(type(block).forward), block)

    def _keep_in_float32(self) -> None:
        """Cast what diffusers loads in float32 whatever the dtype of the others.

        FSDP2 shards parameters of one dtype only: there the model has that of the others throughout.
        """
        state = get_parallel_state()
        if state.dp_mode == "fsdp2" and state.fsdp_enabled:
            return
        for name, tensor in self.state_dict(keep_vars=True).items():
            if tensor.is_floating_point() and not set(name.split(".")).isdisjoint(self._keep_in_fp32_modules):
                tensor.data = tensor.data.float()

    @property
    def config(self):
        return self._internal_dict

    @config.setter
    def config(self, value):
        self._internal_dict = value

    def forward(
        self,
        hidden_states,
        timestep,
        encoder_hidden_states,
        encoder_hidden_states_image=None,
        attention_kwargs=None,
        training_target=None,
        latents=None,
    ) -> WanOutput:
        """Each argument is a list with an entry for every sample, whose sizes may differ.

        Without targets there are predictions only. `latents`, the clean ones, are taken and not needed.
        """
        given = {
            "hidden_states": hidden_states,
            "timestep": timestep,
            "encoder_hidden_states": encoder_hidden_states,
            "encoder_hidden_states_image": encoder_hidden_states_image,
            "attention_kwargs": attention_kwargs,
        }
        given = {name: values for name, values in given.items() if values is not None}
        samples = [{name: values[i] for name, values in given.items()} for i in range(len(hidden_states))]
        predictions = [self._predict(sample) for sample in samples]
        if training_target is None:
            return WanOutput(predictions=predictions)
        losses = [_loss(prediction, target) for prediction, target in zip(predictions, training_target, strict=True)]
        return WanOutput(loss={"mse_loss": torch.stack(losses).mean()}, predictions=predictions)

    @property
    def dtype(self) -> torch.dtype:
        """That of the modules that are not kept in float32; diffusers' own walks through every module for it."""
        floats = ((name, one.dtype) for name, one in self.named_parameters() if one.is_floating_point())
        found = (dtype for name, dtype in floats if not any(part in name for part in self._keep_in_fp32_modules))
        return next(found, torch.float32)

    def _predict(self, sample: dict[str, Any]) -> torch.Tensor:
        """diffusers' own forward for one sample."""
        if not isinstance(self, FSDPModule):  # which casts by itself
            sample = {name: _cast(value, self.dtype) for name, value in sample.items()}
        sample = self._share.begin(sample)
        answer = _WanTransformer3DModel.forward(self, **sample, return_dict=False)
        tensors = list(_tensors(answer))
        return tensors[0] if len(tensors) == 1 else torch.cat([tensor.flatten() for tensor in tensors])[None]

    def save_pretrained(self, save_directory, **kwargs):
        """diffusers' own; its config for as long as that takes."""
        config = copy.deepcopy(self.config)
        self.config = self.config.to_diffuser_dict()
        try:
            _WanTransformer3DModel.save_pretrained(self, save_directory, **kwargs)
        finally:
            self.config = config

    def to_json_string(self) -> str:
        """config.json as diffusers writes it, with upstream's class whatever this one is called."""
        values = json.loads(_WanTransformer3DModel.to_json_string(self))
        values["_class_name"] = _WanTransformer3DModel.__name__
        return json.dumps(values, indent=2, sort_keys=True) + "\n"

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path, **kwargs):
        """diffusers' own; what it built becomes this class."""
        model = _WanTransformer3DModel.from_pretrained(pretrained_model_name_or_path, **kwargs)
        config = cls.config_class(**{name: value for name, value in model.config.items() if not name.startswith("_")})
        model.__class__ = cls
        model._become(config)
        return model


def _cast(value, dtype: torch.dtype):
    """Return features in the dtype of the weights; vectors, such as timesteps, keep their precision."""
    if isinstance(value, list):
        return [_cast(one, dtype) for one in value]
    features = isinstance(value, torch.Tensor) and value.is_floating_point() and value.dim() > 1
    return value.to(dtype) if features else value


def _tensors(answer) -> Iterator[torch.Tensor]:
    """The tensors of an output, in order; several, such as video and sound, are trained as one row."""
    if isinstance(answer, torch.Tensor):
        yield answer
    elif isinstance(answer, (list, tuple)):
        for one in answer:
            yield from _tensors(one)


def _loss(prediction: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """The mean squared error of one sample, in float32."""
    return F.mse_loss(prediction.float(), target.float())
