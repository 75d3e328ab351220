"""The rules about the classes of configs and of the denoiser: SGD103, SGD104 and SGD105."""

import ast
from collections.abc import Iterator

from omni_checkers.engine.files import walked
from omni_checkers.engine.places import at
from omni_checkers.engine.rule import Finding, Findings, NotApplicable, Rule
from omni_checkers.sglang_diffusion.examples import ARCH, CONFIG, DIT, QWEN, STAGE, changed
from omni_checkers.sglang_diffusion.facts.serving import Serving, own_methods
from omni_checkers.sglang_diffusion.facts.sources import Sources, fields, own_classes, unseen_bases
from omni_checkers.sglang_diffusion.facts.stages import StageUse
from omni_kit.pysource.classes import ClassRef
from omni_kit.pysource.signatures import (
    decorators,
    double_star,
    misfit,
    named,
    parameters,
    positional,
    required,
    signature,
    star,
)
from omni_kit.pysource.source import dotted

_CONFIGS = ("PipelineConfig", "SamplingParams", "ModelConfig", "ArchConfig", "DiTConfig", "DiTArchConfig")
_HEADS, _WIDTH, _HEAD = "num_attention_heads", "hidden_size", "attention_head_dim"
_MAPPING = "param_names_mapping"
_STAGE_METHODS = frozenset({"forward", "verify_input", "verify_output", "component_uses"})


class ConfigsAreDataclasses(Rule):
    """Make every config a dataclass and annotate its fields.

    A subclass of DiTArchConfig provides the denoiser's `arch_config`. Each config class with fields carries
    `@dataclass`, and a subclass annotates a field again when it changes the default.

    Why: SGLang copies config.json to arch_config with setattr. On a dict that raises, SGLang logs the error, and
    diffusers' class runs instead of yours. Fields without `@dataclass` and defaults without annotations are silently
    ignored.

    Fine when: the attribute belongs to the class; then annotate it as ClassVar.
    """

    id = "SGD103"
    name = "configs-are-dataclasses"
    target = "sglang-diffusion"
    obligations = ("SGL-20", "SGL-21", "SGL-22", "SGL-23")
    failure_modes = ("sampling-defaults",)
    BAD = (
        changed(ARCH, ("field(default_factory=QwenArchConfig)", "field(default_factory=dict)")),
        changed(CONFIG, ("@dataclass\nclass QwenPipelineConfig", "class QwenPipelineConfig")),
        changed(CONFIG, ('vae_precision: str = "bf16"', 'vae_precision = "bf16"')),
    )  # fmt: skip
    GOOD = ({ARCH: QWEN[ARCH], CONFIG: QWEN[CONFIG]},)

    def check(self, serving: Serving) -> Findings:
        if serving.config is None:
            raise NotApplicable("this pipeline has no PipelineConfig that can be found")
        if serving.dit_config is not None:
            yield from _arch(serving, serving.dit_config)
        roots = (serving.config, serving.sampling, serving.dit_config, serving.arch_config, serving.vae_config)
        classes = {id(one.node): one for root in roots if root is not None for one in own_classes(root)}
        for cls in classes.values():
            if serving.is_own(cls) and cls.is_a(*_CONFIGS):
                yield from _fields(cls)


def _arch(serving: Serving, config: ClassRef) -> Iterator[Finding]:
    found = config.assigned("arch_config")
    if found is None or not serving.is_own(found[0]):
        return
    arch = serving.arch_config
    if arch is None and _is_plain(found[1]):
        message = f"arch_config of {config.node.name} is not a DiTArchConfig: config.json cannot be applied to it"
        yield at(found[0].source, found[1], message)
    elif arch is not None and not arch.is_a("DiTArchConfig") and not unseen_bases(arch):
        yield at(found[0].source, found[1], f"{arch.node.name} is not a DiTArchConfig")


def _is_plain(node: ast.expr) -> bool:
    """Return whether a default is a dict, or a factory of dicts."""
    if isinstance(node, (ast.Dict, ast.DictComp)):
        return True
    if isinstance(node, ast.Call) and (dotted(node.func) or "").endswith("field"):
        values = [word.value for word in node.keywords]
        bodies = [value.body if isinstance(value, ast.Lambda) else value for value in values]
        return any(_is_plain(body) or dotted(body) in ("dict", "SimpleNamespace") for body in bodies)
    return isinstance(node, ast.Call) and dotted(node.func) in ("dict", "SimpleNamespace", "types.SimpleNamespace")


def _fields(cls: ClassRef) -> Iterator[Finding]:
    declared = fields(cls)
    if declared and "dataclass" not in decorators(cls.node):
        node = next(iter(declared.values()))
        message = f"{cls.node.name} has fields and no @dataclass: '{next(iter(declared))}' keeps the base's default"
        yield at(cls.source, node, message)
        return
    above = {name: base for base in reversed(list(own_classes(cls))[1:]) for name in fields(base)}
    for item in cls.node.body:
        if isinstance(item, ast.Assign) and "dataclass" in decorators(cls.node):
            for target in item.targets:
                if isinstance(target, ast.Name) and target.id in above and target.id not in declared:
                    base = above[target.id].node.name
                    yield at(
                        cls.source, item, f"'{target.id}' has no annotation: an instance has the default of {base}"
                    )


class DenoiserIsBaseDiT(Rule):
    """Derive the denoiser from BaseDiT, with the loader's constructor and a declared width.

    It takes `config` and `hf_config` under these names, has no other required argument, and has a
    `param_names_mapping`. Its architecture has a nonzero number of heads, and a `hidden_size` unless it has
    `attention_head_dim`.

    Why: if the loader cannot build the denoiser, it logs an error and uses diffusers' class instead of yours. Without
    heads DenoisingStage divides by zero.

    Fine when: the pipeline has its own loader for its denoiser.
    """

    id = "SGD104"
    name = "denoiser-is-basedit"
    target = "sglang-diffusion"
    obligations = ("SGL-10", "SGL-13")
    failure_modes = ("param-name-mapping-skip",)
    BAD = (
        changed(DIT, ("class QwenDiT(BaseDiT)", "class QwenDiT(nn.Module)")),
        changed(DIT, ("(self, config, hf_config, quant_config=None, **kwargs)", "(self, config)")),
        changed(ARCH, ("    num_attention_heads: int = 24\n", "")),
    )  # fmt: skip
    GOOD = ({DIT: QWEN[DIT], ARCH: QWEN[ARCH]},)

    def check(self, serving: Serving) -> Findings:
        dit = serving.denoiser
        if dit is None or not serving.is_own(dit):
            raise NotApplicable("the integration has no denoiser of its own")
        if not dit.is_a("BaseDiT"):
            if _value(dit, _MAPPING) is None or dit.method("post_load_weights") is None:
                yield at(
                    dit.source, dit.node, f"{dit.node.name} is not a BaseDiT: the loader falls back to diffusers' class"
                )
            return
        yield from _constructor(dit)
        if _value(dit, _MAPPING) is None:
            yield at(dit.source, dit.node, f"{dit.node.name} does not define '{_MAPPING}'")
        arch = serving.arch_config
        if arch is not None and serving.is_own(arch) and not unseen_bases(arch):
            for name in (_HEADS,) if _told(arch, _HEAD) else (_HEADS, _WIDTH):
                if not _told(arch, name) and not (serving.dit_config and _told(serving.dit_config, name)):
                    yield at(
                        arch.source,
                        arch.node,
                        f"{arch.node.name} leaves '{name}' at 0: DenoisingStage needs the head dimension",
                    )


def _told(cls: ClassRef, name: str) -> bool:
    """Return whether a config gives a field a value, by default, in a method or as a property."""
    for entry in own_classes(cls):
        if entry.node.name in _CONFIGS:
            continue
        if entry.defines(name) is not None or _set(entry, name):
            return True
        value = fields(entry)[name].value if name in fields(entry) else None
        if value is not None and not (isinstance(value, ast.Constant) and value.value in (0, None)):
            return True
    return False


def _constructor(dit: ClassRef) -> Iterator[Finding]:
    found = dit.method("__init__")
    if found is None:
        return
    home, init = found
    for name in ("config", "hf_config"):
        if name not in parameters(init) and init.args.kwarg is None:
            yield at(home.source, init, f"{dit.node.name} does not accept '{name}', which the loader passes")
    for name in required(signature(init, bound=True)):
        if name not in ("config", "hf_config"):
            yield at(home.source, init, f"{dit.node.name} requires '{name}', which the loader does not pass")


def _value(cls: ClassRef, name: str) -> ast.expr | None:
    """Return the value of a class attribute; an annotation alone is not a value."""
    for entry in own_classes(cls):
        for item in entry.node.body:
            targets = item.targets if isinstance(item, ast.Assign) else [getattr(item, "target", None)]
            if any(isinstance(one, ast.Name) and one.id == name for one in targets):
                value = getattr(item, "value", None)
                if isinstance(value, ast.expr):
                    return value
    return None


def _set(cls: ClassRef, name: str) -> bool:
    """Return whether a method of a class sets an attribute of the instance."""
    stored = (node for node in walked(cls.node) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store))
    return any(node.attr == name and dotted(node.value) == "self" for node in stored)


class OverridesTakeWhatSGLangGives(Rule):
    """Override SGLang's methods with signatures that accept SGLang's calls.

    An overriding method of a PipelineConfig or of a stage accepts as many positional arguments as SGLang's, has no
    other required arguments, and accepts the keywords that SGLang uses.

    Why: the first request raises TypeError. `get_decode_scale_and_shift(self)` fails after all steps are done, and
    callbacks with the published guide's signature receive `timestep` twice.

    Fine when: only your own code calls the stage's methods.
    """

    id = "SGD105"
    name = "overrides-take-what-sglang-gives"
    target = "sglang-diffusion"
    obligations = ("SGL-26", "SGL-28", "SGL-29", "SGL-31")
    BAD = (
        changed(CONFIG, ("get_decode_scale_and_shift(self, device, dtype, vae)", "get_decode_scale_and_shift(self)")),
        changed(CONFIG, ("kwargs(self, batch, device, rotary_emb, dtype)", "kwargs(self, batch, latents, t, **more)")),
        changed(STAGE, ("def forward(self, batch: Req, server_args: ServerArgs)", "def forward(self, batch: Req)")),
    )  # fmt: skip
    GOOD = ({CONFIG: QWEN[CONFIG], STAGE: QWEN[STAGE]},)

    def check(self, serving: Serving, sglang: Sources, stages: list[StageUse] | None = None) -> Findings:
        classes = [serving.config] if serving.config is not None else []
        seen: set[int] = set()
        for cls in [*classes, *(one.cls for one in stages or [])]:
            for home, function in own_methods(serving, cls):
                asked = not cls.is_a("PipelineStage") or function.name in _STAGE_METHODS
                if id(function) not in seen and asked:
                    seen.add(id(function))
                    yield from _compared(serving, cls, home, function)


def _compared(serving: Serving, cls: ClassRef, home: ClassRef, own: ast.FunctionDef) -> Iterator[Finding]:
    base = next(
        (
            (entry, found)
            for entry in home.mro[1:]
            if isinstance(entry, ClassRef) and not serving.is_own(entry) and (found := entry.defines(own.name))
        ),
        None,
    )
    static = ["staticmethod" in decorators(one) for one in (own, base[1])] if base is not None else []
    if base is None or static[0] != static[1] or own.name.startswith("_"):
        return
    where = f"{base[0].node.name}.{own.name}"
    mine, theirs = signature(own, bound=True), signature(base[1], bound=True)
    took, given = positional(mine), positional(theirs)
    needed = [name for name in required(theirs) if name in given]
    extra = [name for name in required(mine) if name not in named(theirs) and name not in took[: len(needed)]]
    if misfit(mine, len(needed), (), partial=True) and not (double_star(mine) and {*took} <= {*given}):
        yield at(home.source, own, f"{where} is called with ({', '.join(given)}), but this accepts ({', '.join(took)})")
    elif extra:
        yield at(home.source, own, f"{where} is called without '{extra[0]}', which this requires")
    elif not star(mine) and (lost := [one for one in given if one in _SPELLED and misfit(mine, 0, [one], True)]):
        yield at(home.source, own, f"{where} is called with '{lost[0]}=', which this does not accept")


_SPELLED = frozenset({"dtype"})
"""Arguments that SGLang passes by name to the callbacks of a config."""
