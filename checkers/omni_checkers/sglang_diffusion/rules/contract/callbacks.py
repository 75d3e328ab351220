"""Rules on callbacks of a pipeline's config: SGL201."""

import ast

from omni_checkers.engine.rule import Finding, Findings, NotApplicable, Rule
from omni_checkers.sglang_diffusion.facts.classes import CONFIG, Classes
from omni_kit.upstream.kinds import Kind

# Callback -> its arguments after self, as SGLang passes them: those in `_BY_NAME` by name, the others by place.
_CALLED = {
    "prepare_pos_cond_kwargs": ("batch", "device", "rotary_emb", "dtype"),
    "prepare_neg_cond_kwargs": ("batch", "device", "rotary_emb", "dtype"),
    "get_decode_scale_and_shift": ("device", "dtype", "vae"),
    "get_pos_prompt_embeds": ("batch",),
    "get_neg_prompt_embeds": ("batch",),
    "get_classifier_free_guidance_scale": ("batch", "guidance_scale"),
    "postprocess_cfg_noise": ("batch", "noise_pred", "noise_pred_cond"),
    "post_denoising_loop": ("latents", "batch"),
    "post_decoding": ("frames", "server_args"),
}
_BY_NAME = frozenset({"dtype"})
_HEAD = """from sglang.multimodal_gen.configs.pipeline_configs.base import ImagePipelineConfig


def register():
    pass


class Served(ImagePipelineConfig):
"""


class CallbacksAreCalledSo(Rule):
    """A callback of a pipeline's config takes what SGLang's stages call it with.

    Why: a TypeError at the first request; the published guide shows other signatures than SGLang has.

    Fine when: never.
    """

    id = "SGL201"
    name = "callbacks-are-called-so"
    target = "sglang-diffusion"
    kinds = frozenset({Kind.pipeline})
    obligations = ("SGL-26", "SGL-28", "SGL-29")
    BAD = (
        {"pipeline_config.py": _HEAD + "    def get_decode_scale_and_shift(self):\n        return 1.0, None\n"},
        {"pipeline_config.py": _HEAD + "    def prepare_pos_cond_kwargs(self, batch, t):\n        return {}\n"},
    )
    GOOD = ({"pipeline_config.py": _HEAD + "    def get_decode_scale_and_shift(self, device, dtype, vae):\n        return 1.0, None\n"},)  # fmt: skip  # noqa: E501

    def check(self, classes: Classes) -> Findings:
        """See `Rule.check`."""
        configs = list(classes.of(CONFIG))
        if not configs:
            raise NotApplicable("it has no PipelineConfig of its own")
        for config in configs:
            for name, given in _CALLED.items():
                method = config.method(name)
                if method is not None and (why := _mismatch(method, given)):
                    yield Finding(f"{config.node.name}.{name} {why}", config.file.path, method.lineno)


def _mismatch(method: ast.FunctionDef, given: tuple[str, ...]) -> str:
    """How a signature does not take these arguments; empty where it does."""
    taken = method.args
    places = [one.arg for one in (*taken.posonlyargs, *taken.args)][1:]
    named = {*places, *(one.arg for one in taken.kwonlyargs)}
    by_place = [name for name in given if name not in _BY_NAME or "rotary_emb" not in given]
    by_name = [name for name in given if name not in by_place]
    shown = f"is called with ({', '.join(given)})"
    if len(places) < len(by_place) and taken.vararg is None:
        return f"takes {len(places)} arguments, and {shown}"
    if taken.kwarg is None and (absent := [name for name in by_name if name not in named]):
        return f"has no argument '{absent[0]}', and {shown}"
    required = len(places) - len(taken.defaults)
    extra = [name for name in places[len(by_place) : required] if name not in by_name]
    return f"also wants '{extra[0]}', and {shown}" if extra else ""
