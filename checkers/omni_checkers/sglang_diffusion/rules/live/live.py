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
    """The package can be imported beside SGLang, which then finds its pipeline and its denoiser by their names.

    Why: SGLang logs a line and goes on: another pipeline of that name serves the checkpoint, or diffusers' denoiser
    runs in the place of yours, slower and without SGLang's attention.

    Fine when: the model needs a package, or a device, that is not here; a package that is missing altogether is said,
    and is no finding.
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
    """Configs can be constructed, and what a checkpoint's config says of the denoiser stays what it is.

    They are constructed as SGLang does, without arguments; then `update_model_arch` is given diffusers' defaults, twice
    as large where they are whole numbers.

    Why: SGLang constructs them before anything is loaded. A `__post_init__` that sets a size by itself makes a
    checkpoint of another size fail while it is loaded, or be half filled.

    Fine when: a value of diffusers means something else in SGLang's class; then give the field another name.
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
    """The callbacks of a PipelineConfig answer what SGLang's stages take: called, as these call them, on tiny tensors.

    Judged are scale and shift, the weight of guidance, sigmas, the shape and the kind of noise, its packing, embeddings
    and conditions. A callback that fails on a bare request is not judged.

    Why: a scale and a shift of other shapes, sigmas that rise, or noise that is packed into other numbers end in noise
    for a picture, and only sometimes in an error.

    Fine when: your own stages, and not SGLang's, are what calls it.
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
    """What a run found of one kind, at the class or the method that it is about."""
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
