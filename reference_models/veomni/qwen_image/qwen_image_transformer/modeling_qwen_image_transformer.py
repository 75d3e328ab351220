"""QwenImageTransformer2DModel as VeOmni trains it: sample by sample, with a loss."""

import copy
import json
from collections.abc import Iterator
from dataclasses import dataclass
from types import MethodType
from typing import Any

import torch
import torch.nn.functional as F
from diffusers import QwenImageTransformer2DModel as _QwenImageTransformer2DModel
from torch.distributed.fsdp import FSDPModule
from transformers import PreTrainedModel
from transformers.modeling_outputs import ModelOutput

from .attention import use_veomni_attention
from .configuration_qwen_image_transformer import QwenImageTransformerConfig
from .sequence_parallel import SequenceShare


@dataclass
class QwenImageOutput(ModelOutput):
    """Losses by name, each a scalar, and the prediction for every sample."""

    loss: dict[str, torch.Tensor] | None = None
    predictions: list[torch.Tensor] | None = None


class _InitShim(_QwenImageTransformer2DModel):
    """Stands between two constructors: that of PreTrainedModel calls the next one without arguments.

    It would build a model of diffusers' default size, and throw it away.
    """

    def __init__(self, *args, **kwargs):
        torch.nn.Module.__init__(self)


class QwenImageTransformer2DModel(PreTrainedModel, _InitShim):
    """Reads and writes what diffusers reads and writes; its name is upstream's, because diffusers saves it."""

    config_class = QwenImageTransformerConfig
    supports_gradient_checkpointing = True
    # PreTrainedModel's own None would hide diffusers' list, and FSDP would wrap no block.
    _no_split_modules = ["QwenImageTransformerBlock"]
    _supports_sdpa = True
    _supports_flash_attn = True

    def __init__(self, config: QwenImageTransformerConfig, **kwargs):
        PreTrainedModel.__init__(self, config, **kwargs)
        del self._internal_dict  # diffusers would add its config to this one
        _QwenImageTransformer2DModel.__init__(self, **config.to_diffuser_dict())
        self._become(config)

    def _become(self, config: QwenImageTransformerConfig) -> None:
        """What makes a model that diffusers built one of VeOmni's."""
        self.config = config
        self.config.tie_word_embeddings = False
        self._share = SequenceShare(self, _QwenImageTransformer2DModel._cp_plan)
        use_veomni_attention(self, config._attn_implementation, self._share)
        if config.compile_blocks:
            self.compile_blocks()

    def compile_blocks(self) -> None:
        """Compile the forward of every block: FSDP's hooks stay outside, and blocks of one class share their graphs."""
        for block in self.modules():
            if type(block).__name__ in self._no_split_modules:
                block.forward = MethodType(torch.compile(type(block).forward), block)

    @property
    def config(self):
        return self._internal_dict

    @config.setter
    def config(self, value):
        self._internal_dict = value

    def forward(
        self,
        hidden_states,
        encoder_hidden_states=None,
        encoder_hidden_states_mask=None,
        timestep=None,
        img_shapes=None,
        txt_seq_lens=None,
        guidance=None,
        attention_kwargs=None,
        controlnet_block_samples=None,
        additional_t_cond=None,
        training_target=None,
        latents=None,
    ) -> QwenImageOutput:
        """Each argument is a list with an entry for every sample, whose sizes may differ.

        Without targets there are predictions only. `latents`, the clean ones, are taken and not needed.
        """
        given = {
            "hidden_states": hidden_states,
            "encoder_hidden_states": encoder_hidden_states,
            "encoder_hidden_states_mask": encoder_hidden_states_mask,
            "timestep": timestep,
            "img_shapes": img_shapes,
            "txt_seq_lens": txt_seq_lens,
            "guidance": guidance,
            "attention_kwargs": attention_kwargs,
            "controlnet_block_samples": controlnet_block_samples,
            "additional_t_cond": additional_t_cond,
        }
        given = {name: values for name, values in given.items() if values is not None}
        samples = [{name: values[i] for name, values in given.items()} for i in range(len(hidden_states))]
        predictions = [self._predict(sample) for sample in samples]
        if training_target is None:
            return QwenImageOutput(predictions=predictions)
        losses = [_loss(prediction, target) for prediction, target in zip(predictions, training_target, strict=True)]
        return QwenImageOutput(loss={"mse_loss": torch.stack(losses).mean()}, predictions=predictions)

    @property
    def dtype(self) -> torch.dtype:
        """That of the weights; diffusers' own walks through every module for it."""
        return next(one.dtype for one in self.parameters() if one.is_floating_point())

    def _predict(self, sample: dict[str, Any]) -> torch.Tensor:
        """diffusers' own forward for one sample."""
        if not isinstance(self, FSDPModule):  # which casts by itself
            sample = {name: _cast(value, self.dtype) for name, value in sample.items()}
        sample = self._share.begin(sample)
        answer = _QwenImageTransformer2DModel.forward(self, **sample, return_dict=False)
        tensors = list(_tensors(answer))
        return tensors[0] if len(tensors) == 1 else torch.cat([tensor.flatten() for tensor in tensors])[None]

    def save_pretrained(self, save_directory, **kwargs):
        """diffusers' own; its config for as long as that takes."""
        config = copy.deepcopy(self.config)
        self.config = self.config.to_diffuser_dict()
        try:
            _QwenImageTransformer2DModel.save_pretrained(self, save_directory, **kwargs)
        finally:
            self.config = config

    def to_json_string(self) -> str:
        """config.json as diffusers writes it, with upstream's class whatever this one is called."""
        values = json.loads(_QwenImageTransformer2DModel.to_json_string(self))
        values["_class_name"] = _QwenImageTransformer2DModel.__name__
        return json.dumps(values, indent=2, sort_keys=True) + "\n"

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path, **kwargs):
        """diffusers' own; what it built becomes this class."""
        model = _QwenImageTransformer2DModel.from_pretrained(pretrained_model_name_or_path, **kwargs)
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
