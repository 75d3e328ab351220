"""Rules about towers for pictures and sound: VEO605 to VEO607."""

import ast
from collections.abc import Iterator

from omni_checkers.engine.files import walked
from omni_checkers.engine.rule import Finding, Findings, NotApplicable, Rule, Severity
from omni_checkers.veomni.facts.callees import modules_of
from omni_checkers.veomni.facts.generated import Generated
from omni_kit.pysource.source import dotted
from omni_kit.upstream.kinds import MULTIMODAL

DUMMY = "dummy_forward"
_SIZES = 4
_FILE = "generated/patched_modeling_qwen3_vl_gpu.py"
_HEAD = """\
# Source: transformers.models.qwen3_vl.modeling_qwen3_vl
import torch
from transformers import PreTrainedModel
from transformers.models.qwen3_vl.configuration_qwen3_vl import Qwen3VLConfig, Qwen3VLVisionConfig
from veomni.distributed.parallel_state import get_parallel_state


class Qwen3VLVisionModel(PreTrainedModel):
    config: Qwen3VLVisionConfig

"""
_DUMMY = """\
    def dummy_forward(self):
        merge = self.config.spatial_merge_size
        row = self.config.in_channels * self.config.temporal_patch_size * self.config.patch_size**2
        pixels = torch.zeros(4 * merge * merge, row, dtype=self.patch_embed.proj.weight.dtype)
        return self(pixels, grid_thw=torch.tensor([[1, 2 * merge, 2 * merge]]))

"""
_MODEL = """\

class Qwen3VLModel(PreTrainedModel):
    config: Qwen3VLConfig

    def __init__(self, config):
        super().__init__(config)
        self.visual = Qwen3VLVisionModel._from_config(config.vision_config)
        self.language_model = Qwen3VLTextModel._from_config(config.text_config)
        self.rope_deltas = None
        self.post_init()

    def with_pictures(self, embeds, pixel_values=None, grid_thw=None):
        if pixel_values is not None:
            return embeds + self.visual(pixel_values, grid_thw)
"""
_FALLBACK = """\
        if get_parallel_state().fsdp_enabled:
            return embeds + self.visual.dummy_forward().mean() * 0.0
        return embeds
"""


def _example(*parts: str) -> dict[str, str]:
    return {_FILE: _HEAD + "".join(parts)}


class TowersHaveDummies(Rule):
    """Define `dummy_forward` on every image or audio tower.

    Why: under FSDP all ranks gather a tower's weights together. A rank whose batch has no images must run the tower on
    dummy input, or the others wait until the collective times out.

    Fine when: every batch of every rank has images, or the tower is not sharded.
    """

    id = "VEO605"
    name = "tower-has-dummy-forward"
    target = "veomni"
    kinds = MULTIMODAL
    obligations = ("VEO-VLM-01", "VEO-OMNI-01")
    failure_modes = ("dummy-forward-shape-sp",)
    example_of = "qwen3_vl"
    BAD = (_example(_MODEL, _FALLBACK),)
    GOOD = (_example(_DUMMY, _MODEL, _FALLBACK),)

    def check(self, generated: list[Generated]) -> Findings:
        for item, name in _towers(generated):
            if item.source.method(name, DUMMY) is None and not _always_fed(item, name):
                message = f"{name} has no {DUMMY}: other ranks wait forever for a rank without input"
                yield Finding(message, item.file.path, item.classes[name].lineno)


class DummiesAreCalled(Rule):
    """Call the tower's `dummy_forward` when its input is missing.

    Why: a rank without images does not join the tower's collectives, and training hangs on the first uneven batch.

    Fine when: the caller is outside the generated file.
    """

    id = "VEO606"
    name = "dummy-forward-is-called"
    target = "veomni"
    kinds = MULTIMODAL
    obligations = ("VEO-VLM-02", "VEO-OMNI-01")
    failure_modes = ("dummy-forward-shape-sp",)
    example_of = "qwen3_vl"
    BAD = (_example(_DUMMY, _MODEL, "        return embeds\n"),)
    GOOD = (_example(_DUMMY, _MODEL, _FALLBACK),)

    def check(self, generated: list[Generated]) -> Findings:
        for item, name in _towers(generated):
            owners = list(_owners(item, name))
            if item.source.method(name, DUMMY) is None or not owners:
                continue
            if not any(_calls_dummy(item, attribute) for _, attribute in owners):
                owner, attribute = owners[0]
                message = f"{owner} never calls self.{attribute}.{DUMMY}()"
                yield Finding(message, item.file.path, item.classes[owner].lineno)
            for owner in {owner for owner, _ in owners}:
                for function in (node for node in item.classes[owner].body if isinstance(node, ast.FunctionDef)):
                    for asked, line in _without_dummy(function):
                        message = f"{owner}.{function.name} calls {DUMMY} for other inputs, but not without {asked}"
                        yield Finding(message, item.file.path, line)


class DummyShapesFromConfig(Rule):
    """Take the input sizes of `dummy_forward` from the config, not from numbers.

    Numbers up to 4 count frames, patches or axes; larger ones are sizes of one variant of the model.

    Why: the dummy fits only the first checkpoint. With other patches or channels the first rank without images raises a
    shape error, hours into a run.

    Fine when: upstream's own code fixes the size.
    """

    id = "VEO607"
    name = "dummy-forward-takes-sizes-from-config"
    severity = Severity.warning
    target = "veomni"
    kinds = MULTIMODAL
    obligations = ("VEO-VLM-03",)
    failure_modes = ("dummy-forward-shape-sp",)
    example_of = "qwen3_vl"
    BAD = (
        _example(
            "    def dummy_forward(self):\n        return self(torch.zeros(16, 3 * 2 * 14 * 14), grid_thw=None)\n"
        ),
    )
    GOOD = (_example(_DUMMY),)

    def check(self, generated: list[Generated]) -> Findings:
        judged = False
        for item in generated:
            for name, node in item.classes.items():
                for function in (f for f in node.body if isinstance(f, ast.FunctionDef) and f.name.endswith(DUMMY)):
                    judged = True
                    if numbers := sorted(set(_numbers(function))):
                        shown = ", ".join(map(str, numbers))
                        yield Finding(
                            f"{name}.{function.name} hard-codes the sizes {shown}", item.file.path, function.lineno
                        )
        if not judged:
            raise NotApplicable(f"no class defines {DUMMY}")


def _towers(generated: list[Generated]) -> Iterator[tuple[Generated, str]]:
    """Model classes whose config is one for pictures or sound, and that a model of the file owns."""
    found = []
    for item in generated:
        for name in item.classes:
            config = item.config_class(name)
            about = (
                config.name.removesuffix("Config").endswith(("Vision", "VisionEncoder", "AudioEncoder", "Audio"))
                if config
                else False
            )
            if about and "PreTrained" not in name and list(_owners(item, name)) and _is_model(item, name):
                found.append((item, name))
    if not found:
        raise NotApplicable("no generated class is an image or audio tower")
    yield from found


def _always_fed(item: Generated, tower: str) -> bool:
    """Return whether each model that owns the tower makes up the input that it lacks, for every input that it looks
    for.
    """
    owners = {owner for owner, _ in _owners(item, tower)}
    methods = [node for owner in owners for node in item.classes[owner].body if isinstance(node, ast.FunctionDef)]
    asked = [(method, name) for method in methods for name, block in _scattered(method)]
    return bool(asked) and all(name in _made_up(method) for method, name in asked)


def _scattered(function: ast.FunctionDef) -> Iterator[tuple[str, ast.If]]:
    """Yield the inputs that a method looks for to put features in their place."""
    for node in walked(function):
        match node:
            case ast.If(ast.Compare(ast.Name(name), [ast.IsNot()], [ast.Constant(None)]), body):
                if "masked_scatter" in _calls(body):
                    yield name, node


def _made_up(function: ast.FunctionDef) -> set[str]:
    """Return the names that a method assigns from a call if they are None."""
    found = set()
    for node in walked(function):
        if isinstance(node, ast.If):
            lacking = {one.left.id for one in walked(node.test) if isinstance(one, ast.Compare)
                       and isinstance(one.left, ast.Name) and ast.unparse(one).endswith(" is None")}  # fmt: skip
            for statement in node.body:
                if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Call):
                    names = {
                        one.id for target in statement.targets for one in walked(target) if isinstance(one, ast.Name)
                    }
                    found |= lacking & names
    return found


def _is_model(item: Generated, name: str) -> bool:
    return any(base.rpartition(".")[2].endswith("PreTrainedModel") for base in item.source.bases(item.classes[name]))


def _owners(item: Generated, tower: str) -> Iterator[tuple[str, str]]:
    """(class, attribute) of every model that makes the tower in `__init__`, by name or through `_from_config`."""
    for owner in item.classes:
        for attribute, made in modules_of(item.source, owner):
            if made == tower:
                yield owner, attribute
        initialiser = item.source.method(owner, "__init__")
        for node in walked(initialiser) if initialiser is not None else ():
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                target = dotted(node.targets[0]) or ""
                if dotted(node.value.func) == f"{tower}._from_config" and target.startswith("self."):
                    yield owner, target.removeprefix("self.")


def _without_dummy(function: ast.FunctionDef) -> Iterator[tuple[str, int]]:
    """Yield inputs that are looked for as others are, where for others the dummy is called when they are missing."""
    blocks: dict[str, tuple[ast.If, bool]] = {}
    for node in walked(function):
        match node:
            case ast.If(ast.Compare(ast.Name(name), [ast.IsNot()], [ast.Constant(None)]), body, orelse):
                if "masked_scatter" in _calls(body):
                    blocks[name] = node, DUMMY in _calls(orelse)
    if any(called for _, called in blocks.values()):
        yield from ((name, node.lineno) for name, (node, called) in blocks.items() if not called)


def _calls(body: list[ast.stmt]) -> set[str]:
    """Return the last names of what is called in statements."""
    calls = [node for statement in body for node in walked(statement) if isinstance(node, ast.Call)]
    return {(dotted(call.func) or ast.unparse(call.func)).rpartition(".")[2] for call in calls}


def _calls_dummy(item: Generated, attribute: str) -> bool:
    """Return whether something calls the dummy of this attribute, under whatever name the attribute is reached."""
    for node in item.file.nodes(ast.Call):
        name = dotted(node.func) or ""
        if name.endswith(f"{attribute}.{DUMMY}"):
            return True
        if name.endswith(f".{DUMMY}") and "." not in name.removesuffix(f".{DUMMY}"):
            return True  # a local name for the tower
    return False


def _numbers(function: ast.FunctionDef) -> Iterator[int]:
    for node in walked(function):
        if isinstance(node, ast.Constant) and type(node.value) is int and node.value > _SIZES:
            yield node.value
