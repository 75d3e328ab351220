"""Rules about what models with pictures or sound tell VeOmni's data pipeline: VEO601 to VEO604."""

import ast
from collections.abc import Iterator

from omni_checkers.engine.files import walked
from omni_checkers.engine.rule import Finding, Findings, NotApplicable, Rule, Severity
from omni_checkers.symbolic import Class
from omni_checkers.veomni.facts.callees import modules_of
from omni_checkers.veomni.facts.generated import Generated
from omni_checkers.veomni.facts.registry import Returned
from omni_kit.pysource.source import SourceFile, dotted
from omni_kit.upstream.kinds import MULTIMODAL

POSITIONS, METADATA = "get_position_id_func", "get_metadata_collate_func"
_FILE = "generated/patched_modeling_qwen3_vl_gpu.py"
_HEAD = """\
# Source: transformers.models.qwen3_vl.modeling_qwen3_vl
import copy
from functools import partial
from types import SimpleNamespace
from transformers import PreTrainedModel
from transformers.models.qwen3_vl.configuration_qwen3_vl import Qwen3VLConfig
from veomni.utils.constants import IMAGE_INPUT_INDEX, VIDEO_INPUT_INDEX


def get_position_id(main_func, self, **kwargs):
    return {"position_ids": main_func(self, **kwargs)}


def collate_multimodal_metadata(batch, sp_pad):
    batch["multimodal_metadata"] = {}


class Qwen3VLModel(PreTrainedModel):
    config: Qwen3VLConfig


class Qwen3VLForConditionalGeneration(PreTrainedModel):
    config: Qwen3VLConfig

"""
_POSITIONS = """\
    def get_position_id_func(self):
        config = copy.copy(self.config)
        config.image_token_id = IMAGE_INPUT_INDEX
        config.video_token_id = VIDEO_INPUT_INDEX
        return partial(get_position_id, Qwen3VLModel.get_rope_index, SimpleNamespace(config=config))

"""
_METADATA = "    def get_metadata_collate_func(self):\n        return collate_multimodal_metadata\n\n"
_NESTED = """\
    def get_position_id_func(self):
        config = copy.copy(self.config)
        config.image_token_id = IMAGE_INPUT_INDEX
        config.video_token_id = VIDEO_INPUT_INDEX

        def positions(**kwargs):
            return get_position_id(Qwen3VLModel.get_rope_index, SimpleNamespace(config=config), **kwargs)

        return positions

"""


def _example(text: str) -> dict[str, str]:
    return {_FILE: _HEAD + text}


class PipelineHooks(Rule):
    """Define `get_position_id_func` and `get_metadata_collate_func` on models with images or audio.

    They belong to the trained class, the one for conditional generation.

    Why: the trainer calls the first for the positions of each sample: without it, building the data pipeline raises
    AttributeError. Without the second, every forward synchronises with the device to read the lengths of the images.

    Fine when: the model has positions on one axis only, and its own trainer.
    """

    id = "VEO601"
    name = "multimodal-model-has-pipeline-hooks"
    severity = Severity.warning
    target = "veomni"
    kinds = MULTIMODAL
    obligations = ("VEO-VLM-08", "VEO-VLM-13")
    failure_modes = ("implicit-host-sync",)
    example_of = "qwen3_vl"
    BAD = (_example(_METADATA),)
    GOOD = (_example(_POSITIONS + _METADATA),)

    def check(self, generated: list[Generated], returned: list[Returned]) -> Findings:
        trained = {path.name for path in returned if isinstance(path.value, Class)}
        judged = False
        for item in generated:
            for name, node in item.classes.items():
                if name not in trained or not name.endswith("ForConditionalGeneration"):
                    continue
                judged = True
                for hook, why in (
                    (POSITIONS, "the trainer calls it"),
                    (METADATA, "every forward synchronises with the device"),
                ):
                    if item.source.method(name, hook) is None:
                        yield Finding(f"{name} has no {hook}: {why}", item.file.path, node.lineno)
        if not judged:
            raise NotApplicable("no class for conditional generation is returned")


class HooksCanBePickled(Rule):
    """Return picklable functions from `get_position_id_func` and `get_metadata_collate_func`.

    A module-level function is picklable, and so is a `functools.partial` of one with picklable values. Nested
    functions, lambdas and objects bound to the model are not.

    Why: data loader workers that do not fork raise "Can't pickle local object". A function bound to the model sends the
    whole model to every worker.

    Fine when: the data loader has no workers.
    """

    id = "VEO602"
    name = "pipeline-hooks-can-be-pickled"
    target = "veomni"
    kinds = MULTIMODAL
    obligations = ("VEO-PG-46", "VEO-VLM-08", "VEO-VLM-13")
    failure_modes = ("data-contract",)
    example_of = "qwen3_vl"
    BAD = (
        _example(_NESTED),
        _example(
            "    def get_position_id_func(self):\n        return self.positions\n\n"
            + "    def positions(self, **kwargs):\n        return kwargs\n"
        ),
    )
    GOOD = (_example(_POSITIONS + _METADATA),)

    def check(self, generated: list[Generated]) -> Findings:
        for item, owner, function in _hooks(generated):
            values = _locals(function) | _parts(item.source, owner)
            for node in walked(function):
                value = node.value if isinstance(node, ast.Return) else None
                why = _unpicklable(value, values, set()) if value is not None else ""
                if why and value is not None:
                    message = f"{owner}.{function.name} returns {why}: it cannot be pickled"
                    yield Finding(message, item.file.path, value.lineno)


class PlaceholdersOfThePipeline(Rule):
    """Use VeOmni's placeholder ids in the position function, not those of the vocabulary.

    Pass it a copy of the config in which `image_token_id`, `video_token_id` and `audio_token_id`, where the config has
    them, are IMAGE_INPUT_INDEX, VIDEO_INPUT_INDEX and AUDIO_INPUT_INDEX.

    Why: the pipeline overwrites the placeholders with its own ids before it computes positions. A function that
    searches for vocabulary ids finds no image and numbers the sample as plain text: grounding degrades without an
    error.

    Fine when: the position function does not read token ids.
    """

    id = "VEO603"
    name = "position-function-uses-pipeline-placeholders"
    target = "veomni"
    kinds = MULTIMODAL
    obligations = ("VEO-VLM-09",)
    failure_modes = ("placeholder-position-ids",)
    example_of = "qwen3_vl"
    BAD = (_example(_POSITIONS.replace("        config.image_token_id = IMAGE_INPUT_INDEX\n", "") + _METADATA),)
    GOOD = (_example(_POSITIONS + _METADATA),)

    def check(self, generated: list[Generated]) -> Findings:
        for item, owner, function in _hooks(generated):
            if function.name != POSITIONS or _delegates(function):
                continue
            written = dict(_token_ids(function))
            if not written and not any(
                isinstance(node, ast.Name) and node.id == "partial" for node in walked(function)
            ):
                continue
            config = item.config_class(owner)
            asked = {f"{kind}_token_id" for kind in ("image", "video", "audio")}
            known = {name for name in asked if config is not None and name in config.defaults} | written.keys()
            for name in sorted(known):
                wanted = f"{name.partition('_')[0].upper()}_INPUT_INDEX"
                got = written.get(name)
                if got is None or not got.endswith(wanted):
                    message = f"{owner}.{function.name} does not set {name} to {wanted}" + (
                        f", but to {got}" if got else ""
                    )
                    yield Finding(message, item.file.path, function.lineno)


class MetadataIsTaken(Rule):
    """Pop `multimodal_metadata` from `kwargs` in a model with `get_metadata_collate_func`.

    Why: the collator's metadata reaches `forward` under that name. If it stays in `kwargs`, the language model receives
    it and raises TypeError or ignores it, and every lookup synchronises with the device.

    Fine when: `multimodal_metadata` is a parameter of `forward`.
    """

    id = "VEO604"
    name = "multimodal-metadata-is-taken-from-kwargs"
    severity = Severity.warning
    target = "veomni"
    kinds = MULTIMODAL
    obligations = ("VEO-VLM-14",)
    failure_modes = ("implicit-host-sync",)
    example_of = "qwen3_vl"
    BAD = (
        _example(
            _METADATA + "    def forward(self, pixel_values=None, **kwargs):\n        return self.model(**kwargs)\n"
        ),
    )
    GOOD = (
        _example(
            _METADATA
            + "    @can_return_tuple\n    def forward(self, pixel_values=None, **kwargs):\n"
            + '        metadata = kwargs.pop("multimodal_metadata", None) or {}\n'
            + '        return self.model(vit_metadata=metadata.get("image"), **kwargs)\n'
        ),
    )

    def check(self, generated: list[Generated]) -> Findings:
        for item in generated:
            offering = [name for name in item.classes if item.source.method(name, METADATA) is not None]
            if not offering:
                continue
            patched = [function for _, function in item.patched if function.name == "forward"]
            if patched and not any(_takes(function) for function in patched):
                node = item.classes[offering[-1]]
                message = f"no patched forward takes 'multimodal_metadata', which {offering[-1]}.{METADATA} provides"
                yield Finding(message, item.file.path, node.lineno)


def _hooks(generated: list[Generated]) -> Iterator[tuple[Generated, str, ast.FunctionDef]]:
    found = [
        (item, name, function)
        for item in generated
        for name, node in item.classes.items()
        for function in node.body
        if isinstance(function, ast.FunctionDef) and function.name in {POSITIONS, METADATA}
    ]
    if not found:
        raise NotApplicable("no class has a hook for the data pipeline")
    yield from found


def _locals(function: ast.FunctionDef) -> dict[str, ast.AST]:
    """Local name -> what it is: an inner function, or the value that is assigned to it."""
    found: dict[str, ast.AST] = {}
    for node in walked(function):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node is not function:
            found[node.name] = node
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            found[node.targets[0].id] = node.value
    return found


def _parts(source: SourceFile, owner: str) -> dict[str, ast.AST]:
    """`self.x` for every method and module of a class, with what makes it."""
    found: dict[str, ast.AST] = {}
    classes = [owner, *(base for base in source.bases(source.classes[owner]) if base in source.classes)]
    for name in classes:
        for node in source.classes[name].body:
            if isinstance(node, ast.FunctionDef):
                found[f"self.{node.name}"] = node
    for name, made in modules_of(source, owner):
        if made:
            found[f"self.{name}"] = source.classes[made.removesuffix("[]")]
    return found


def _unpicklable(node: ast.AST, values: dict[str, ast.AST], seen: set[str]) -> str:
    """Return the part of a value that cannot be pickled; empty if none is known."""
    if isinstance(node, ast.Lambda):
        return "a lambda"
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return f"'{node.name}', which is defined inside the method"
    if isinstance(node, ast.Name):
        inner = values.get(node.id)
        if node.id == "self":
            return "an object that contains the model"
        return _unpicklable(inner, values, {*seen, node.id}) if inner is not None and node.id not in seen else ""
    if isinstance(node, ast.Attribute):
        name = dotted(node) or ""
        return f"{name}, which is bound to the model" if ".".join(name.split(".")[:2]) in values else ""
    if isinstance(node, ast.Call):
        return _of_call(node, values, seen)
    if isinstance(node, (ast.Tuple, ast.List, ast.Dict)):
        return next((why for child in ast.iter_child_nodes(node) if (why := _unpicklable(child, values, seen))), "")
    return ""


def _of_call(node: ast.Call, values: dict[str, ast.AST], seen: set[str]) -> str:
    """Partials and plain containers hold what they are given; what other calls return is not known."""
    name = (dotted(node.func) or "").rpartition(".")[2]
    if name == "MethodType":
        return "a method that is bound to an object"
    made = values.get(name)
    if isinstance(made, ast.ClassDef):
        return f"an object of '{name}', which is defined inside the method"
    if name in {"partial", "dict"} or name.lstrip("_")[:1].isupper():  # an object keeps what it is made with
        given = [*node.args, *(keyword.value for keyword in node.keywords)]
        return next((why for value in given if (why := _unpicklable(value, values, seen))), "")
    return ""


def _delegates(function: ast.FunctionDef) -> bool:
    """Return whether the method only asks a part of the model."""
    body = [node for node in function.body if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))]
    value = body[0].value if len(body) == 1 and isinstance(body[0], ast.Return) else None
    return isinstance(value, ast.Call) and (dotted(value.func) or "").startswith(("self.", "super"))


def _token_ids(function: ast.FunctionDef) -> Iterator[tuple[str, str]]:
    """Token id -> what it is set to, by assignment or setattr."""
    for node in walked(function):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Attribute) and target.attr.endswith("_token_id"):
                    yield target.attr, dotted(node.value) or ast.unparse(node.value)
        elif isinstance(node, ast.Call) and dotted(node.func) == "setattr" and len(node.args) == 3:
            name = node.args[1].value if isinstance(node.args[1], ast.Constant) else ""
            if str(name).endswith("_token_id"):
                yield str(name), dotted(node.args[2]) or ast.unparse(node.args[2])
        elif isinstance(node, ast.Call):
            for keyword in node.keywords:
                if keyword.arg and keyword.arg.endswith("_token_id"):
                    yield keyword.arg, dotted(keyword.value) or ast.unparse(keyword.value)


def _takes(function: ast.FunctionDef) -> bool:
    """Return whether a forward reads the metadata: as a parameter, or out of kwargs."""
    arguments = function.args
    if any(arg.arg == "multimodal_metadata" for arg in (*arguments.args, *arguments.kwonlyargs)):
        return True
    calls = (node for node in walked(function) if isinstance(node, ast.Call) and node.args)
    popped = [call.args[0] for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr == "pop"]
    return any(isinstance(name, ast.Constant) and name.value == "multimodal_metadata" for name in popped)
