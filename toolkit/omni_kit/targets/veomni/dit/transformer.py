"""Variables for the templates of a transformer."""

import ast
import builtins
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from omni_kit.pysource.classes import ClassRef
from omni_kit.pysource.eval import UNKNOWN
from omni_kit.targets.protocol import Request
from omni_kit.targets.veomni.checkout import shipped_diffusers_keys
from omni_kit.targets.veomni.text.converter import class_prefix
from omni_kit.upstream.diffusers.blocks import block_classes, joined_streams
from omni_kit.upstream.diffusers.checkpointing import checkpoints, lost_by_checkpointing
from omni_kit.upstream.diffusers.models import ComponentModel
from omni_kit.upstream.diffusers.parts import parts_of
from omni_kit.upstream.diffusers.signatures import Argument, arguments
from omni_kit.upstream.diffusers.traits import attention_kernels

DISPATCH = "dispatch_attention_fn"
WRAPPER = "model.model_config.compile_blocks"
"""The setting, by its place in a training file, with which a wrapper compiles its blocks."""
_NOT_FED = "return_dict"
_STREAMS = ("hidden_states", "encoder_hidden_states")
_PLAN = "_cp_plan"
_NUMBER = re.compile(r"(Optional\[)?int\b")


@dataclass(frozen=True)
class Given:
    """An argument as the templates write it; the default is Python text."""

    name: str
    default: str
    annotation: str


@dataclass(frozen=True)
class TransformerContext:
    """The names that the templates of a transformer may use.

    Attributes:
        name, class_name: the integration's name, and as the beginning of class names.
        upstream: the class of diffusers, of `library_version`; `key`, as which it is registered.
        condition_key: as which the model of its conditions is registered.
        veomni: what imports of VeOmni begin with; `shipped`, that the installed VeOmni registers the key itself.
        arguments: of the constructor.
        inputs: of forward, save the switch for its return type; `return_dict`, that it has that switch.
        takes_latents: upstream's forward has an argument of the name that VeOmni gives clean latents.
        kernels: its attention goes through diffusers' dispatch, so VeOmni's kernels can stand there.
        plan: sequences are shared, as upstream's plan says.
        streams: which streams attention joins, in order, as Python text; "None" if that cannot be determined.
        checkpointing, blocks: whether upstream checkpoints, and the classes that must not be split.
        learned_variance: the answer has a variance behind the prediction.
        keeps_float32: upstream loads some of its modules in float32, whatever the dtype of the others.
    """

    name: str
    class_name: str
    upstream: str
    key: str
    condition_key: str
    veomni: str
    shipped: bool
    library_version: str
    arguments: Sequence[Given]
    inputs: Sequence[Argument]
    return_dict: bool
    takes_latents: bool
    kernels: bool
    plan: bool
    streams: str
    checkpointing: bool
    blocks: Sequence[str]
    learned_variance: bool
    keeps_float32: bool


def transformer_context(model: ComponentModel, request: Request) -> TransformerContext:
    """Return the context of one transformer."""
    taken = arguments(model.cls, "forward")
    dispatched = DISPATCH in attention_kernels(model)
    plan = not why_not_shared(model)
    return TransformerContext(
        name=request.name,
        class_name=class_prefix(request.name),
        upstream=model.class_name,
        key=model.class_name,
        condition_key=f"{model.class_name}Condition",
        veomni="....." if request.style == "in-tree" else "veomni.",
        shipped=request.style == "plugin" and model.class_name in shipped_diffusers_keys(),
        library_version=model.library.version,
        arguments=[_given(one) for one in model.arguments.values()],
        inputs=[one for name, one in taken.items() if name != _NOT_FED],
        return_dict=_NOT_FED in taken,
        takes_latents="latents" in taken,
        kernels=dispatched,
        plan=plan,
        streams=repr(_streams(model)) if plan else "()",
        checkpointing=checkpoints(model.cls) and not lost_by_checkpointing(model.cls),
        blocks=block_classes(model.cls)[0],
        learned_variance=_learns_variance(model),
        keeps_float32=_keeps_float32(model),
    )


def _keeps_float32(model: ComponentModel) -> bool:
    found = model.cls.assigned("_keep_in_fp32_modules")
    return found is not None and isinstance(found[1], ast.List) and bool(found[1].elts)


def has_plan(model: ComponentModel) -> bool:
    """Return whether the class says how a sequence is shared among processes."""
    found = model.cls.assigned(_PLAN)
    return found is not None and isinstance(found[1], ast.Dict) and bool(found[1].keys)


def why_not_shared(model: ComponentModel) -> str:
    """Return why a model's sequences cannot be sharded; empty if they can."""
    if not has_plan(model):
        return "the class has no _cp_plan, so its sequence cannot be sharded"
    if DISPATCH not in attention_kernels(model):
        return f"its attention does not go through diffusers' {DISPATCH}"
    if told := next(_lengths_told(model), ""):
        return f"its blocks receive the whole sequence's length ({told}), which a shard does not have"
    if left := next(_left_whole(model), ""):
        return f"its plan shards one module's output, but not that of its siblings: {left}"
    return ""


def _lengths_told(model: ComponentModel) -> Iterator[str]:
    """Yield arguments of blocks that are plain numbers, and that forward passes on."""
    forward = model.cls.method("forward")
    handed = set(_handed(forward[1])) if forward is not None else set()
    for name in block_classes(model.cls)[0]:
        found = model.source.resolve_class(name)
        taken = arguments(ClassRef(*found), "forward") if found is not None else {}
        yield from (one.name for one in taken.values() if _NUMBER.match(one.annotation) and one.name in handed)


def _handed(function: ast.FunctionDef) -> Iterator[str]:
    """Yield the names that a function passes to what it calls, by keyword or as they are."""
    for call in ast.walk(function):
        if isinstance(call, ast.Call):
            yield from (one.arg for one in call.keywords if one.arg is not None)
            yield from (one.id for one in call.args if isinstance(one, ast.Name))


def _left_whole(model: ComponentModel) -> Iterator[str]:
    """Yield modules of the same class as one whose answer the plan cuts, of which it says nothing."""
    found = model.cls.assigned(_PLAN)
    named = _keys(found[1]) if found is not None and isinstance(found[1], ast.Dict) else []
    parts = parts_of(model.cls)
    cut = {part.class_name for part in parts if part.name in named}
    joins = {part.class_name for part in parts if part.class_name.startswith("nn.")}
    yield from (part.name for part in parts if part.class_name in cut - joins and part.name not in named)


def _given(argument: Argument) -> Given:
    default = "None" if argument.default is UNKNOWN else repr(argument.default)
    return Given(argument.name, default, argument.annotation if _plain(argument.annotation) else "")


def _plain(annotation: str) -> bool:
    """Return whether an annotation needs no import."""
    if not annotation:
        return False
    nodes = list(ast.walk(ast.parse(annotation, mode="eval")))
    strings = any(isinstance(node, ast.Constant) and isinstance(node.value, str) for node in nodes)
    return not strings and all(hasattr(builtins, node.id) for node in nodes if isinstance(node, ast.Name))


def _streams(model: ComponentModel) -> tuple[str, ...] | None:
    """Return the streams that the plan cuts at one place and attention joins; None if their order cannot be
    determined.
    """
    found = model.cls.assigned(_PLAN)
    entries = found[1].values if found is not None and isinstance(found[1], ast.Dict) else []
    cut = [_keys(entry) for entry in entries if isinstance(entry, ast.Dict)]
    if not any(set(_STREAMS) <= set(names) for names in cut):
        return ()
    return joined_streams(model.cls, _STREAMS)


def _keys(entry: ast.Dict) -> list[object]:
    return [key.value for key in entry.keys if isinstance(key, ast.Constant)]


def _learns_variance(model: ComponentModel) -> bool:
    """Return whether as many channels again come out as go in, or may: a class may leave both to its config."""
    values: Mapping[str, object] = {name: model.value(name)[0] for name in ("in_channels", "out_channels")}
    taken, given = values["in_channels"], values["out_channels"]
    doubled = isinstance(taken, int) and isinstance(given, int) and given == 2 * taken
    open_ = taken is None and given is None and {"in_channels", "out_channels"} <= arguments(model.cls).keys()
    return doubled or open_ or model.value("learn_sigma")[0] is True
