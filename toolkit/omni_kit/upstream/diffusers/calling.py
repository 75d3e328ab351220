"""Call of a pipeline: its arguments, its defaults, and its inputs other than text."""

import ast
from collections.abc import Iterator, Mapping
from typing import Any

from omni_kit.pysource.eval import OpenDomain, Unsupported, evaluate
from omni_kit.pysource.reads import literal
from omni_kit.pysource.source import dotted
from omni_kit.upstream.diffusers.pipelines import Pipeline
from omni_kit.upstream.diffusers.signatures import Argument, arguments

# Arguments of `__call__` that hold a medium which the pipeline starts from.
_MEDIA = (
    "image", "images", "video", "videos", "mask_image", "control_image", "control_video", "image_embeds", "audio",
)  # fmt: skip
FRAMES = ("num_frames", "frames", "video_length")
"""Names of the argument for the number of frames."""
_SECONDS = ("audio_end_in_s", "audio_length_in_s", "audio_duration", "audio_duration_s")
GUIDANCE = "guidance_scale"
"""Name of the argument for the guidance scale, in most pipelines."""
_PICTURES = ("PipelineImageInput", "PIL.Image", "Image.Image")
_NO_PICTURES = ("adapter", "latents", "embeds", "video")
_TENSORS, _ARRAYS, _OUTPUT_TYPE = "pt", "np", "output_type"


def call_arguments(pipeline: Pipeline) -> Mapping[str, Argument]:
    """Return the arguments of `__call__`, by name, in order."""
    return arguments(pipeline.cls, "__call__")


def guidance_argument(pipeline: Pipeline) -> str:
    """Return the argument for the guidance scale: of this name, or the only one whose name ends with it."""
    names = [name for name in call_arguments(pipeline) if name.endswith(GUIDANCE)]
    return names[0] if len(names) == 1 else GUIDANCE


def media_of(pipeline: Pipeline) -> list[str]:
    """Return the arguments for pictures, films and sounds that a pipeline starts from."""
    return [name for name in call_arguments(pipeline) if name in _MEDIA]


def images_of(pipeline: Pipeline) -> list[str]:
    """Return the arguments for pictures that a call receives, in order: annotated so, or given to a processor of
    pictures.

    Adapters are loaded apart, and pictures that are already encoded are no pictures. A mask belongs to the picture
    before it, and to a film if there is none.
    """
    processed = set(_processed(pipeline))
    found = [one.name for one in call_arguments(pipeline).values()
             if one.name in processed or any(word in one.annotation for word in _PICTURES)]  # fmt: skip
    names = [name for name in found if not any(word in name for word in _NO_PICTURES)]
    first = next((place for place, name in enumerate(names) if "mask" not in name), len(names))
    return names[first:]


def listed_images(pipeline: Pipeline) -> list[str]:
    """Return the arguments for pictures that a call accepts in lists only.

    An annotation may also accept one picture where the method that the call passes it to accepts lists.
    """
    hints = {name: [call_arguments(pipeline)[name].annotation] for name in images_of(pipeline)}
    for name, annotation in _passed_on(pipeline):
        hints.get(name, []).append(annotation)
    return [name for name, found in hints.items() if any(map(_accepts_lists_only, found))]


def frames_of(pipeline: Pipeline) -> str:
    """Return the name of a pipeline's argument for the number of frames; empty if it draws pictures."""
    return next((name for name in call_arguments(pipeline) if name in FRAMES), "")


def values_as(pipeline: Pipeline) -> str:
    """Return the `output_type` for values from 0 to 1: "pt", or "np" where a method converts arrays and no tensors."""
    tests = (node for node in ast.walk(pipeline.cls.node) if isinstance(node, ast.Compare))
    listed = (literal(node.comparators[0]) for node in tests if dotted(node.left) == _OUTPUT_TYPE)
    found = any(isinstance(one, tuple) and _ARRAYS in one and _TENSORS not in one for one in listed)
    return _ARRAYS if found else _TENSORS


def seconds_of(pipeline: Pipeline) -> str:
    """Return the name of a pipeline's argument for the length of a sound; empty if it makes none."""
    return next((name for name in call_arguments(pipeline) if name in _SECONDS), "")


def prompt_keys(pipeline: Pipeline) -> list[str] | None:
    """Return the keys of the JSON object that a call requires as its prompt; None if it accepts any text."""
    found = pipeline.cls.method("check_inputs")
    for node in ast.walk(found[1]) if found is not None else ():
        refused = node.operand if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not) else None
        if found is not None and isinstance(refused, ast.Call) and [dotted(one) for one in refused.args] == ["prompt"]:
            check = found[0].source.functions.get(dotted(refused.func) or "")
            if check is not None and _reads_json(check):
                return [*dict.fromkeys(_keys_looked_for(check))]
    return None


def _reads_json(function: ast.FunctionDef) -> bool:
    return any(dotted(node.func) == "json.loads" for node in ast.walk(function) if isinstance(node, ast.Call))


def _keys_looked_for(function: ast.FunctionDef) -> Iterator[str]:
    """Yield the texts that a function looks for in one of its arguments."""
    taken = {one.arg for one in function.args.args}
    tests = (node for node in ast.walk(function) if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In))
    found = (literal(node.left) for node in tests if dotted(node.comparators[0]) in taken)
    yield from (key for key in found if isinstance(key, str))


def _processed(pipeline: Pipeline) -> Iterator[str]:
    """Yield the variables that a call passes to a processor of pictures."""
    found = pipeline.cls.method("__call__")
    for node in ast.walk(found[1]) if found is not None else ():
        if isinstance(node, ast.Call) and (dotted(node.func) or "").endswith("_processor.preprocess") and node.args:
            yield dotted(node.args[0]) or ""


def _passed_on(pipeline: Pipeline) -> Iterator[tuple[str, str]]:
    """Yield the variables that a call passes to methods of its own, and the annotations of the parameters there."""
    found = pipeline.cls.method("__call__")
    for node in ast.walk(found[1]) if found is not None else ():
        if isinstance(node, ast.Call) and (method := dotted(node.func) or "").startswith("self."):
            taken = arguments(pipeline.cls, method.removeprefix("self."))
            values = [*zip(taken, node.args, strict=False), *((one.arg or "", one.value) for one in node.keywords)]
            yield from ((dotted(value) or "", taken[name].annotation) for name, value in values if name in taken)


def _accepts_lists_only(annotation: str) -> bool:
    """Return whether every type of an annotation, except None, is a list, and one is a list of pictures."""
    members = [text for text in _members(ast.parse(annotation or "None", mode="eval").body) if text != "None"]
    pictures = any(word in annotation for word in _PICTURES)
    return pictures and all(text.lower().startswith("list[") for text in members)


def _members(node: ast.expr) -> Iterator[str]:
    """Yield the types of a union, as text."""
    if isinstance(node, ast.BinOp):
        yield from (*_members(node.left), *_members(node.right))
    elif isinstance(node, ast.Subscript) and dotted(node.value) in ("Optional", "Union"):
        for one in node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]:
            yield from _members(one)
    else:
        yield ast.unparse(node)


def size_of(pipeline: Pipeline, name: str, known: Mapping[str, Any]) -> tuple[int | None, str]:
    """Return the size that a pipeline takes by default, and where that was read; None if it could not be.

    Args:
        name: "height" or "width".
        known: dotted names, after "self.", and their values.
    """
    argument = call_arguments(pipeline).get(name)
    if argument is None:
        return None, ""
    if isinstance(argument.default, int):
        return argument.default, argument.where
    found = pipeline.cls.method("__call__")
    for node in ast.walk(found[1]) if found is not None else ():
        if found is not None and isinstance(node, ast.Assign) and dotted(node.targets[0]) == name:
            choice = isinstance(node.value, ast.BoolOp) and isinstance(node.value.op, ast.Or)
            last = node.value.values[-1] if choice else None  # type: ignore[attr-defined]
            value = _number(last, {**dict(_constants(pipeline)), **known}) if last is not None else None
            if value is not None:
                return value, found[0].source.where(node)
    return None, ""


def _constants(pipeline: Pipeline) -> Iterator[tuple[str, int]]:
    """Yield the whole numbers that the constructor assigns to attributes; of a choice, that without the component."""
    found = pipeline.cls.method("__init__")
    for node in ast.walk(found[1]) if found is not None else ():
        if isinstance(node, ast.Assign) and (name := dotted(node.targets[0]) or "").startswith("self."):
            value = node.value.orelse if isinstance(node.value, ast.IfExp) else node.value
            if isinstance(value, ast.Constant) and isinstance(value.value, int):
                yield name.removeprefix("self."), value.value


def _number(node: ast.expr, known: Mapping[str, Any]) -> int | None:
    """Return the whole number that an expression of whole numbers and known attributes is."""
    try:
        value = evaluate(node, OpenDomain({f"self.{name}": one for name, one in known.items()}))
    except Unsupported:
        return None
    return value if isinstance(value, int) else None
