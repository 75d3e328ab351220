# ruff: noqa: E501
"""Each rule on packages that break it and on packages that keep it, each written differently."""

from omni_checkers.diffusers.examples import BLOCKS, CONFIG_MIXIN, PIPELINE, TRANSFORMER, changed
from omni_checkers.diffusers.rules.models.outputs import _ANSWER as _RETURNED
from omni_checkers.diffusers.rules.models.outputs import _LINEAR as _TIMED
from omni_checkers.diffusers.rules.models.outputs import _SWITCH as _RETURN_DICT
from omni_checkers.diffusers.rules.modular.pipelines import _BASES as _TABLE
from omni_checkers.diffusers.rules.modular.pipelines import _BLOCKS as _OWN_BLOCKS
from omni_checkers.diffusers.rules.modular.pipelines import _FILE, _HOME, _MAPPED, _OWN, _TREE
from omni_checkers.diffusers.rules.modular.pipelines import _PIPELINE as _MODULAR
from omni_checkers.diffusers.rules.pipelines.callbacks import _CALLED
from omni_checkers.diffusers.rules.pipelines.forwarding import _BOUND, _MASKED, _MAYBE, _TAKES
from omni_checkers.diffusers.rules.pipelines.guidance import _INDENT, _TWO
from omni_checkers.diffusers.rules.pipelines.guidance import _STEP as _ANSWERED
from omni_checkers.diffusers.rules.pipelines.scaling import _CONFIG as _VAE_CONFIG
from omni_checkers.diffusers.rules.pipelines.scaling import _DECODED
from omni_checkers.diffusers.rules.pipelines.steps import _FREED, _POPPED
from omni_checkers.diffusers.rules.pipelines.steps import _STEP as _STEPPED
from omni_checkers.diffusers.rules.registration.exports import (
    _DUMMIES,
    _HEAD,
    _LIGHT,
    _PACKAGE,
    _PARTS,
    _PLACE,
    _TOP,
    _TYPED,
)
from omni_checkers.diffusers.rules.registration.pages import _PAGE, _PAGES, _PIPELINE, _TEST, _TOC
from omni_checkers.diffusers.rules.registration.tests import _MODEL
from omni_checkers.diffusers.rules.registration.tests import _TEST as _MODEL_TEST
from tests.checkers.edited import Pair, Variant


def _broken(rule: str, name: str, file: str, *pairs: Pair) -> Variant:
    return Variant(rule, True, name, changed(file, *pairs))


def _fine(rule: str, name: str, file: str, *pairs: Pair) -> Variant:
    return Variant(rule, False, name, changed(file, *pairs))


def _encoding(broken: bool, name: str, *pairs: Pair) -> Variant:
    """With a denoiser that takes the mask of a prompt, and an encoding that gives one."""
    return Variant("DFU222", broken, name, {**_TAKES, **changed(PIPELINE, *_MASKED, *pairs)})


def _guided(broken: bool, name: str, *lines: str) -> Variant:
    """With lines in the place of the denoiser's call."""
    return Variant("DFU223", broken, name, changed(PIPELINE, (_ANSWERED, _INDENT.join(lines))))


def _asked(broken: bool, name: str, first: str, second: str) -> Variant:
    """With two calls of the denoiser that are given these."""
    known = "prompt_mask, negative_prompt_mask, negative_prompt_embeds, guide = self.masks(prompt_embeds)"
    lines = (known, f"a = self.transformer(latents, {first})[0]", f"b = self.transformer(latents, {second})[0]")
    return Variant("DFU224", broken, name, changed(PIPELINE, (_ANSWERED, _INDENT.join(lines))))


def _scaled(broken: bool, name: str, decoded: str, *before: str) -> Variant:
    """With latents that are decoded so."""
    first = "".join(f"        {line}\n" for line in before) + "        if output_type =="
    pairs = ((_DECODED, f"self.vae.decode({decoded}, "), ("        if output_type ==", first))
    return Variant("DFU225", broken, name, changed(PIPELINE, *pairs))


def _replaced(broken: bool, name: str, given: str) -> Variant:
    """With an argument of the config, and a part that is made with this."""
    taken = ("num_layers: int = 2)", "num_layers: int = 2, bias: bool = True)")
    return Variant(
        "DFU103", broken, name, changed(TRANSFORMER, taken, (_TIMED, f"self.time_in = nn.Linear(1, dim, {given})"))
    )


def _slow(broken: bool, name: str, text: str) -> Variant:
    return Variant("DFU322", broken, name, {**CONFIG_MIXIN, **_MODEL, _MODEL_TEST: text})


def _tested(broken: bool, name: str, text: str) -> Variant:
    return Variant("DFU323", broken, name, {**CONFIG_MIXIN, **_MODEL, _MODEL_TEST: text})


def _exported(broken: bool, name: str, init: str) -> Variant:
    return Variant("DFU301", broken, name, {**CONFIG_MIXIN, **_PARTS, _TOP: "", f"{_PLACE}/__init__.py": init})


def _light(broken: bool, name: str, top: str, dummies: str) -> Variant:
    return Variant("DFU302", broken, name, {**CONFIG_MIXIN, _TOP: top, _DUMMIES: dummies})


def _runs(broken: bool, name: str, text: str) -> Variant:
    """A modular pipeline beside the blocks."""
    return Variant("DFU411", broken, name, {_FILE: text})


def _mapped(broken: bool, name: str, **changes: str) -> Variant:
    """A modular pipeline of diffusers itself: its table, its class and its blocks."""
    places = {
        "table": f"{_HOME}/{_FILE}",
        "own": f"{_HOME}/lumen/{_FILE}",
        "blocks": f"{_HOME}/lumen/modular_blocks_lumen.py",
    }
    return Variant("DFU412", broken, name, {**_TREE, **{places[key]: text for key, text in changes.items()}})


_KEYS = "key = attn.to_k(hidden_states).unflatten(-1, (attn.heads, -1)) * rotary"
_T, _P, _B = TRANSFORMER, PIPELINE, BLOCKS
_INIT = "def __init__(self, in_channels: int = 4, dim: int = 32, heads: int = 4, num_layers: int = 2):"
_BASES = "class LumenTransformer2DModel(ModelMixin, ConfigMixin, AttentionMixin):"
_FORWARD = "    def forward(self, hidden_states, timestep, encoder_hidden_states"
_DISPATCH = """hidden_states = dispatch_attention_fn(
            query,
            key,
            value,
            backend=self._attention_backend,
            parallel_config=self._parallel_config,
        )"""
_PASSED = "            backend=self._attention_backend,\n            parallel_config=self._parallel_config,\n"
_DECLARED = "    _attention_backend = None\n    _parallel_config = None\n"
_ASKS = "return self.processor(self, hidden_states, rotary)"
_AVAILABLE = "_available_processors = [LumenAttnProcessor]"
_SHARED = '        "rope": {0: ContextParallelInput(split_dim=1, expected_dims=4, split_output=True)},\n'
_BLOCK = "return hidden_states + self.attn(self.norm(hidden_states), rotary)"
_CHECKPOINT = "self._gradient_checkpointing_func(block, hidden_states, rotary)"
_ROPE = "return torch.outer(ids.float(), torch.arange(self.dim, device=ids.device).float()).cos()[None, :, None]"
_IMPORT = "import torch\n"
_CALL = "    @torch.no_grad()\n    def __call__("
_COMPONENTS = '_optional_components = ["text_encoder", "tokenizer"]'
_TENSORS = '_callback_tensor_inputs = ["latents", "prompt_embeds"]'
_SEQUENCE = '"text_encoder->transformer->vae"'
_NOISE = "randn_tensor(shape, generator=generator, device=device, dtype=dtype)"
_LATENT = 'if output_type == "latent":\n            image = latents\n        else:'
_DECODE = "self.vae.decode(latents / self.vae.config.scaling_factor, return_dict=False)[0]"
_BAR = "        with self.progress_bar(total=len(timesteps)) as progress_bar:\n"
_UPDATE = "                progress_bar.update()\n"
_STEP = "self.scheduler.step(noise_pred, t, latents, return_dict=False)[0]"
_ROWS = "return prompt_embeds.repeat_interleave(num_images_per_prompt, dim=0)"
_GIVEN = """given = {}
                    for name in callback_on_step_end_tensor_inputs:
                        given[name] = locals()[name]"""
_CLASS = "\n\nclass LumenPipeline(DiffusionPipeline)"
_LAST = '        return {"images": image} if return_dict else (image,)\n'
_OLD_NAME = """

class OldPipeline(LumenPipeline):
    def __init__(self, transformer, scheduler, vae, old=None):
        message = "Please use `LumenPipeline`."
        deprecate('OldPipeline', '1.0.0', message)
        super().__init__(transformer=transformer, scheduler=scheduler, vae=vae)
"""
_RETRIEVE = '''

# Copied from diffusers.pipelines.stable_diffusion.pipeline_stable_diffusion_img2img.retrieve_latents
def retrieve_latents(encoder_output, generator=None, sample_mode="sample"):
    """Latents of an image."""
    if hasattr(encoder_output, "latent_dist") and sample_mode == "sample":
        return encoder_output.latent_dist.sample(generator)
    elif hasattr(encoder_output, "latent_dist") and sample_mode == "argmax":
        return encoder_output.latent_dist.mode()
    elif hasattr(encoder_output, "latents"):
        return encoder_output.latents
    else:
        raise AttributeError("Could not access latents of provided encoder_output")
'''
_LATENTS_METHOD = """
    # Copied from diffusers.pipelines.flux.pipeline_flux.FluxPipeline.enable_vae_slicing
    def enable_vae_slicing(self):
        self.vae.enable_slicing()
"""
_INPUTS = 'return [InputParam("num_inference_steps", default=4), InputParam("sigmas")]'
_OUTPUT = 'return [OutputParam("timesteps", type_hint=torch.Tensor)]'
_SPECS = 'return [ComponentSpec("scheduler", FlowMatchEulerDiscreteScheduler)]'
_STORE = "block_state.timesteps = components.scheduler.timesteps"

VARIANTS = [
    _broken("DFU101", "swallowed", _T, (_INIT, _INIT.replace("):", ", **kwargs):"))),
    _broken("DFU101", "ignored", _T, ("    _repeated_blocks =", '    ignore_for_config = ("heads",)\n    _repeated_blocks =')),
    _broken("DFU101", "no ConfigMixin", _T, (_BASES, "class LumenTransformer2DModel(ModelMixin, AttentionMixin):")),
    _broken("DFU101", "through a base of its own", _T, (_BASES, "class LumenBase(ModelMixin, ConfigMixin):\n    pass\n\n\nclass LumenTransformer2DModel(LumenBase):"), ("    @register_to_config\n", "")),
    _fine("DFU101", "by its module", _T, ("from diffusers.configuration_utils import ConfigMixin, register_to_config", "from diffusers import configuration_utils\nfrom diffusers.configuration_utils import ConfigMixin"), ("@register_to_config", "@configuration_utils.register_to_config")),
    _fine("DFU101", "keywords alone", _T, (_INIT, _INIT.replace("self, ", "self, *, "))),
    _fine("DFU101", "nothing to configure", _T, ("    @register_to_config\n", ""), (_INIT, "def __init__(self):\n        in_channels, dim, heads, num_layers = 4, 32, 4, 2")),
    _broken("DFU102", "a pipeline", _P, ("    def encode_prompt", "    @classmethod\n    def from_pretrained(cls, path, **kwargs):\n        return super().from_pretrained(path)\n\n    def encode_prompt")),
    _broken("DFU102", "weights by hand", _T, (_FORWARD, "    def load_state_dict(self, state, strict=True):\n        return super().load_state_dict(state, strict=False)\n\n" + _FORWARD)),
    _broken("DFU102", "saving", _T, (_FORWARD, "    def save_pretrained(self, path, **kwargs):\n        torch.save(self.state_dict(), path)\n\n" + _FORWARD)),
    _fine("DFU102", "a function beside it", _T, ("class LumenRope", "def from_pretrained(path):\n    return LumenTransformer2DModel.from_pretrained(path)\n\n\nclass LumenRope")),
    _fine("DFU102", "another name", _T, (_FORWARD, "    @classmethod\n    def from_authors(cls, path):\n        return cls()\n\n" + _FORWARD)),
    _fine("DFU102", "a part", _T, ("    def forward(self, ids)", "    def load_state_dict(self, state, strict=True):\n        return super().load_state_dict(state, strict)\n\n    def forward(self, ids)")),
    _guided(True, "towards the negative", *_TWO, "noise_pred = noise_text + guidance_scale * (noise_uncond - noise_text)"),
    _guided(True, "added", *_TWO, "noise_pred = (noise_text + noise_uncond) * self.guidance_scale + noise_uncond"),
    _guided(True, "away from the prompt", *_TWO, "noise_pred = noise_uncond - guidance_scale * (noise_text - noise_uncond)"),
    _guided(True, "halves in turn", "rows = torch.cat([prompt_embeds, negative_embeds], dim=0)", "neg, pos = self.ask(rows).chunk(2)"),
    _guided(True, "joined in two orders", "rows = torch.cat([negative_embeds, prompt_embeds])", "masks = torch.cat([prompt_mask, negative_mask])"),
    _guided(False, "written otherwise", *_TWO, "noise_pred = (noise_text - noise_uncond) * self.guidance_scale + noise_uncond"),
    _guided(False, "halves as they were", "rows = torch.cat([negative_embeds, prompt_embeds])", "uncond, cond = self.ask(rows).chunk(2)"),
    _guided(False, "joined along tokens", "rows = torch.cat([negative_embeds, prompt_embeds])", "long = torch.cat([prompt_embeds, negative_embeds], dim=1)"),
    _asked(True, "its mask", "text=prompt_embeds, mask=prompt_mask", "text=negative_prompt_embeds, mask=prompt_mask"),
    _asked(True, "its text", "text=prompt_embeds, mask=prompt_mask", "text=prompt_embeds, mask=negative_prompt_mask"),
    _asked(True, "in another order", "mask=prompt_mask, text=prompt_embeds, scale=guide", "scale=guide, text=negative_prompt_embeds, mask=prompt_mask"),
    _asked(False, "its own", "text=prompt_embeds, mask=prompt_mask", "text=negative_prompt_embeds, mask=negative_prompt_mask"),
    _asked(False, "what both have", "text=prompt_embeds, scale=guide", "text=negative_prompt_embeds, scale=guide"),
    _asked(False, "neither is against it", "text=prompt_embeds, mask=prompt_mask", "text=prompt_embeds, mask=prompt_mask"),
    _scaled(True, "shift taken away", f"latents / {_VAE_CONFIG}scaling_factor - {_VAE_CONFIG}shift_factor"),
    _scaled(True, "multiplied", f"latents * {_VAE_CONFIG}scaling_factor"),
    _scaled(True, "shifted first", f"(latents + ({_VAE_CONFIG}shift_factor or 0.0)) / {_VAE_CONFIG}scaling_factor"),
    _scaled(True, "a reciprocal multiplied", "latents * latents_std + latents_mean", f"latents_std = 1.0 / torch.tensor({_VAE_CONFIG}latents_std)", f"latents_mean = torch.tensor({_VAE_CONFIG}latents_mean)"),
    _scaled(False, "a reciprocal divided by", "latents / latents_std + latents_mean", f"latents_std = 1.0 / torch.tensor({_VAE_CONFIG}latents_std)", f"latents_mean = torch.tensor({_VAE_CONFIG}latents_mean)"),
    _scaled(False, "the shift in front", f"{_VAE_CONFIG}shift_factor + latents / {_VAE_CONFIG}scaling_factor"),
    _scaled(False, "by a deviation", f"latents * latents_std / {_VAE_CONFIG}scaling_factor + latents_mean", f"latents_std = torch.tensor({_VAE_CONFIG}latents_std)", f"latents_mean = torch.tensor({_VAE_CONFIG}latents_mean)"),
    _broken("DFU114", "the norm of queries", _T, (_KEYS, _KEYS + "\n        key = attn.norm_q(key)")),
    _broken("DFU114", "added keys", _T, (_KEYS, _KEYS + "\n        encoder_key = attn.norm_added_q(rotary)")),
    _broken("DFU114", "values in turn", _T, (_KEYS, _KEYS + "\n        k = torch.cat([txt_k, img_k], dim=1)\n        v = torch.cat([img_v, txt_v], dim=1)")),
    _broken("DFU114", "no norm of keys", _T, (_KEYS, _KEYS + "\n        query = attn.norm_q(query)")),
    _broken("DFU114", "rotary positions of another kind", _T, (_KEYS, _KEYS + "\n        query = apply_rotary_emb(query, rotary, use_real=False)\n        key = apply_rotary_emb(key, rotary)")),
    _fine("DFU114", "both norms, and rotary positions", _T, (_KEYS, _KEYS + "\n        query, key = attn.norm_q(query), attn.norm_k(key)\n        query, key = apply_rope(query, rotary), apply_rope(key, rotary)")),
    _fine("DFU114", "its own norm", _T, (_KEYS, _KEYS + "\n        query = attn.norm_q(query)\n        key = attn.norm_k(key)")),
    _fine("DFU114", "one order", _T, (_KEYS, _KEYS + "\n        k = torch.cat([txt_k, img_k], dim=1)\n        v = torch.cat([txt_v, img_v], dim=1)")),
    _fine("DFU114", "of other streams", _T, (_KEYS, _KEYS + "\n        k = torch.cat([txt_k, img_k], dim=1)\n        v = torch.cat([img_v, ref_v], dim=1)")),
    _broken("DFU125", "without positions", _T, (_CHECKPOINT, "self._gradient_checkpointing_func(block, hidden_states)")),
    _broken("DFU125", "another value", _T, (_CHECKPOINT, "self._gradient_checkpointing_func(block, hidden_states, None)")),
    _broken("DFU125", "by name", _T, (_CHECKPOINT, "self._gradient_checkpointing_func(block, hidden_states)"), ("hidden_states = block(hidden_states, rotary)", "hidden_states = block(hidden_states=hidden_states, rotary=rotary)")),
    _fine("DFU125", "names on one side", _T, ("hidden_states = block(hidden_states, rotary)", "hidden_states = block(hidden_states=hidden_states, rotary=rotary)")),
    _fine("DFU125", "a constant more", _T, ("hidden_states = block(hidden_states, rotary)", "hidden_states = block(hidden_states, rotary, False)")),
    _fine("DFU125", "a list", _T, (_CHECKPOINT, "self._gradient_checkpointing_func(block, *[hidden_states, rotary])")),
    _broken("DFU226", "by number", _P, (_STEPPED, _STEPPED.replace(", t,", ", i,"))),
    _broken("DFU226", "by name", _P, (_STEPPED, "self.scheduler.step(noise_pred, timestep=i, sample=latents)[0]")),
    _broken("DFU226", "half of the rows", _P, (_ANSWERED, "rows = torch.cat([latents] * 2)\n                when = t.expand(latents.shape[0])\n                noise_pred = self.transformer(rows, when, prompt_embeds)[0]")),
    _fine("DFU226", "by time and name", _P, (_STEPPED, "self.scheduler.step(noise_pred, timestep=t, sample=latents)[0]")),
    _fine("DFU226", "all rows", _P, (_ANSWERED, "rows = torch.cat([latents] * 2)\n                when = t.expand(rows.shape[0])\n                noise_pred = self.transformer(rows, when, prompt_embeds)[0]")),
    _fine("DFU226", "twice as many times", _P, (_ANSWERED, "rows = torch.cat([latents] * 2)\n                when = t.expand(latents.shape[0])\n                noise_pred = self.transformer(rows, when.repeat(2), prompt_embeds)[0]")),
    _broken("DFU227", "the latents'", _P, (_POPPED, _POPPED.replace('"prompt_embeds"', '"latents"'))),
    _broken("DFU227", "in turn", _P, (_POPPED, 'mask = changed.pop("prompt_embeds", mask)\n                    ' + _POPPED)),
    _broken("DFU227", "both", _P, (_POPPED, _POPPED.replace('"prompt_embeds"', '"latents"')), ('latents = changed.pop("latents", latents)', 'latents = changed.pop("prompt_embeds", latents)')),
    _fine("DFU227", "one more", _P, (_POPPED, 'mask = changed.pop("mask", mask)\n                    ' + _POPPED)),
    _fine("DFU227", "another name of the callback's", _P, (_POPPED, 'prompt_embeds = changed.pop("embeds", prompt_embeds)')),
    _fine("DFU227", "a default", _P, (_POPPED, 'prompt_embeds = changed.pop("prompt_embeds", None) or prompt_embeds')),
    _broken("DFU228", "never", _P, (_FREED, "")),
    _broken("DFU228", "another one's", _P, (_FREED, "        self.maybe_free_memory()\n")),
    _broken("DFU228", "only named", _P, (_FREED, "        free = self.maybe_free_model_hooks\n")),
    _fine("DFU228", "in a method", _P, (_FREED, "        self.end()\n"), (_CALL, "    def end(self):\n        self.maybe_free_model_hooks()\n\n" + _CALL)),
    _fine("DFU228", "no order", _P, (_FREED, ""), ('    model_cpu_offload_seq = "text_encoder->transformer->vae"\n', "")),
    _fine("DFU228", "before the answer", _P, (_FREED, "        if output_type:\n            self.maybe_free_model_hooks()\n")),
    _fine("DFU226", "one unit, written twice", _P, (_ANSWERED, "a = self.transformer(latents, timestep=t / 1000)[0]\n                noise_pred = self.transformer(latents, timestep=0.001 * t)[0]")),
    _broken("DFU226", "in two units", _P, (_ANSWERED, "a = self.transformer(latents, timestep=t / 1000)[0]\n                noise_pred = self.transformer(latents, timestep=t)[0]")),
    _replaced(True, "a number", "bias=True"),
    _replaced(True, "another number", "bias=False"),
    _replaced(True, "in a list", "bias=True)\n        self.more = nn.ModuleList([nn.Linear(dim, dim, bias=True)]"),
    _replaced(False, "read", "bias=bias"),
    _replaced(False, "read elsewhere", "bias=self.config.bias"),
    _replaced(False, "not said", ""),
    _broken("DFU126", "a tuple by default", _T, (_RETURN_DICT, _RETURN_DICT.replace("True", "False"))),
    _broken("DFU126", "bare", _T, (_RETURNED, "out = self.proj_out(hidden_states)\n        if not return_dict:\n            return (out,)\n        return out")),
    _broken("DFU126", "bare in a branch", _T, (_RETURNED, "out = self.proj_out(hidden_states)\n        if return_dict:\n            return out\n        else:\n            return (out, rotary)")),
    _fine("DFU126", "an output", _T, (_RETURNED, "out = self.proj_out(hidden_states)\n        return Transformer2DModelOutput(sample=out) if return_dict else (out,)")),
    _fine("DFU126", "a dict", _T, (_RETURNED, "out = self.proj_out(hidden_states)\n        if not return_dict:\n            return (out,)\n        return {'sample': out}")),
    _fine("DFU126", "no switch", _T, (_RETURN_DICT, "encoder_hidden_states)"), (_RETURNED, "return self.proj_out(hidden_states)")),
    _broken("DFU111", "by F", _T, (_IMPORT, "import torch\nimport torch.nn.functional as F\n"), (_DISPATCH, "hidden_states = F.scaled_dot_product_attention(query, key, value)")),
    _broken("DFU111", "imported by another name", _T, (_IMPORT, "import torch\nfrom torch.nn.functional import scaled_dot_product_attention as sdpa\n"), (_DISPATCH, "hidden_states = sdpa(query, key, value)")),
    _broken("DFU111", "written out", _T, (_DISPATCH, "scores = torch.matmul(query, key.transpose(-1, -2))\n        weights = scores.softmax(dim=-1)\n        hidden_states = torch.matmul(weights, value)")),
    _broken("DFU111", "einsum", _T, (_DISPATCH, 'weights = torch.einsum("bqhd,bkhd->bhqk", query, key)\n        weights = nn.functional.softmax(weights, dim=-1)\n        hidden_states = torch.einsum("bhqk,bkhd->bqhd", weights, value)')),
    _broken("DFU111", "in a module", _T, (_BLOCK, "query = self.norm(hidden_states)\n        return hidden_states + nn.functional.scaled_dot_product_attention(query, query, query)")),
    _broken("DFU111", "a processor for the older class", _T, ("class LumenRope", "class LumenCrossProcessor:\n    def __call__(self, attn, hidden_states):\n        states = attn.to_q(hidden_states)\n        return nn.functional.scaled_dot_product_attention(states, states, states)\n\n\nclass LumenRope")),
    _fine("DFU111", "softmax of something else", _T, ("(self.proj_out(hidden_states),)", "(self.proj_out(hidden_states).softmax(dim=-1),)")),
    _fine("DFU111", "a product alone", _T, (_BLOCK, "mixed = hidden_states @ hidden_states.transpose(-1, -2)\n        return hidden_states + mixed @ hidden_states")),
    _fine("DFU111", "asked for only", _T, (_DISPATCH, 'if not hasattr(nn.functional, "scaled_dot_product_attention"):\n            raise ImportError("torch 2 is needed")\n        ' + _DISPATCH)),
    _broken("DFU112", "no backend", _T, ("            backend=self._attention_backend,\n", "")),
    _broken("DFU112", "nothing declared", _T, (_DECLARED, "")),
    _broken("DFU112", "another name", _T, (_DECLARED, "    _backend = None\n    _parallel_config = None\n"), ("backend=self._attention_backend", "backend=self._backend")),
    _broken("DFU112", "by its module", _T, ("import dispatch_attention_fn", "import dispatch_attention_fn as attend"), ("dispatch_attention_fn(\n", "attend(\n"), (_PASSED, "            backend=self._attention_backend,\n")),
    _fine("DFU112", "set in init", _T, (_DECLARED, "    def __init__(self):\n        self._attention_backend = None\n        self._parallel_config = None\n")),
    _fine("DFU112", "not shared out", _T, ("parallel_config=self._parallel_config", "parallel_config=None")),
    _fine("DFU112", "spread", _T, (_PASSED, '            **{"backend": self._attention_backend, "parallel_config": self._parallel_config},\n')),
    _broken("DFU113", "nothing available", _T, (_AVAILABLE, "_available_processors = []")),
    _broken("DFU113", "another one available", _T, (_AVAILABLE, "_available_processors = [LumenFusedProcessor]"), ("class LumenAttention(", "class LumenFusedProcessor(LumenAttnProcessor):\n    pass\n\n\nclass LumenAttention(")),
    _broken("DFU113", "from another file", _T, ("class LumenAttnProcessor:", "class LumenOwnProcessor:"), ("from torch import nn", "from diffusers.models.transformers.transformer_flux import FluxAttnProcessor as LumenAttnProcessor\nfrom torch import nn")),
    _broken("DFU113", "computed in forward", _T, (_ASKS, "query, key, value = self.to_q(hidden_states), self.to_k(hidden_states), self.to_v(hidden_states)\n        return self.to_out[0](dispatch_attention_fn(query, key, value, backend=None, parallel_config=None))")),
    _fine("DFU113", "with keywords", _T, (_ASKS, "return self.processor(attn=self, hidden_states=hidden_states, rotary=rotary)")),
    _fine("DFU113", "a tuple", _T, (_AVAILABLE, "_available_processors = (LumenAttnProcessor,)")),
    _fine("DFU113", "only what it takes", _T, (_ASKS, "kwargs = {name: value for name, value in {'rotary': rotary}.items() if value is not None}\n        return self.processor(self, hidden_states, **kwargs)")),
    _fine("DFU113", "through a getter", _T, (_ASKS, "processor = self.get_processor()\n        return processor(self, hidden_states, rotary)")),
    _broken("DFU121", "repeated", _T, ('_repeated_blocks = ["LumenBlock"]', '_repeated_blocks = ["LumenLayer"]')),
    _broken("DFU121", "an attribute for a class", _T, ('_no_split_modules = ["LumenBlock"]', '_no_split_modules = ["blocks"]')),
    _broken("DFU121", "full precision", _T, ("    _repeated_blocks", '    _keep_in_fp32_modules = ["scale_shift_table"]\n    _repeated_blocks')),
    _broken("DFU121", "in a tuple", _T, ('_patterns = ["norm"]', '_patterns = ("patch_embed", "norm")')),
    _fine("DFU121", "more of them", _T, ('_no_split_modules = ["LumenBlock"]', '_no_split_modules = ["LumenBlock", "LumenAttention"]')),
    _fine("DFU121", "a path", _T, ('_patterns = ["norm"]', '_patterns = ["^proj_in$", "time_in", "norm"]')),
    _fine("DFU121", "from a table", _T, ("[LumenBlock(dim, heads) for _", "[_BLOCKS['plain'](dim, heads) for _"), (_BASES, '_BLOCKS = {"plain": LumenBlock}\n\n\n' + _BASES)),
    _fine("DFU121", "none", _T, ('_no_split_modules = ["LumenBlock"]', "_no_split_modules = None")),
    _broken("DFU122", "only asked for", _T, (_CHECKPOINT, "block(hidden_states, rotary)")),
    _broken("DFU122", "said no", _T, ("_supports_gradient_checkpointing = True", "_supports_gradient_checkpointing = False")),
    _broken("DFU122", "torch's own", _T, (_CHECKPOINT, "torch.utils.checkpoint.checkpoint(block, hidden_states, rotary)")),
    _fine("DFU122", "neither", _T, (_CHECKPOINT, "block(hidden_states, rotary)"), ("    _supports_gradient_checkpointing = True\n", "")),
    _fine("DFU122", "in a variable", _T, (_CHECKPOINT, "run(block, hidden_states, rotary)"), ("        for block in self.blocks", "        run = self._gradient_checkpointing_func\n        for block in self.blocks")),
    _fine("DFU122", "in a method", _T, (_CHECKPOINT, "self.remembering(block, hidden_states, rotary)"), (_FORWARD, "    def remembering(self, block, *given):\n        return self._gradient_checkpointing_func(block, *given)\n\n" + _FORWARD)),
    _broken("DFU123", "a module that is not there", _T, ('"rope": {0', '"pos_embed": {0')),
    _broken("DFU123", "an argument that is not there", _T, ('"blocks.0": {"hidden_states"', '"blocks.0": {"encoder_hidden_states"')),
    _broken("DFU123", "of the model itself", _T, ('"blocks.0": {"hidden_states"', '"": {"latents"')),
    _broken("DFU123", "an output that is none", _T, ("expected_dims=4, split_output=True", "expected_dims=4, split_output=False")),
    _fine("DFU123", "of the model itself", _T, ('"blocks.0": {"hidden_states"', '"": {"hidden_states"')),
    _fine("DFU123", "of all blocks", _T, ('"blocks.0": {"hidden_states"', '"blocks.*": {"rotary"')),
    _fine("DFU123", "none", _T, ("    _cp_plan = {", "    _plan = {")),
    _broken("DFU124", "left out", _T, (_SHARED, "")),
    _broken("DFU124", "by keyword", _T, (_SHARED, ""), ("hidden_states = block(hidden_states, rotary)", "hidden_states = block(hidden_states, rotary=rotary)")),
    _broken("DFU124", "of the model itself", _T, (_SHARED, ""), ('"blocks.0": {"hidden_states"', '"": {"hidden_states"')),
    _broken("DFU124", "complex numbers", _T, (_SHARED, ""), (".float()).cos()[None", ".float()).to(torch.complex64).sin()[None")),
    _fine("DFU124", "as an argument of all blocks", _T, (_SHARED, '        "blocks.*": {"rotary": ContextParallelInput(split_dim=1, expected_dims=4, split_output=False)},\n')),
    _fine("DFU124", "by what it is made of", _T, (_SHARED, '        "": {"ids": ContextParallelInput(split_dim=0, expected_dims=1, split_output=False)},\n'), ("self.rope(torch.arange(hidden_states.shape[1], device=hidden_states.device))", "self.rope(ids.flatten())"), ("return_dict: bool = True):", "ids, return_dict: bool = True):")),
    _fine("DFU124", "no plan", _T, ("    _cp_plan = {", "    _plan = {")),
    _broken("DFU131", "half", _T, (_BLOCK, "return hidden_states + self.attn(self.norm(hidden_states).half(), rotary)")),
    _broken("DFU131", "a keyword", _T, (_ROPE, _ROPE.replace("device=ids.device)", "dtype=torch.double, device=ids.device)"))),
    _broken("DFU131", "in the processor", _T, ("        return attn.to_out[0](hidden", "        hidden_states = hidden_states.type(torch.float16)\n        return attn.to_out[0](hidden")),
    _broken("DFU131", "in a function", _T, (_ROPE, "return _table(ids, self.dim)"), ("class LumenRope", "def _table(ids, dim):\n    return torch.outer(ids.to(torch.float64), torch.arange(dim)).cos()\n\n\nclass LumenRope")),
    _fine("DFU131", "compared", _T, (_BLOCK, "hidden_states = hidden_states + self.attn(self.norm(hidden_states), rotary)\n        if hidden_states.dtype == torch.float16:\n            hidden_states = hidden_states.clip(-65504, 65504)\n        return hidden_states")),
    _fine("DFU131", "where there is one", _T, (_ROPE, 'dtype = torch.float32 if ids.device.type == "mps" else torch.float64\n        return torch.outer(ids.to(dtype), torch.arange(self.dim, device=ids.device, dtype=dtype)).cos()')),
    _fine("DFU131", "the input's", _T, (_BLOCK, "return hidden_states + self.attn(self.norm(hidden_states.float()).to(hidden_states.dtype), rotary)")),
    _fine("DFU131", "asked by if", _T, (_ROPE, 'dtype = torch.float32\n        if ids.device.type != "mps":\n            dtype = torch.float64\n        return torch.outer(ids.to(dtype), torch.arange(self.dim, device=ids.device, dtype=dtype)).cos()')),
    _broken("DFU132", "a method", _P, ("return latents.to(device=device, dtype=dtype)", "return latents.cuda()")),
    _broken("DFU132", "by position", _P, ("return latents.to(device=device, dtype=dtype)", 'return latents.to("cuda", dtype)')),
    _broken("DFU132", "a default", _P, ("def encode_prompt(self, prompt, device, num_images_per_prompt)", 'def encode_prompt(self, prompt, device="cuda", num_images_per_prompt=1)')),
    _broken("DFU132", "autocast", _T, (_BLOCK, 'with torch.autocast("cuda", dtype=hidden_states.dtype):\n            return hidden_states + self.attn(self.norm(hidden_states), rotary)')),
    _broken("DFU132", "a variable", _P, ("device = self._execution_device", 'device = "cuda"')),
    _fine("DFU132", "asked for", _P, ("device = self._execution_device", 'device = self._execution_device\n        fast = device.type == "cuda"\n        latents = latents if fast else latents')),
    _fine("DFU132", "autocast off", _T, (_BLOCK, 'with torch.autocast("cuda", enabled=False):\n            return hidden_states + self.attn(self.norm(hidden_states), rotary)')),
    _fine("DFU132", "the processor's", _P, ("return latents.to(device=device, dtype=dtype)", 'return latents.to("cpu").to(device, dtype)')),
    _fine("DFU132", "in the documentation", _P, ("        device = self._execution_device", '        """Runs `pipe.to("cuda")`."""\n        device = self._execution_device')),
    _broken("DFU133", "einops", _T, (_IMPORT, "import einops\nimport torch\n")),
    _broken("DFU133", "a kernel", _T, (_IMPORT, "import torch\nfrom flash_attn.flash_attn_interface import flash_attn_func\n")),
    _broken("DFU133", "in a with", _P, (_IMPORT, "import contextlib\n\nimport torch\n\nwith contextlib.suppress(ValueError):\n    import timm\n")),
    _fine("DFU133", "tried", _T, (_IMPORT, "import torch\n\ntry:\n    import einops\nexcept ImportError:\n    einops = None\n")),
    _fine("DFU133", "asked for", _P, (_IMPORT, "import torch\nfrom diffusers.utils import is_ftfy_available\n\nif is_ftfy_available():\n    import ftfy\n")),
    _fine("DFU133", "where it is used", _P, ("        device = self._execution_device", "        import einops\n\n        device = self._execution_device")),
    _fine("DFU133", "what is there", _P, (_IMPORT, "import inspect\n\nimport numpy as np\nimport PIL.Image\nimport regex as re\nimport torch\nfrom transformers import T5EncoderModel\n")),
    _broken("DFU134", "a list", _P, (_GIVEN, "values = [locals()[name] for name in callback_on_step_end_tensor_inputs]\n                    given = dict(zip(callback_on_step_end_tensor_inputs, values))")),
    _broken("DFU134", "a generator", _P, (_GIVEN, "given = dict((name, locals()[name]) for name in callback_on_step_end_tensor_inputs)")),
    _broken("DFU134", "its condition", _P, (_GIVEN, "given = {name: latents for name in callback_on_step_end_tensor_inputs if name in locals()}")),
    _fine("DFU134", "what it goes over", _P, (_GIVEN, "given = {name: value for name, value in locals().items() if name in callback_on_step_end_tensor_inputs}")),
    _fine("DFU134", "taken before", _P, (_GIVEN, "known = locals()\n                    given = {name: known[name] for name in callback_on_step_end_tensor_inputs}")),
    _fine("DFU134", "a table", _P, (_GIVEN, 'known = {"latents": latents, "prompt_embeds": prompt_embeds}\n                    given = {name: known[name] for name in callback_on_step_end_tensor_inputs}')),
    _broken("DFU201", "of the same file", _P, (_CLASS, "\n\nclass LumenBasePipeline(DiffusionPipeline):\n    pass\n\n\nclass LumenPipeline(LumenBasePipeline)")),
    _broken("DFU201", "by another name", _P, (_IMPORT, "import torch\nfrom diffusers.pipelines.flux.pipeline_flux import FluxPipeline as Base\n"), ("class LumenPipeline(DiffusionPipeline)", "class LumenPipeline(Base)")),
    _broken("DFU201", "beside the base", _P, (_IMPORT, "import torch\nfrom diffusers import WanPipeline\n"), ("class LumenPipeline(DiffusionPipeline)", "class LumenPipeline(WanPipeline, DiffusionPipeline)")),
    _fine("DFU201", "mixins", _P, (_IMPORT, "import torch\nfrom diffusers.loaders import FromSingleFileMixin, SD3LoraLoaderMixin\n"), ("class LumenPipeline(DiffusionPipeline)", "class LumenPipeline(DiffusionPipeline, SD3LoraLoaderMixin, FromSingleFileMixin)")),
    _fine("DFU201", "by the package", _P, ("from diffusers.pipelines.pipeline_utils import DiffusionPipeline", "from diffusers import DiffusionPipeline")),
    _broken("DFU201", "an old name that does more", _P, (_LAST, _LAST + _OLD_NAME + "        self.tile = 512\n")),
    _broken("DFU201", "an old name with a call of its own", _P, (_LAST, _LAST + _OLD_NAME + "\n    def __call__(self, prompt):\n        return super().__call__(prompt, num_inference_steps=4)\n")),
    _broken("DFU201", "an old argument", _P, (_LAST, _LAST + _OLD_NAME.replace("        deprecate(", "        if old:\n            deprecate("))),
    _fine("DFU201", "an old name", _P, (_LAST, _LAST + _OLD_NAME)),
    _fine("DFU201", "an old name by warnings", _P, (_LAST, _LAST + _OLD_NAME.replace("deprecate('OldPipeline', '1.0.0', message)", "warnings.warn(message, FutureWarning)"))),
    _fine("DFU201", "an old name by a decorator", _P, (_LAST, _LAST + "\n\n@deprecated('LumenPipeline is its name')\nclass OldPipeline(LumenPipeline):\n    pass\n")),
    _fine("DFU201", "a mixin of its own", _P, (_CLASS, "\n\nclass LumenMixin:\n    pass\n\n\nclass LumenPipeline(LumenMixin, DiffusionPipeline)")),
    _broken("DFU202", "another decorator", _P, ("    @torch.no_grad()\n", "    @torch.compiler.disable\n")),
    _broken("DFU202", "on a helper", _P, ("    @torch.no_grad()\n", ""), ("    def encode_prompt", "    @torch.no_grad()\n    def encode_prompt")),
    _broken("DFU202", "gradients on purpose", _P, ("@torch.no_grad()", "@torch.enable_grad()")),
    _fine("DFU202", "inference mode", _P, ("@torch.no_grad()", "@torch.inference_mode()")),
    _fine("DFU202", "imported", _P, (_IMPORT, "import torch\nfrom torch import no_grad\n"), ("@torch.no_grad()", "@no_grad()")),
    _fine("DFU202", "and another one", _P, ("    @torch.no_grad()\n", "    @torch.no_grad()\n    @torch.compiler.disable\n")),
    _broken("DFU203", "an optional one", _P, (_COMPONENTS, '_optional_components = ["text_encoder", "tokenizer", "image_encoder"]')),
    _broken("DFU203", "kept on the device", _P, (_COMPONENTS, _COMPONENTS + '\n    _exclude_from_cpu_offload = ["safety_checker"]')),
    _broken("DFU203", "a typo", _P, (_SEQUENCE, '"text_encoder->transfomer->vae"')),
    _broken("DFU203", "a tensor", _P, (_TENSORS, '_callback_tensor_inputs = ["latents", "image_latents"]')),
    _fine("DFU203", "in another order", _P, (_SEQUENCE, '"vae->text_encoder->transformer"')),
    _fine("DFU203", "in two steps", _P, ("        self.image_processor =", "        self.register_modules(image_encoder=None)\n        self.image_processor ="), (_SEQUENCE, '"text_encoder->image_encoder->transformer->vae"')),
    _fine("DFU203", "spread", _P, ("            transformer=transformer, scheduler=scheduler, vae=vae, text_encoder=text_encoder, tokenizer=tokenizer\n", "            **dict(transformer=transformer, scheduler=scheduler, vae=vae, te=text_encoder, tokenizer=tokenizer)\n"), (_SEQUENCE, '"te->transformer->vae"')),
    _broken("DFU211", "torch", _P, (_NOISE, "torch.randn(*shape, device=device, dtype=dtype)")),
    _broken("DFU211", "like another", _P, ("return latents.to(device=device, dtype=dtype)", "return latents + 0.01 * torch.randn_like(latents)")),
    _broken("DFU211", "a latent", _P, ("        self.scheduler.set_timesteps", "        latents = self.vae.encode(latents).latent_dist.sample()\n        self.scheduler.set_timesteps")),
    _broken("DFU211", "numpy", _P, (_IMPORT, "import numpy as np\nimport torch\n"), (_NOISE, "torch.from_numpy(np.random.randn(*shape)).to(device, dtype)")),
    _broken("DFU211", "not handed on", _P, ("dtype, device, generator, latents\n", "dtype, device, None, latents\n")),
    _fine("DFU211", "by position", _P, (_NOISE, "randn_tensor(shape, generator, device, dtype)")),
    _fine("DFU211", "torch with it", _P, (_NOISE, "torch.randn(shape, generator=generator, dtype=dtype).to(device)")),
    _fine("DFU211", "a latent with it", _P, ("        self.scheduler.set_timesteps", "        latents = self.vae.encode(latents).latent_dist.sample(generator)\n        self.scheduler.set_timesteps")),
    _fine("DFU211", "the mode", _P, ("        self.scheduler.set_timesteps", "        latents = self.vae.encode(latents).latent_dist.mode()\n        self.scheduler.set_timesteps")),
    _broken("DFU212", "another word", _P, ('"latent":', '"latents":')),
    _broken("DFU212", "always", _P, (_LATENT, "if True:")),
    _broken("DFU212", "decoded before", _P, (_LATENT, 'if output_type == "raw":\n            image = latents\n        else:')),
    _fine("DFU212", "the other way round", _P, (_LATENT, 'image = latents\n        if output_type != "latent":')),
    _fine("DFU212", "one of several", _P, (_LATENT, 'if output_type in ("latent", "lt"):\n            image = latents\n        else:')),
    _fine("DFU212", "in a variable", _P, (_LATENT, 'decoded = not output_type == "latent"\n        image = latents\n        if decoded:')),
    _broken("DFU213", "tqdm", _P, (_IMPORT, "import torch\nfrom tqdm.auto import tqdm\n"), (_BAR, "        with tqdm(total=len(timesteps)) as progress_bar:\n")),
    _broken("DFU213", "nothing", _P, (_BAR, "        if len(timesteps):\n"), (_UPDATE, "")),
    _broken("DFU213", "by number", _P, (_BAR, "        if len(timesteps):\n"), (_UPDATE, ""), ("            for i, t in enumerate(timesteps):\n", "            for i in range(num_inference_steps):\n                t = timesteps[i]\n")),
    _fine("DFU213", "around the iterable", _P, (_BAR, "        if len(timesteps):\n"), (_UPDATE, ""), ("in enumerate(timesteps)", "in enumerate(self.progress_bar(timesteps))")),
    _fine("DFU213", "by its count", _P, (_BAR, "        bar = self.progress_bar(total=len(timesteps))\n        with bar as progress_bar:\n")),
    _fine("DFU213", "no loop", _P, ("            for i, t in enumerate(timesteps):\n", "            i, t = 0, timesteps[0]\n            if True:\n")),
    _broken("DFU214", "sigmas", _P, (_STEP, "latents + (self.scheduler.sigmas[i + 1] - self.scheduler.sigmas[i]) * noise_pred")),
    _broken("DFU214", "a constant", _P, (_STEP, "latents - noise_pred / num_inference_steps")),
    _broken("DFU214", "alphas", _P, (_STEP, "(latents - (1 - self.scheduler.alphas_cumprod[t]) ** 0.5 * noise_pred) / self.scheduler.alphas_cumprod[t] ** 0.5")),
    _fine("DFU214", "the object", _P, (_STEP, "self.scheduler.step(noise_pred, t, latents).prev_sample")),
    _fine("DFU214", "in a method", _P, (_STEP, "self.advance(noise_pred, t, latents)"), ("    def encode_prompt", "    def advance(self, noise, t, latents):\n        return self.scheduler.step(noise, t, latents, return_dict=False)[0]\n\n    def encode_prompt")),
    _fine("DFU214", "a copy", _P, (_STEP, "scheduler.step(noise_pred, t, latents, return_dict=False)[0]"), ("        timesteps = self.scheduler.timesteps", "        scheduler = self.scheduler\n        timesteps = scheduler.timesteps")),
    _broken("DFU215", "guidance", _P, ("        return_dict=True,\n", "        return_dict=True,\n        guidance_scale=4.0,\n")),
    _broken("DFU215", "only documented", _P, ("        return_dict=True,\n", "        return_dict=True,\n        eta=0.0,\n"), ("        device = self._execution_device\n", '        """`eta` of DDIM."""\n        device = self._execution_device\n')),
    _broken("DFU215", "overwritten", _P, ("height, width, prompt_embeds.dtype, device, generator, latents", "height, width, prompt_embeds.dtype, device, noise, latents"), ("        device = self._execution_device\n", "        noise = generator = torch.Generator()\n        device = self._execution_device\n")),
    _broken("DFU215", "not written yet", _P, ("        device = self._execution_device\n", "        raise NotImplementedError\n\n    def unused(self, prompt, prompt_embeds, num_inference_steps):\n        device = self._execution_device\n")),
    _fine("DFU215", "handed on", _P, ("        return_dict=True,\n", "        return_dict=True,\n        attention_kwargs=None,\n"), ("prompt_embeds, return_dict=False)[0]\n                latents", "prompt_embeds, **(attention_kwargs or {}))[0]\n                latents")),
    _fine("DFU215", "kept", _P, ("        return_dict=True,\n", "        return_dict=True,\n        guidance_scale=4.0,\n"), ("        device = self._execution_device\n", "        self._guidance_scale = guidance_scale\n        device = self._execution_device\n")),
    _fine("DFU215", "checked", _P, ("        return_dict=True,\n", "        return_dict=True,\n        strength=1.0,\n"), ("        device = self._execution_device\n", "        if not 0 < strength <= 1:\n            raise ValueError(strength)\n        device = self._execution_device\n")),
    _broken("DFU221", "a list of ones", _P, (_ROWS, "return prompt_embeds.repeat(num_images_per_prompt, *[1] * (prompt_embeds.ndim - 1))")),
    _broken("DFU221", "tile", _P, (_ROWS, "return torch.tile(prompt_embeds, (num_images_per_prompt, 1, 1))")),
    _broken("DFU221", "joined", _P, (_ROWS, "return torch.cat([prompt_embeds for _ in range(num_images_per_prompt)], dim=0)")),
    _broken("DFU221", "a tuple", _P, (_ROWS, "return prompt_embeds.repeat((num_images_per_prompt, 1, 1))")),
    _broken("DFU221", "a mask", _P, (_ROWS, "mask = tokens.attention_mask.repeat(num_images_per_prompt, 1)\n        return prompt_embeds.repeat_interleave(num_images_per_prompt, dim=0) * mask[..., None]")),
    _fine("DFU221", "folded", _P, (_ROWS, "count, length, width = prompt_embeds.shape\n        return prompt_embeds.repeat(1, num_images_per_prompt, 1).view(count * num_images_per_prompt, length, width)")),
    _fine("DFU221", "expanded", _P, (_ROWS, "return prompt_embeds.unsqueeze(1).expand(-1, num_images_per_prompt, -1, -1).flatten(0, 1)")),
    _fine("DFU221", "one row", _P, (_ROWS, "return torch.cat([one[None].repeat(num_images_per_prompt, 1, 1) for one in prompt_embeds])")),
    _fine("DFU221", "both branches", _P, (_ROWS, "rows = prompt_embeds.repeat_interleave(num_images_per_prompt, dim=0)\n        return torch.cat([rows] * 1)")),
    _encoding(True, "two tensors in one tuple", (_BOUND, "prompt_embeds, mask = self.encode_prompt("), ("latents = self.prepare_latents(", "mask = mask.bool()\n        latents = self.prepare_latents(")),
    _encoding(True, "asked for alone", (_BOUND, "prompt_embeds, mask = self.encode_prompt("), ("latents = self.prepare_latents(", "if mask is not None:\n            mask = mask.to(device)\n        latents = self.prepare_latents(")),
    _encoding(True, "by keyword and without its mask", (_BOUND, "prompt_embeds, _unused = self.encode_prompt("), ("self.transformer(latents, t.expand(len(latents)), prompt_embeds,", "self.transformer(hidden_states=latents, timestep=t.expand(len(latents)), encoder_hidden_states=prompt_embeds,")),
    _encoding(False, "by keyword", _MAYBE, (_BOUND, "prompt_embeds, mask = self.encode_prompt("), ("prompt_embeds, return_dict=False", "prompt_embeds, encoder_attention_mask=mask, return_dict=False")),
    _encoding(False, "under another name", _MAYBE, (_BOUND, "prompt_embeds, mask = self.encode_prompt("), ("latents = self.prepare_latents(", "seen = mask.bool() if mask is not None else None\n        latents = self.prepare_latents("), ("prompt_embeds, return_dict=False", "prompt_embeds, seen, return_dict=False")),
    _encoding(False, "in a dictionary", _MAYBE, (_BOUND, "prompt_embeds, mask = self.encode_prompt("), ("latents = self.prepare_latents(", "more = {'encoder_attention_mask': mask}\n        latents = self.prepare_latents("), ("prompt_embeds, return_dict=False", "prompt_embeds, return_dict=False, **more")),
    _broken("DFU216", "looked at", _P, (_CALLED, "changed = given if callable(callback_on_step_end) else {}")),
    _broken("DFU216", "only checked", _P, (_CALLED, "self.check_inputs(callback_on_step_end)\n                    changed = given")),
    _broken("DFU216", "its tensors alone", _P, (_CALLED, "changed = dict(given, steps=callback_on_step_end_tensor_inputs)")),
    _fine("DFU216", "under another name", _P, (_CALLED, "told = callback_on_step_end\n                    changed = told(self, i, t, given)")),
    _fine("DFU216", "by a method", _P, (_CALLED, "changed = self.after_step(callback_on_step_end, i, t, given)")),
    _fine("DFU216", "by keywords", _P, (_CALLED, "changed = callback_on_step_end(pipe=self, step=i, timestep=t, tensors=given)")),
    Variant("DFU321", True, "no page", {**CONFIG_MIXIN, **_PIPELINE, **_TEST, f"{_PAGES}/pipelines/flux.md": "[[autodoc]] FluxPipeline", _TOC: "- local: api/pipelines/flux"}),
    Variant("DFU321", True, "a page that nobody lists", {**CONFIG_MIXIN, **_PIPELINE, **_TEST, **_PAGE, _TOC: "- local: api/pipelines/flux"}),
    Variant("DFU321", True, "a test of something else", {**CONFIG_MIXIN, **_PIPELINE, **_PAGE, "tests/pipelines/test_flux.py": "from diffusers import FluxPipeline\n"}),
    Variant("DFU321", False, "on a page of several", {**CONFIG_MIXIN, **_PIPELINE, **_TEST, f"{_PAGES}/pipelines/lights/lamps.md": "[[autodoc]] FluxPipeline\n\n[[autodoc]] LumenPipeline\n\t- all\n", _TOC: "- sections:\n  - local: api/pipelines/lights/lamps\n"}),
    Variant("DFU321", False, "an old name", {**CONFIG_MIXIN, **_PAGE, **_TEST, "src/diffusers/__init__.py": "", "src/diffusers/pipelines/deprecated/lumen/__init__.py": "", "src/diffusers/pipelines/deprecated/lumen/pipeline_lamp.py": "class LampPipeline(DiffusionPipeline):\n    pass\n"}),
    Variant("DFU321", False, "a base of others", {**CONFIG_MIXIN, **_PIPELINE, **_PAGE, **_TEST, "src/diffusers/pipelines/lumen/pipeline_lumen.py": "class _LumenPipeline(DiffusionPipeline):\n    pass\n"}),
    _slow(True, "in a class", "class LumenTests(unittest.TestCase):\n    def test_one(self):\n        pipe = LumenPipeline.from_pretrained('lumen/lumen-2b')\n"),
    _slow(True, "a function", "def test_one():\n    assert LumenTransformer2DModel.from_pretrained('lumen/lumen-2b', subfolder='transformer') is not None\n"),
    _slow(True, "a file, where accelerators are asked for", "@require_torch_accelerator\nclass LumenTests(unittest.TestCase):\n    def test_one(self):\n        LumenTransformer2DModel.from_single_file('https://huggingface.co/lumen/lumen-2b/blob/main/a.safetensors')\n"),
    _slow(False, "small weights", "def test_one():\n    LumenPipeline.from_pretrained('hf-internal-testing/lumen-pipe')\n    LumenPipeline.from_pretrained('lumen/Tiny-Lumen')\n"),
    _slow(False, "by night", "class LumenTests(unittest.TestCase):\n    @nightly\n    @require_big_accelerator\n    def test_one(self):\n        LumenPipeline.from_pretrained('lumen/lumen-2b')\n"),
    _slow(False, "from a folder", "def test_one(tmp_path):\n    LumenPipeline.from_pretrained(tmp_path)\n    LumenPipeline.from_pretrained('./lumen')\n"),
    _tested(True, "by hand", "class LumenTests(unittest.TestCase):\n    model_class = LumenTransformer2DModel\n"),
    _tested(True, "by others", "class Config:\n    @property\n    def model_class(self):\n        return LumenTransformer2DModel\n\n\nclass TestLumen(Config, MemoryTesterMixin, TrainingTesterMixin):\n    pass\n"),
    _tested(True, "of another model", "class Config:\n    @property\n    def model_class(self):\n        return LumenTransformer2DModel\n\n\nclass TestFlux(FluxConfig, ModelTesterMixin):\n    pass\n"),
    _tested(False, "in the old way", "class LumenTests(ModelTesterMixin, unittest.TestCase):\n    model_class = LumenTransformer2DModel\n"),
    _tested(False, "by several", "class Config:\n    @property\n    def model_class(self):\n        return LumenTransformer2DModel\n\n\nclass TestLumen(Config, ModelTesterMixin):\n    pass\n\n\nclass TestMemory(Config, MemoryTesterMixin):\n    pass\n"),
    _tested(False, "by a module", "class TestLumen(testing.ModelTesterMixin):\n    @property\n    def model_class(self):\n        return LumenTransformer2DModel\n"),
    _exported(True, "table alone", _HEAD),
    _exported(True, "import alone", _HEAD.replace('    _import_structure["pipeline_lumen"] = ["LumenPipeline"]\n', "    pass\n") + _TYPED),
    _exported(True, "a class that is not there", _HEAD.replace("LumenPipelineOutput", "LumenOutput") + _TYPED),
    _exported(True, "two and one", _HEAD.replace('["LumenPipeline"]', '["LumenPipeline", "LumenImg2ImgPipeline"]') + _TYPED),
    _exported(False, "in its own try", _HEAD + "    try:\n        if not is_torch_available():\n            raise OptionalDependencyNotAvailable()\n    except OptionalDependencyNotAvailable:\n        pass\n    else:\n        from .pipeline_lumen import LumenPipeline\n"),
    _exported(False, "extended", _HEAD.replace('_import_structure["pipeline_lumen"] = ["LumenPipeline"]', '_import_structure["pipeline_lumen"] = []\n    _import_structure["pipeline_lumen"].extend(["LumenPipeline"])') + _TYPED),
    _exported(False, "no lazy import", "from .pipeline_lumen import LumenPipeline\nfrom .pipeline_output import LumenPipelineOutput\n"),
    _light(True, "no file", _PACKAGE.replace("dummy_pt_objects", "dummy_torch_objects"), _LIGHT),
    _light(True, "another class", _PACKAGE, _LIGHT.replace("LumenPipeline", "LumenPipelines")),
    _light(True, "one of two", _PACKAGE.replace('["LumenPipeline"]', '["LumenPipeline", "LumenImg2ImgPipeline"]').replace("import LumenPipeline", "import LumenImg2ImgPipeline, LumenPipeline"), _LIGHT),
    _light(False, "both", _PACKAGE.replace('["LumenPipeline"]', '["LumenPipeline", "LumenImg2ImgPipeline"]').replace("import LumenPipeline", "import LumenImg2ImgPipeline, LumenPipeline"), _LIGHT + _LIGHT.replace("Lumen", "LumenImg2Img")),
    _light(False, "extended", _PACKAGE.replace('["pipelines"] = ["LumenPipeline"]', '["pipelines"] = []\n    _import_structure["pipelines"].extend(["LumenPipeline"])'), _LIGHT),
    _light(False, "a function", _PACKAGE.replace("LumenPipeline", "lumen_pipeline"), "def lumen_pipeline(*args, **kwargs):\n    requires_backends(lumen_pipeline, ['torch'])\n"),
    _broken("DFU311", "a line more", _P, (_CLASS, _RETRIEVE.replace('    """Latents of an image."""\n', "    generator = None\n") + _CLASS)),
    _broken("DFU311", "another default", _P, (_CLASS, _RETRIEVE.replace('sample_mode="sample"', 'sample_mode="argmax"') + _CLASS)),
    _broken("DFU311", "a method that is gone", _P, ("    def encode_prompt", _LATENTS_METHOD.replace(".enable_vae_slicing\n", ".enable_slices\n") + "\n    def encode_prompt")),
    _broken("DFU311", "a change that does not say all", _P, (_CLASS, _RETRIEVE.replace(".retrieve_latents\n", ".retrieve_latents with encoder_output->encoded\n") + _CLASS)),
    _fine("DFU311", "with a change", _P, (_CLASS, _RETRIEVE.replace("encoder_output", "encoded").replace(".retrieve_latents\n", ".retrieve_latents with encoder_output->encoded\n") + _CLASS)),
    _fine("DFU311", "formatted otherwise", _P, (_CLASS, _RETRIEVE.replace('(encoder_output, generator=None, sample_mode="sample")', "(\n    encoder_output,\n    generator=None,\n    sample_mode='sample',\n)") + _CLASS)),
    _fine("DFU311", "adapted", _P, (_CLASS, _RETRIEVE.replace("Copied from", "Adapted from").replace("argmax", "mode") + _CLASS)),
    _broken("DFU405", "by number", _B, (_STORE, _STORE + "\n        for i, t in enumerate(block_state.timesteps):\n            noise = components.transformer(block_state.sigmas, t)\n            block_state.sigmas = components.scheduler.step(noise, t, block_state.sigmas)[0]")),
    _broken("DFU405", "with a bar", _B, (_STORE, _STORE + "\n        with self.progress_bar(total=4) as bar:\n            for t in block_state.timesteps:\n                block_state.sigmas = components.scheduler.step(block_state.sigmas, t, block_state.sigmas)[0]\n                bar.update()")),
    _broken("DFU405", "in a method", _B, (_STORE, _STORE + "\n        self.go(components, block_state)"), ("    @torch.no_grad()", "    def go(self, components, block_state):\n        for t in block_state.timesteps:\n            if block_state.sigmas is None:\n                continue\n            block_state.sigmas = components.scheduler.step(block_state.sigmas, t, block_state.sigmas)[0]\n\n    @torch.no_grad()")),
    _fine("DFU405", "a loop over something else", _B, (_STORE, _STORE + "\n        for t in block_state.timesteps:\n            block_state.sigmas = components.scheduler.scale_noise(block_state.sigmas, t)")),
    _fine("DFU405", "one step", _B, (_STORE, _STORE + "\n        block_state.sigmas = components.scheduler.step(block_state.sigmas, 0, block_state.sigmas)[0]")),
    _fine("DFU405", "a round that ends in its middle", _B, (_STORE, _STORE + "\n        for t in block_state.timesteps:\n            noise = components.transformer(block_state.sigmas, t)\n            if noise is None:\n                continue\n            block_state.sigmas = components.scheduler.step(noise, t, block_state.sigmas)[0]")),
    _broken("DFU401", "another name", _B, ("sigmas=block_state.sigmas", "sigmas=block_state.sigma_grid")),
    _broken("DFU401", "used in a sum", _B, (_STORE, "block_state.timesteps = components.scheduler.timesteps[block_state.start :]")),
    _broken("DFU401", "by keyword", _B, (_INPUTS, 'return [InputParam(name="num_inference_steps")]')),
    _fine("DFU401", "set before", _B, (_STORE, "block_state.shift = 3.0\n        block_state.timesteps = components.scheduler.timesteps * block_state.shift")),
    _fine("DFU401", "a template", _B, (_INPUTS, 'return [InputParam.template("num_inference_steps"), InputParam.template("sigmas")]')),
    _fine("DFU401", "a group", _B, (_INPUTS, 'return [InputParam(kwargs_type="denoiser_input_fields")]')),
    _broken("DFU402", "another name", _B, (_OUTPUT, 'return [OutputParam("sigmas_used")]')),
    _broken("DFU402", "by keyword", _B, (_OUTPUT, 'return [OutputParam(name="timesteps"), OutputParam(name="mu")]')),
    _broken("DFU402", "set in a variable only", _B, (_STORE, "timesteps = components.scheduler.timesteps")),
    _fine("DFU402", "an input that goes on", _B, (_OUTPUT, 'return [OutputParam("timesteps"), OutputParam("sigmas")]')),
    _fine("DFU402", "in two at once", _B, (_OUTPUT, 'return [OutputParam("timesteps"), OutputParam("count")]'), (_STORE, "block_state.timesteps, block_state.count = components.scheduler.timesteps, 4")),
    _fine("DFU402", "by a method", _B, (_STORE, "self.fill(components, block_state)"), ("    @torch.no_grad()", "    def fill(self, components, block_state):\n        block_state.timesteps = components.scheduler.timesteps\n\n    @torch.no_grad()")),
    _broken("DFU403", "none", _B, ("    @property\n    def expected_components(self):\n        " + _SPECS + "\n\n", "")),
    _broken("DFU403", "another one", _B, (_SPECS, 'return [ComponentSpec("vae", FlowMatchEulerDiscreteScheduler)]')),
    _broken("DFU403", "one more", _B, (_STORE, "block_state.timesteps = components.scheduler.timesteps.to(components.transformer.device)")),
    _fine("DFU403", "by keyword", _B, (_SPECS, 'return [ComponentSpec(name="scheduler", type_hint=FlowMatchEulerDiscreteScheduler)]')),
    _fine("DFU403", "a setting", _B, ("    @property\n    def inputs", '    @property\n    def expected_configs(self):\n        return [ConfigSpec("is_distilled", False)]\n\n    @property\n    def inputs'), (_STORE, "block_state.timesteps = components.scheduler.timesteps if components.is_distilled else None")),
    _fine("DFU403", "what the pipeline has", _B, ("class LumenSetTimestepsStep", "class LumenModularPipeline(ModularPipeline):\n    @property\n    def shift(self):\n        return 3.0\n\n\nclass LumenSetTimestepsStep"), ("import ModularPipelineBlocks", "import ModularPipeline, ModularPipelineBlocks"), (_STORE, "block_state.timesteps = components.scheduler.timesteps * components.shift")),
    _fine("DFU403", "asks whether it is there", _B, (_STORE, _STORE + '\n        if hasattr(components, "watermark"):\n            components.watermark(block_state)')),
    _broken("DFU403", "asks for another", _B, (_STORE, _STORE + '\n        if hasattr(components, "watermark"):\n            components.mark(block_state)')),
    _fine("DFU404", "the class of a component", _B, (_IMPORT, "import torch\nfrom diffusers.pipelines.ltx2.vocoder import LTX2Vocoder\n")),
    _broken("DFU404", "a function", _B, (_IMPORT, "import torch\nfrom diffusers.pipelines.wan.pipeline_wan import prompt_clean\n")),
    _broken("DFU404", "a pipeline", _B, (_IMPORT, "import torch\nfrom diffusers.pipelines.flux import FluxPipeline as Flux\n")),
    _broken("DFU404", "by the folder", _B, (_IMPORT, "import torch\nfrom diffusers.pipelines.qwenimage.pipeline_qwenimage import (\n    calculate_shift,\n)\n")),
    _fine("DFU404", "a mixin", _B, (_IMPORT, "import torch\nfrom diffusers.pipelines.pipeline_utils import StableDiffusionMixin\n")),
    _fine("DFU404", "another part", _B, (_IMPORT, "import torch\nfrom diffusers.guiders import ClassifierFreeGuidance\n")),
    _runs(True, "a name of blocks that are gone", _MODULAR.replace("LumenSetTimestepsStep", "LumenAutoBlocks")),
    _runs(True, "none at all", _MODULAR.replace('"LumenSetTimestepsStep"', "None")),
    _runs(True, "another attribute", _MODULAR.replace("default_blocks_name", "blocks_name")),
    _runs(False, "in a class above", _MODULAR + "\n\nclass LumenImg2ImgModularPipeline(LumenModularPipeline):\n    pass\n"),
    _runs(False, "with its type", _MODULAR.replace("default_blocks_name =", "default_blocks_name: str =")),
    _runs(False, "a base that is never made", _MODULAR.replace("class LumenModularPipeline(ModularPipeline)", "class LumenBase(ModularPipeline):\n    pass\n\n\nclass LumenModularPipeline(LumenBase)")),
    _mapped(True, "an entry of another model", table=_TABLE.replace('"lumen"', '"lumens"')),
    _mapped(True, "the class as a key", table=_TABLE.replace(_MAPPED, '("LumenModularPipeline", "lumen")')),
    _mapped(True, "a model of blocks that was renamed", blocks=_OWN_BLOCKS.replace('"lumen"', '"lumen-2"')),
    _mapped(False, "a plain dict", table=_TABLE.replace(f"OrderedDict([{_MAPPED}])", '{"lumen": "LumenModularPipeline"}')),
    _mapped(False, "an entry that looks at the config", table=_TABLE.replace(_MAPPED, '("lumen", lambda config: "LumenModularPipeline")')),
    _mapped(False, "two pipelines of one model", own=_OWN + "\n\nclass LumenTurboModularPipeline(ModularPipeline):\n    default_blocks_name = \"LumenBlocks\"\n"),
    _broken("DFU135", "at the top", _T, ("import torch\n", "import torch\nimport lumen_authors\n")),
    _broken("DFU135", "a part of it, under a name", _T, ("import torch\n", "import torch\nimport lumen_authors.layers as layers\n")),
    _broken("DFU135", "in a method", _T, ("encoder_hidden_states, return_dict: bool = True):\n", "encoder_hidden_states, return_dict: bool = True):\n        from lumen_authors import attend\n")),
    _fine("DFU135", "a requirement of diffusers", _T, ("import torch\n", "import numpy as np\nimport torch\n")),
    _fine("DFU135", "under a condition", _T, ("import torch\n", "import torch\nfrom diffusers.utils import is_xformers_available\n\nif is_xformers_available():\n    import xformers\n")),
    _fine("DFU135", "that may fail", _T, ("import torch\n", "import torch\n\ntry:\n    from lumen_kernels import attend\nexcept ImportError:\n    attend = None\n")),
    _fine("DFU404", "its own file", _B, (_IMPORT, "import torch\n\nfrom .transformer_lumen import LumenRope\n")),
]  # fmt: skip
