# ruff: noqa: E501
"""Each rule on plugins that break it and on plugins that keep it, each written differently."""

from omni_checkers.sglang_diffusion.examples import (
    ARCH,
    CONFIG,
    DIT,
    PACKAGE,
    PIPELINE,
    README,
    SAMPLING,
    STAGE,
    changed,
    with_record,
)
from tests.checkers.edited import Pair, Variant


def _broken(rule: str, name: str, file: str, *pairs: Pair) -> Variant:
    return Variant(rule, True, name, changed(file, *pairs))


def _fine(rule: str, name: str, file: str, *pairs: Pair) -> Variant:
    return Variant(rule, False, name, changed(file, *pairs))


def _collecting(condition: str) -> dict[str, str]:
    """A loop with that condition where new-model wrote a comprehension with `value is not None`."""
    made = "return {name: value for name, value in self.known.items() if value is not None}"
    loop = f"found = {{}}\n        for name, value in self.known.items():\n            if {condition}:\n                found[name] = value\n        return found"
    return with_record(
        changed(CONFIG, ("return batch.prompt_embeds[0]", loop)),
        changed(CONFIG, ("return batch.prompt_embeds[0]", made)),
    )


def _autocast(broken: bool, name: str, value: str, base: str = "QwenImageTransformer2DModel") -> Variant:
    """A denoiser of diffusers' class, and a config with a line; none where it is empty."""
    dit = changed(
        DIT, ("class QwenDiT(BaseDiT)", f"class QwenDiT(BaseDiT, {base.rpartition('.')[2]})"),
        ("from torch import nn\n", f"from diffusers import {base}\nfrom torch import nn\n"),
    )  # fmt: skip
    config = changed(CONFIG, ('vae_precision: str = "bf16"', f'vae_precision: str = "bf16"\n    {value}'))
    return Variant("SGD306", broken, name, {**dit, **config} if value else dit)


_REGISTER = ("\nregister()\n", "\n")
_MODEL = 'ModelRegistry.register_model("QwenDiT", QwenDiT)\n'
_ARCH_FIELD = "arch_config: DiTArchConfig = field(default_factory=QwenArchConfig)"
_HIDDEN = "        self.hidden_size = self.num_attention_heads * self.attention_head_dim\n"
_POS = "def prepare_pos_cond_kwargs(self, batch, device, rotary_emb, dtype)"
_NEG_RETURN = 'return {"freqs_cis": rotary_emb(batch.height, batch.width, device=device)}\n\n    def get_decode'
_RETURN = 'return {"freqs_cis": rotary_emb(batch.height, batch.width, device=device)}'
_SCALE = "return scale, mean"
_DECODE = "def get_decode_scale_and_shift(self, device, dtype, vae)"
_MASKED = "            attention_mask=tokens.attention_mask,\n"
_EMBEDS = "batch.prompt_embeds = [embeds]"
_STEPS = "batch.timesteps = timesteps\n"
_GRID = "np.linspace(1.0, 1 / steps, steps)"
_SET = "retrieve_timesteps(self.scheduler, steps, device, sigmas=sigmas, mu=mu)"
_USP = "USPAttention(num_heads=heads, head_size=head_dim)"
_SELF = "def forward(self, x, freqs_cis):\n        q, k, v = self.to_qkv(x)[0].unflatten(-1, (self.heads, -1)).chunk(3, dim=-1)"
_STEP = "        timestep = (timestep / 1000).to(hidden_states.dtype)\n"

_ZERO = ("    zero_cond_t: bool = False\n", "")
_ARCH = "        arch = config.arch_config\n"

VARIANTS = [
    _broken("SGD101", "nobody calls register", PACKAGE, _REGISTER),
    _broken("SGD101", "a keyword that is gone", CONFIG, ("overwrite=True,", 'overwrite=True,\n        name="qwen",')),
    _broken("SGD101", "configs alone", CONFIG, ("register_pipeline(\n        QwenPipeline,\n        overwrite=True,", "register_configs("), ("import register_pipeline", "import register_configs")),
    _broken("SGD101", "the denoiser is not registered", PACKAGE, (_MODEL, "")),
    _fine("SGD101", "registered by a name of a module", PACKAGE, (_MODEL, 'ModelRegistry.register_model("QwenDiT", "qwen.dit:QwenDiT")\n')),
    _fine("SGD101", "by way of another function", PACKAGE, ("\nregister()\n", "\n\ndef start():\n    register()\n\n\nstart()\n")),
    _fine("SGD101", "the pipeline by keyword", CONFIG, ("        QwenPipeline,\n", "        pipeline_cls=QwenPipeline,\n")),
    _broken("SGD102", "no tokenizer", PIPELINE, ('        "tokenizer",\n', "")),
    _broken("SGD102", "another name", PIPELINE, ('        "vae",\n', '        "autoencoder",\n')),
    _broken("SGD102", "a stage asks for more", PIPELINE, ('self.get_module("tokenizer")', 'self.get_module("tokenizer_2")')),
    _fine("SGD102", "another order", PIPELINE, ('        "text_encoder",\n        "tokenizer",\n', '        "tokenizer",\n        "text_encoder",\n')),
    _fine("SGD102", "what may be absent", PIPELINE, ('self.get_module("tokenizer")', 'self.get_module("tokenizer"), self.get_module("image_encoder", None)')),
    _fine("SGD102", "added by the pipeline", PIPELINE, ("    def create_pipeline_stages", '    def load_modules(self, server_args, loaded_modules=None):\n        modules = super().load_modules(server_args, loaded_modules)\n        modules["refiner"] = None\n        return modules\n\n    def create_pipeline_stages'), ('self.get_module("tokenizer")', 'self.get_module("tokenizer"), self.get_module("refiner")')),
    _broken("SGD103", "a dict in a lambda", ARCH, (_ARCH_FIELD, "arch_config: dict = field(default_factory=lambda: {'num_layers': 2})")),
    _broken("SGD103", "a namespace", ARCH, (_ARCH_FIELD, "arch_config: object = field(default_factory=lambda: SimpleNamespace(num_layers=2))")),
    _broken("SGD103", "no decorator", ARCH, ("@dataclass\nclass QwenArchConfig", "class QwenArchConfig")),
    _broken("SGD103", "no annotation", SAMPLING, ("num_inference_steps: int = 50", "num_inference_steps = 50")),
    _fine("SGD103", "the decorator is called", ARCH, ("@dataclass\nclass QwenArchConfig", "@dataclass(kw_only=True)\nclass QwenArchConfig")),
    _fine("SGD103", "a factory that calls", ARCH, (_ARCH_FIELD, "arch_config: DiTArchConfig = field(default_factory=lambda: QwenArchConfig(num_layers=2))")),
    _fine("SGD103", "a class attribute of its own", CONFIG, ('    vae_precision: str = "bf16"', '    vae_precision: str = "bf16"\n    known_as = "qwen"')),
    _broken("SGD106", "no field", ARCH, ("    axes_dims_rope: tuple[int, int, int] = (16, 56, 56)\n", "")),
    _broken("SGD106", "a name of its own", ARCH, ("    patch_size: int = 2\n", "    patch: int = 2\n")),
    _broken("SGD106", "another default in a factory", ARCH, ("axes_dims_rope: tuple[int, int, int] = (16, 56, 56)", "axes_dims_rope: list = field(default_factory=lambda: [16, 16, 32])")),
    _fine("SGD106", "a list of the same", ARCH, ("axes_dims_rope: tuple[int, int, int] = (16, 56, 56)", "axes_dims_rope: list = field(default_factory=lambda: [16, 56, 56])")),
    _fine("SGD106", "the default in field", ARCH, ("num_layers: int = 60", "num_layers: int = field(default=60)")),
    _fine("SGD106", "in a base of its own", ARCH, ("@dataclass\nclass QwenArchConfig(DiTArchConfig):\n    patch_size: int = 2\n", "@dataclass\nclass Patched(DiTArchConfig):\n    patch_size: int = 2\n\n\n@dataclass\nclass QwenArchConfig(Patched):\n")),
    Variant("SGD602", True, "a statement is gone", with_record(changed(STAGE, ("        batch.prompt_embeds_mask = [mask]\n", "")))),
    Variant("SGD602", True, "a statement was added", with_record(changed(STAGE, ("        batch.latents = latents\n", "        latents = latents / 2\n        batch.latents = latents\n")))),
    Variant("SGD602", True, "arguments changed places", with_record(changed(DIT, ("torch.cat([encoder_hidden_states, hidden_states]", "torch.cat([hidden_states, encoder_hidden_states]")))),
    Variant("SGD602", True, "another default of an argument", with_record(changed(DIT, ("guidance=None, freqs_cis=None", "guidance=1.0, freqs_cis=None")))),
    Variant("SGD602", True, "another field", with_record(changed(CONFIG, ('vae_precision: str = "bf16"', 'vae_precision: str = "fp16"')))),
    Variant("SGD602", False, "layout, comments and texts", with_record(changed(STAGE, ('"""Everything before the first step."""', '"""Before."""\n\n# by hand'), ("        batch.latents = latents\n", "        batch.latents = (\n            latents  # noise\n        )\n")))),
    Variant("SGD602", False, "a method of one's own", with_record(changed(DIT, ("    def forward(self, hidden_states,", "    def mine(self):\n        return 1\n\n    def forward(self, hidden_states,")))),
    Variant("SGD602", False, "a class of another name", with_record(changed(DIT, ("QwenAttention", "JointAttention")))),
    Variant("SGD602", False, "a class of another name in two files", with_record({**changed(STAGE, ("QwenBeforeDenoisingStage", "Preparation")), **changed(PIPELINE, ("QwenBeforeDenoisingStage", "Preparation"))})),
    Variant("SGD602", True, "a class of another name that does something else", with_record(changed(DIT, ("QwenAttention", "JointAttention"), ("x = x + timestep", "x = x - timestep")))),
    Variant("SGD602", True, "a method of another name, which SGLang calls", with_record(changed(STAGE, ("    def forward(self, batch", "    def run(self, batch")))),
    Variant("SGD602", False, "a value with a name that is returned at once", with_record(changed(CONFIG, ("        return batch.prompt_embeds[0]\n", "        first = batch.prompt_embeds[0]\n        return first\n")))),
    Variant("SGD602", False, "a comprehension as a loop", _collecting("value is not None")),
    Variant("SGD602", True, "a loop that selects something else", _collecting("value is None")),
    Variant("SGD602", False, "no record", changed(DIT, ("(timestep / 1000)", "(timestep / 1000.0)"))),
    Variant("SGD603", True, "no table", {README: "# Qwen\n"}),
    Variant("SGD603", True, "another argument alone", {README: "# Qwen\n\n| `timesteps` | `None` |\n"}),
    Variant("SGD603", True, "named in a sentence without marks", {README: "# Qwen takes its own sigmas.\n"}),
    Variant("SGD603", False, "no README", {}),
    Variant("SGD603", False, "listed", {README: "| argument | stays |\n|---|---|\n| `sigmas` | `None` |\n"}),
    Variant("SGD603", False, "passed from the request", {README: "# Qwen\n", **changed(STAGE, ("        sigmas = np.linspace(1.0, 1 / steps, steps)\n", "        sigmas = batch.sigmas\n"))}),
    Variant("SGD603", False, "a field of SamplingParams", {README: "# Qwen\n", **changed(SAMPLING, ("    num_frames: int = 1\n", "    num_frames: int = 1\n    sigmas: list | None = None\n"))}),
    Variant("SGD106", True, "only an attribute of something else has that name", {**changed(ARCH, _ZERO), **changed(DIT, (_ARCH, "        arch = config.arch_config\n        self.zero_cond_t = False\n"), (_STEP, _STEP + "        assert not self.zero_cond_t\n"))}),
    Variant("SGD106", True, "read of the config without a default", {**changed(ARCH, _ZERO), **changed(DIT, (_ARCH, '        arch = config.arch_config\n        self.zero = getattr(arch, "zero_cond_t")\n'))}),
    Variant("SGD106", False, "read of the config with a default", {**changed(ARCH, _ZERO), **changed(DIT, (_ARCH, '        arch = config.arch_config\n        self.zero = getattr(arch, "zero_cond_t", False)\n'))}),
    Variant("SGD106", False, "read of config.json with a default", {**changed(ARCH, _ZERO), **changed(DIT, (_ARCH, '        arch = config.arch_config\n        self.zero = hf_config.get("zero_cond_t", False)\n'))}),
    _broken("SGD104", "a plain module", DIT, ("class QwenDiT(BaseDiT)", "class QwenDiT(nn.Module)")),
    _broken("SGD104", "its own arguments", DIT, ("def __init__(self, config, hf_config, quant_config=None, **kwargs)", "def __init__(self, config, num_layers, **kwargs)")),
    _broken("SGD104", "no heads", ARCH, ("    num_attention_heads: int = 24\n", "")),
    _broken("SGD104", "no width", ARCH, (_HIDDEN, ""), ("    attention_head_dim: int = 128\n", "")),
    _fine("SGD104", "only keywords", DIT, ("def __init__(self, config, hf_config, quant_config=None, **kwargs)", "def __init__(self, config, hf_config=None, **kwargs)")),
    _fine("SGD104", "width as a field", ARCH, (_HIDDEN, ""), ("    attention_head_dim: int = 128\n", ""), ("patch_size: int = 2", "patch_size: int = 2\n    hidden_size: int = 3072")),
    _fine("SGD104", "the width of a head", ARCH, (_HIDDEN, "")),
    _fine("SGD104", "width as a property", ARCH, (_HIDDEN, ""), ("    attention_head_dim: int = 128\n", ""), ("    def __post_init__", "    @property\n    def hidden_size(self):\n        return 3072\n\n    def __post_init__")),
    _broken("SGD105", "no arguments", CONFIG, (_DECODE, "def get_decode_scale_and_shift(self)")),
    _broken("SGD105", "the guide's callback", CONFIG, (_POS, "def prepare_pos_cond_kwargs(self, batch, latent_model_input, t, **kwargs)")),
    _broken("SGD105", "one argument more", CONFIG, (_POS, "def prepare_pos_cond_kwargs(self, batch, device, rotary_emb, dtype, step)")),
    _broken("SGD105", "a name that is spelled out", CONFIG, (_POS, "def prepare_pos_cond_kwargs(self, batch, device, rotary_emb, target_dtype)")),
    _fine("SGD105", "anything goes", CONFIG, (_DECODE, "def get_decode_scale_and_shift(self, *args, device=None, dtype=None)")),
    _fine("SGD105", "more with a default", CONFIG, (_POS, "def prepare_pos_cond_kwargs(self, batch, device, rotary_emb, dtype, step=None)")),
    _fine("SGD105", "another name by position", CONFIG, (_DECODE, "def get_decode_scale_and_shift(self, device, dtype, autoencoder)")),
    _broken("SGD201", "no scheduler", STAGE, ("        batch.scheduler = self.scheduler\n", "")),
    _broken("SGD201", "no raw shape", STAGE, ("        batch.raw_latent_shape = latents.shape\n", "")),
    _broken("SGD201", "no generator", PIPELINE, ("        self.add_stage(InputValidationStage())\n", "")),
    _broken("SGD201", "no negative embeds", STAGE, ("            batch.negative_prompt_embeds = [negative]\n", "")),
    _fine("SGD201", "set by a helper", STAGE, ("        batch.scheduler = self.scheduler\n        return batch", "        self._schedule(batch)\n        return batch\n\n    def _schedule(self, req):\n        req.scheduler = self.scheduler")),
    _fine("SGD201", "by setattr", STAGE, ("batch.scheduler = self.scheduler", 'setattr(batch, "scheduler", self.scheduler)')),
    _fine("SGD201", "handed to code that is not read", STAGE, ("        batch.scheduler = self.scheduler\n", "        somewhere.schedule(batch)\n")),
    _broken("SGD202", "a misspelled field", STAGE, ("batch.negative_prompt_embeds = [negative]", "batch.neg_prompt_embeds = [negative]")),
    _broken("SGD202", "a misspelled setting", STAGE, ("batch.num_inference_steps\n", "batch.inference_steps\n")),
    _broken("SGD202", "in a callback", CONFIG, ("return batch.prompt_embeds[0]", "return batch.prompt_embedding[0]")),
    _fine("SGD202", "asked for with a default", STAGE, ("batch.num_inference_steps\n", 'getattr(batch, "my_steps", 50)\n')),
    _fine("SGD202", "set and read", STAGE, ("        batch.latents = latents\n", "        batch.noise_kept = latents\n        batch.latents = batch.noise_kept\n")),
    _fine("SGD202", "in extra", STAGE, ("        batch.latents = latents\n", '        batch.extra["noise"] = latents\n        batch.latents = latents\n')),
    _broken("SGD203", "another key", CONFIG, (_RETURN, 'return {"rotary": rotary_emb(batch.height, batch.width, device=device)}')),
    _broken("SGD203", "passed twice", CONFIG, (_RETURN, 'return dict(freqs_cis=None, timestep=batch.timesteps)')),
    _broken("SGD203", "put in afterwards", CONFIG, (_RETURN, 'found = {"freqs_cis": None}\n        found["img_shape"] = batch.height\n        return found')),
    _broken("SGD203", "only one branch", CONFIG, (_NEG_RETURN, 'return {"guidance_mask": None}\n\n    def get_decode')),
    _broken("SGD203", "swallowed", DIT, ("guidance=None, freqs_cis=None)", "guidance=None, **kwargs)"), ("block(x, freqs_cis)", "block(x, None)")),
    _broken("SGD203", "time by another name", DIT, ("encoder_hidden_states, timestep, guidance=None, freqs_cis=None)", "encoder_hidden_states, t=None, guidance=None, freqs_cis=None, **kwargs)"), ("(timestep / 1000)", "(t / 1000)")),
    _fine("SGD203", "read from kwargs", DIT, ("guidance=None, freqs_cis=None)", "guidance=None, **kwargs)"), ("block(x, freqs_cis)", 'block(x, kwargs["freqs_cis"])')),
    _fine("SGD203", "from a helper", CONFIG, (_RETURN, "return self._conditions(rotary_emb)"), ("    def prepare_pos_cond", '    def _conditions(self, rotary_emb):\n        return {"freqs_cis": rotary_emb}\n\n    def prepare_pos_cond')),
    _fine("SGD203", "joined", CONFIG, (_RETURN, 'return {} | {"freqs_cis": None}')),
    _broken("SGD204", "a tensor", STAGE, (_EMBEDS, "batch.prompt_embeds = embeds")),
    _broken("SGD204", "joined to a tensor", STAGE, (_EMBEDS, "joined = torch.cat([embeds], dim=1)\n        batch.prompt_embeds = joined")),
    _broken("SGD204", "the whole list", CONFIG, ("        return batch.prompt_embeds[0]", "        return batch.prompt_embeds")),
    _fine("SGD204", "a variable that is a list", STAGE, (_EMBEDS, "known = [embeds]\n        batch.prompt_embeds = known")),
    _fine("SGD204", "filled", STAGE, (_EMBEDS, "batch.prompt_embeds.append(embeds)")),
    _fine("SGD204", "a denoiser that takes lists", DIT, (_STEP, _STEP + "        if isinstance(encoder_hidden_states, list):\n            encoder_hidden_states = encoder_hidden_states[0]\n")),
    _broken("SGD205", "the same embeds", CONFIG, ("return batch.negative_prompt_embeds[0]", "return batch.prompt_embeds[0]")),
    _broken("SGD205", "exchanged", CONFIG, ("return batch.prompt_embeds[0]", "return batch.negative_prompt_embeds[0]")),
    _broken("SGD205", "the other mask", CONFIG, (_NEG_RETURN, 'embeds = batch.negative_prompt_embeds\n        return {"freqs_cis": embeds, "mask": batch.prompt_embeds_mask}\n\n    def get_decode')),
    _fine("SGD205", "a variable", CONFIG, ("return batch.negative_prompt_embeds[0]", "embeds = batch.negative_prompt_embeds\n        return embeds[0]")),
    _fine("SGD205", "one of both", CONFIG, ("return batch.negative_prompt_embeds[0]", "return (batch.negative_prompt_embeds or batch.prompt_embeds)[0]")),
    _fine("SGD205", "a size", CONFIG, (_NEG_RETURN, 'return {"freqs_cis": rotary_emb(batch.prompt_embeds[0].shape[1])}\n\n    def get_decode')),
    _broken("SGD301", "no mu", STAGE, (", mu=mu)", ")")),
    _broken("SGD301", "no sigmas", STAGE, ("sigmas=sigmas, ", "")),
    _broken("SGD301", "down to nothing", STAGE, (_GRID, "torch.linspace(1.0, 0.0, steps).tolist()")),
    _broken("SGD301", "one step off", STAGE, (_GRID, "[1.0 - (i + 1) / steps for i in range(steps)]")),
    _broken("SGD301", "shifted twice", STAGE, (_GRID, _GRID + "\n        shift = 3.0\n        sigmas = (shift * sigmas) / (1 + (shift - 1) * sigmas)")),
    _fine("SGD301", "as a list", STAGE, (_GRID, _GRID + ".tolist()")),
    _fine("SGD301", "counted", STAGE, (_GRID, "[1.0 - i / steps for i in range(steps)]")),
    _fine("SGD301", "the scheduler is asked itself", STAGE, (f"timesteps, steps = {_SET}", "self.scheduler.set_timesteps(sigmas=sigmas, mu=mu, device=device)\n        timesteps = self.scheduler.timesteps")),
    _broken("SGD302", "the deviation itself", CONFIG, ("scale = 1.0 / torch.tensor(arch.latents_std)", "scale = torch.tensor(arch.latents_std)")),
    _broken("SGD302", "exchanged", CONFIG, (_SCALE, "return mean, scale")),
    _broken("SGD302", "one over the factor", CONFIG, (_SCALE, "return 1 / arch.scaling_factor, None")),
    _broken("SGD302", "the mean taken away", CONFIG, (_SCALE, "return scale, -mean")),
    _broken("SGD302", "another convention", CONFIG, (_SCALE, "return arch.scaling_factor, None")),
    _broken("SGD302", "statistics of a norm", CONFIG, (_SCALE, "std = torch.sqrt(vae.bn.running_var.view(1, -1, 1, 1) + arch.batch_norm_eps)\n        return std, mean")),
    _fine("SGD302", "reciprocal", CONFIG, ("scale = 1.0 / torch.tensor(arch.latents_std)", "scale = torch.reciprocal(torch.tensor(arch.latents_std))")),
    _fine("SGD302", "in another order", CONFIG, (_SCALE, "found = (scale, mean)\n        return found")),
    _fine("SGD302", "by a helper", CONFIG, (_SCALE, "return _both(arch)"), ("def register():", "def _both(arch):\n    return 1 / torch.tensor(arch.latents_std), torch.tensor(arch.latents_mean)\n\n\ndef register():")),
    _broken("SGD303", "halves", DIT, ("is_neox_style=False", "is_neox_style=True")),
    _broken("SGD303", "a flag that nothing reads", DIT, ("def __init__(self, dim, heads, head_dim):", "def __init__(self, dim, heads, head_dim, rope_interleaved=True):")),
    _broken("SGD303", "a flag that is stored", DIT, ("        self.heads = heads\n", "        self.heads = heads\n        self.use_neox = False\n")),
    _fine("SGD303", "a flag that is handed on", DIT, ("def __init__(self, dim, heads, head_dim):", "def __init__(self, dim, heads, head_dim, neox=False):"), ("        self.heads = heads\n", "        self.heads = heads\n        self.neox = neox\n"), ("is_neox_style=False", "is_neox_style=self.neox")),
    _fine("SGD303", "by position", DIT, ("is_neox_style=False", "False")),
    _fine("SGD303", "no flag at all", DIT, (", is_neox_style=False", "")),
    _broken("SGD304", "whole numbers", STAGE, (_STEPS, "batch.timesteps = timesteps.long()\n")),
    _broken("SGD304", "16 bits", STAGE, (_STEPS, "batch.timesteps = timesteps.to(device, dtype=torch.bfloat16)\n")),
    _broken("SGD304", "on the way", STAGE, (_STEPS, "timesteps = timesteps.to(torch.int64)\n        batch.timesteps = timesteps\n")),
    _fine("SGD304", "moved", STAGE, (_STEPS, "batch.timesteps = timesteps.to(device)\n")),
    _fine("SGD304", "full precision", STAGE, (_STEPS, "batch.timesteps = timesteps.to(torch.float32)\n")),
    _fine("SGD304", "the scheduler's", STAGE, (_STEPS, "batch.timesteps = self.scheduler.timesteps\n")),
    _broken("SGD305", "fewer steps", SAMPLING, ("num_inference_steps: int = 50", "num_inference_steps: int = 30")),
    _broken("SGD305", "no guidance", SAMPLING, ("true_cfg_scale: float = 4.0", "true_cfg_scale: float = 1.0")),
    _broken("SGD305", "distilled with many steps", CONFIG, ('["Qwen/Qwen-Image"]', '["Qwen/Qwen-Image-Lightning"]')),
    _fine("SGD305", "as an integer", SAMPLING, ("true_cfg_scale: float = 4.0", "true_cfg_scale: float = 4")),
    _fine("SGD305", "distilled with few", SAMPLING, ("num_inference_steps: int = 50", "guidance_scale: float = 1.0\n    num_inference_steps: int = 4")),
    _fine("SGD305", "what cannot be told", SAMPLING, ("num_inference_steps: int = 50", "num_inference_steps: int = STEPS")),
    _autocast(True, "switched on", "enable_autocast: bool = True"),
    _autocast(True, "inherited", ""),
    _autocast(True, "of another class of diffusers", "enable_autocast: bool = True", "FluxTransformer2DModel"),
    _autocast(False, "switched off", "enable_autocast: bool = False"),
    _autocast(False, "a mixin of diffusers", "enable_autocast: bool = True", "ModelMixin"),
    _autocast(False, "what cannot be read", "enable_autocast: bool = bool(0)"),
    _fine("SGD306", "SGLang's own layers", CONFIG, ('vae_precision: str = "bf16"', 'vae_precision: str = "bf16"\n    enable_autocast: bool = True')),
    _broken("SGD401", "local attention", DIT, ("USPAttention", "LocalAttention")),
    _broken("SGD401", "torch's own", DIT, ("from sglang.multimodal_gen.runtime.layers.attention import USPAttention\n", ""), (f"self.attn = {_USP}", "self.attn = F.scaled_dot_product_attention")),
    _broken("SGD401", "heads that are not divided", DIT, ("import ReplicatedLinear", "import ColumnParallelLinear"), ("= ReplicatedLinear(", "= ColumnParallelLinear(")),
    _fine("SGD401", "divided", DIT, ("import ReplicatedLinear", "import ColumnParallelLinear"), ("= ReplicatedLinear(", "= ColumnParallelLinear("), ("        self.heads = heads\n", "        self.heads = divide(heads, get_tp_world_size())\n")),
    Variant("SGD401", False, "refused", {**changed(DIT, ("USPAttention", "LocalAttention")), **changed(CONFIG, ("    def get_pos_prompt_embeds", '    def validate_server_args(self, server_args):\n        if server_args.sp_degree > 1:\n            raise ValueError("one device")\n\n    def get_pos_prompt_embeds'))}),
    Variant("SGD401", False, "left whole", {**changed(DIT, ("USPAttention", "LocalAttention")), **changed(CONFIG, ("    def get_pos_prompt_embeds", "    def shard_latents_for_sp(self, batch, latents):\n        return latents, False\n\n    def get_pos_prompt_embeds"))}),
    _broken("SGD402", "keys of the prompt", DIT, (_SELF, "def forward(self, x, context, freqs_cis):\n        q, k, v = self.to_q(x), self.to_k(context), self.to_v(context)")),
    _broken("SGD402", "step by step", DIT, (_SELF, "def forward(self, x, text, freqs_cis):\n        q = self.to_q(x)\n        both = self.to_kv(text)\n        k, v = both.chunk(2, dim=-1)")),
    _broken("SGD402", "with a norm", DIT, (_SELF, "def forward(self, x, text, freqs_cis):\n        q = self.norm(self.to_q(x))\n        k = self.norm(self.to_k(self.project(text)))\n        v = k")),
    _fine("SGD402", "said so", DIT, (_SELF, "def forward(self, x, context, freqs_cis):\n        q, k, v = self.to_q(x), self.to_k(context), self.to_v(context)"), (_USP, "USPAttention(num_heads=heads, head_size=head_dim, skip_sequence_parallel=True)")),
    _fine("SGD402", "one sequence of both", DIT, (_SELF, "def forward(self, x, context, freqs_cis):\n        q, k, v = self.to_q(x), torch.cat([self.to_k(x), self.to_k(context)]), self.to_v(x)")),
    _fine("SGD402", "self attention", DIT, (_SELF, "def forward(self, x, freqs_cis):\n        q = self.to_q(x)\n        k = self.to_k(x)\n        v = self.to_v(x)")),
    _broken("SGD501", "no mask", STAGE, (_MASKED, "")),
    _broken("SGD501", "by position alone", STAGE, ("            input_ids=tokens.input_ids,\n" + _MASKED, "            tokens.input_ids,\n")),
    _broken("SGD501", "an encoder in a variable", STAGE, ("        states = self.text_encoder(\n", "        text_encoder = self.text_encoder\n        states = text_encoder(\n"), (_MASKED, "")),
    _fine("SGD501", "spread", STAGE, ("            input_ids=tokens.input_ids,\n" + _MASKED, "            **tokens,\n")),
    _fine("SGD501", "by position", STAGE, ("            input_ids=tokens.input_ids,\n" + _MASKED, "            tokens.input_ids,\n            tokens.attention_mask,\n")),
    _fine("SGD501", "a variable", STAGE, ("        states = self", "        mask = tokens.attention_mask\n        states = self"), ("attention_mask=tokens.attention_mask,\n", "attention_mask=mask,\n")),
    _broken("SGD601", "a function that raises", DIT, (_STEP, "        timestep = _step(timestep)\n"), ("EntryClass = QwenDiT", 'def _step(step):\n    raise NotImplementedError("write it")\n\n\nEntryClass = QwenDiT')),
    _broken("SGD601", "a method that raises", STAGE, ("        device = self.text_encoder.device\n", "        device = self.place()\n"), ("    def encode_prompt(", '    def place(self):\n        """Where."""\n        raise NotImplementedError\n\n    def encode_prompt(')),
    _broken("SGD601", "a comment", DIT, ("        x = torch.cat(", "        # TODO(omni-kit): say how tokens are joined\n        x = torch.cat(")),
    _fine("SGD601", "what cannot be", STAGE, ("        device = self.text_encoder.device\n", '        if batch.seed is None:\n            raise NotImplementedError("no seed")\n        device = self.text_encoder.device\n')),
    _fine("SGD601", "a remark", DIT, ("        x = torch.cat(", "        # TODO: faster with a fused kernel\n        x = torch.cat(")),
    _fine("SGD601", "a refusal that nobody calls", CONFIG, ("    def get_pos_prompt_embeds", '    def prepare_image(self, image):\n        raise NotImplementedError("text alone")\n\n    def get_pos_prompt_embeds')),
]  # fmt: skip
