"""The config of the condition model: where QwenImagePipeline is, and the arguments of its call."""

from transformers import PretrainedConfig


class QwenImageConditionConfig(PretrainedConfig):
    """Trainers make it from `model.condition_model_path` and `model.condition_model_cfg`."""

    model_type = "QwenImageTransformer2DModelCondition"

    def __init__(
        self,
        base_model_path: str = "",
        scheduler_subfolder: str = "scheduler",
        vae_subfolder: str = "vae",
        text_encoder_subfolder: str = "text_encoder",
        tokenizer_subfolder: str = "tokenizer",
        torch_dtype_of_encoders: str = "bfloat16",
        num_train_timesteps: int = 1000,
        guidance_scale: float = 1.0,
        max_sequence_length: int | None = None,
        seed: int | None = 42,
        **kwargs,
    ):
        self.base_model_path = base_model_path
        self.scheduler_subfolder = scheduler_subfolder
        self.vae_subfolder = vae_subfolder
        self.text_encoder_subfolder = text_encoder_subfolder
        self.tokenizer_subfolder = tokenizer_subfolder
        self.torch_dtype_of_encoders = torch_dtype_of_encoders
        self.num_train_timesteps = num_train_timesteps
        self.guidance_scale = guidance_scale
        self.max_sequence_length = max_sequence_length
        self.seed = seed
        super().__init__(**kwargs)

    @classmethod
    def get_config_dict(cls, pretrained_model_name_or_path, **kwargs):
        """A pipeline's root has no config.json, so only its path is known."""
        try:
            values, kwargs = super().get_config_dict(pretrained_model_name_or_path, **kwargs)
        except OSError:
            values = {}
        values["base_model_path"] = str(pretrained_model_name_or_path)
        return values, kwargs
