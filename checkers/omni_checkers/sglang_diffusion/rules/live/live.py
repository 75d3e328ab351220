"""Rules about what only a run can tell: SGD701 to SGD703."""

from collections.abc import Iterator, Mapping
from typing import Any

from omni_checkers.engine.places import at
from omni_checkers.engine.rule import Finding, Findings, NotApplicable, Rule
from omni_checkers.sglang_diffusion.examples import ARCH, CONFIG, PACKAGE, QWEN, SAMPLING, changed
from omni_checkers.sglang_diffusion.facts.serving import Serving

Constructed = Mapping[str, Any]
_REQUIRES = ("torch", "sglang")
_POST_INIT, _HOOK = "        super().__post_init__()\n", "    def get_decode_scale"
_RISING = """    def prepare_sigmas(self, sigmas, num_inference_steps):
        return [i / num_inference_steps for i in range(num_inference_steps)]

"""
_NOTHING = """    def get_classifier_free_guidance_scale(self, batch, guidance_scale):
        return None

"""


class PackageRegistersItself(Rule):
    """The package imports next to SGLang, and SGLang finds its pipeline and denoiser by name.

    Why: SGLang only logs a line and continues: another pipeline of that name serves the checkpoint, or diffusers'
    denoiser runs instead of yours, slower and without SGLang's attention.

    Fine when: the model needs a package or a device that this machine does not have. A missing package is a note, not a
    finding.
    """

    id = "SGD701"
    name = "package-registers-itself"
    target = "sglang-diffusion"
    level = "import"
    requires = _REQUIRES
    obligations = ("SGL-41", "SGL-42")
    BAD = (
        {PACKAGE: "import json.no_such_module\n" + QWEN[PACKAGE]},
        {PACKAGE: QWEN[PACKAGE].replace("\nregister()\n", "\nif not register:\n    register()\n")},
        changed(CONFIG, ('    vae_precision: str = "bf16"', '    vae_precision: str = "bf16"\n'
                         '    transformer_class_override: str | None = "QwenDenoiser"')),
    )  # fmt: skip
    GOOD = ({PACKAGE: QWEN[PACKAGE]},)

    def check(self, constructed: Constructed, serving: Serving) -> Findings:
        _excuse(constructed)
        if constructed["error"]:
            yield at(serving.cls.source, serving.cls.node, f"importing the package fails: {constructed['error']}")
        yield from _said(constructed, "registered", serving)


class ConfigsTakeWhatCheckpointsSay(Rule):
    """Configs construct without arguments and keep the values of a checkpoint's config.

    The rule constructs them as SGLang does. It then calls `update_model_arch` with diffusers' defaults, and with
    integers doubled.

    Why: SGLang constructs configs before it reads the checkpoint. A `__post_init__` that sets a size itself breaks
    loading of checkpoints with another size, or fills only half of the weights.

    Fine when: a value means something else in SGLang's class; then give the field another name.
    """

    id = "SGD702"
    name = "configs-take-what-checkpoints-say"
    target = "sglang-diffusion"
    level = "import"
    requires = _REQUIRES
    obligations = ("SGL-20", "SGL-23")
    BAD = (
        changed(ARCH, (_POST_INIT, f"{_POST_INIT}        self.num_layers = 60\n")),
        changed(
            SAMPLING, ("frames: int = 1\n", "frames: int = 1\n\n    def __post_init__(self):\n        self.steps / 2\n")
        ),
        changed(ARCH, ("self.num_attention_heads * self", "self.num_heads * self")),
    )
    GOOD = ({ARCH: QWEN[ARCH], SAMPLING: QWEN[SAMPLING]},)

    def check(self, constructed: Constructed, serving: Serving) -> Findings:
        _excuse(constructed)
        yield from _said(constructed, "config", serving)


class CallbacksAnswerWhatStagesTake(Rule):
    """PipelineConfig callbacks return values of the shapes and ranges that SGLang's stages expect.

    The rule calls them as the stages do, on tiny tensors: scale and shift, guidance weight, sigmas, shape and kind of
    noise, packing, embeddings and conditions. It skips a callback that raises on a minimal request.

    Why: scale and shift of other shapes, increasing sigmas, or noise whose packing changes its values produce noise
    instead of an image, and rarely an error.

    Fine when: only your own stages call them.
    """

    id = "SGD703"
    name = "callbacks-answer-what-stages-take"
    target = "sglang-diffusion"
    level = "import"
    requires = _REQUIRES
    obligations = ("SGL-26", "SGL-28", "SGL-33")
    BAD = (
        changed(CONFIG, ("        return scale, mean", "        return scale, mean, None")),
        changed(CONFIG, (_HOOK, _RISING + _HOOK)),
        changed(CONFIG, (_HOOK, _NOTHING + _HOOK)),
    )
    GOOD = ({CONFIG: QWEN[CONFIG]},)

    def check(self, constructed: Constructed, serving: Serving) -> Findings:
        _excuse(constructed)
        yield from _said(constructed, "callback", serving)


def _said(constructed: Constructed, kind: str, serving: Serving) -> Iterator[Finding]:
    """Yield a run's findings of one kind, at the class or the method that each is about."""
    classes = {
        "pipeline": serving.cls, "config": serving.config, "sampling": serving.sampling, "arch": serving.arch_config,
    }  # fmt: skip
    for what, part, method, message in constructed["wrong"]:
        cls = classes.get(part) or serving.cls
        home = cls.method(method) if method else None
        if what == kind and (home is None or serving.is_own(home[0])):
            source, node = (home[0].source, home[1]) if home is not None else (cls.source, cls.node)
            yield at(source, node, message)


def _excuse(constructed: Constructed) -> None:
    if constructed["lacks"]:
        raise NotApplicable(f"the pipeline needs {constructed['lacks']}, which is not installed")
