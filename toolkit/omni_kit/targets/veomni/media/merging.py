"""Finds where a model of transformers puts the features of media among the embeddings of its text.

The method that merges calls `get_image_features`, `get_video_features` or `get_audio_features` of its own class, and
puts what they return where placeholder tokens stand.
"""

import ast
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from omni_kit.errors import BadInput, Refusal
from omni_kit.pysource.source import SourceFile, dotted
from omni_kit.targets.veomni.media.flow import Held, place_of, statements_with
from omni_kit.targets.veomni.text.sequence import Obstacle, built_classes
from omni_kit.upstream.transformers.config_view import ConfigView
from omni_kit.upstream.transformers.models import UpstreamModel, upstream_model
from omni_kit.upstream.transformers.traits import text_config

KINDS = {"get_image_features": "image", "get_video_features": "video", "get_audio_features": "audio"}
POSITIONS, _WHOLE_POSITIONS = "get_rope_index", "compute_3d_position_ids"
PLACES = "_position_ids"  # where in its picture each patch was
_REGISTRY = "ALL_ATTENTION_FUNCTIONS"
_MEDIA = ("pixel_values", "input_features", "input_values", "image_patches")  # how names of arguments with media end
_MASK, _SCATTER = "get_placeholder_mask", "masked_scatter"


@dataclass(frozen=True)
class Features:
    """The features of one kind of media on their way into the embeddings.

    Attributes:
        kind: "image", "video" or "audio".
        call: the call that makes them.
        inputs: the arguments of forward that it takes, that of the pixels or the sound first.
        name: the variable that holds them when they are placed; empty if that was not recognised.
        placed: the first statement that needs to know how many there are.
        layers: what assigns features of further layers, which go to the same places; by variable.
        blocks: they are placed by their number in a block of equally many, [blocks, features, width].
    """

    kind: str
    call: ast.Call
    inputs: tuple[str, ...]
    name: str
    placed: ast.stmt | None
    layers: tuple[tuple[str, ast.stmt], ...] = ()
    blocks: bool = False

    @property
    def padded(self) -> bool:
        """Return whether the tower attends over padding, and learns which it is: by a mask, or by places that no
        patch has.

        What comes with its lengths is cut to them before.
        """
        told = any(name.endswith(("_mask", PLACES)) for name in self.inputs)
        return told and not any(name.endswith("_lengths") for name in self.inputs)


@dataclass(frozen=True)
class Merging:
    """The method that merges.

    Attributes:
        owner: its class.
        features: of each kind that it merges, in the order of the source.
        positions: the class computes positions on several axes.
        shared: kinds of media have one placeholder.
    """

    owner: str
    forward: ast.FunctionDef
    features: tuple[Features, ...]
    positions: bool
    shared: bool = False


def find_merging(model: UpstreamModel) -> Merging:
    """Return where a model merges media into text.

    Raises:
        Refusal: no such method was recognised, or it does not take what VeOmni's data pipeline passes.
    """
    source = model.source
    for owner in built_classes(source, model.class_name):
        forward = source.method(owner, "forward")
        calls = list(_calls(forward)) if forward is not None else []
        if forward is None or not calls:
            continue
        where = source.where(forward)
        taken = {argument.arg for argument in (*forward.args.args, *forward.args.kwonlyargs)}
        if "input_ids" not in taken:
            raise Refusal(f"{owner}.forward ({where}) takes no input_ids, which contain the placeholders")
        if forward.args.kwarg is None:
            raise Refusal(
                f"{owner}.forward ({where}) takes no further arguments, such as VeOmni's masks of placeholders"
            )
        if (call := _not_handed_on(model, owner)) is not None:
            raise Refusal(
                f"`{ast.unparse(call.func)}` ({source.where(call)}) gets no further arguments: masks are lost"
            )
        if (cut := next(filter(None, map(_first_alone, calls)), None)) is not None:
            raise Refusal(
                f"{owner}.forward reads `{ast.unparse(cut)}` ({source.where(cut)}): VeOmni joins the media of all "
                "samples along their first dimension, and the others would be lost"
            )
        features = _apart([_features(source, owner, call, taken, forward) for call in calls])
        return Merging(owner, forward, features, _has_axes(source, owner, forward), _shares(source, owner))
    raise Refusal(_other_merging(model))


def _other_merging(model: UpstreamModel) -> str:
    """Return why no method was recognised: the call that reads media, which is none of those that are derived."""
    source = model.source
    for owner in built_classes(source, model.class_name):
        forward = source.method(owner, "forward")
        for call in (node for node in ast.walk(forward) if isinstance(node, ast.Call)) if forward is not None else ():
            given = [(keyword.arg, keyword.value) for keyword in call.keywords] + [(None, one) for one in call.args]
            reads = any((dotted(value) or "").endswith(_MEDIA) for _, value in given)
            if reads and (dotted(call.func) or "").startswith("self.") and "input_ids" not in dict(given):
                return (
                    f"{owner}.forward reads media by `{ast.unparse(call.func)}` ({source.where(call)}), and by none of "
                    f"{', '.join(KINDS)}: where the features go is not derived"
                )
    where = source.where(source.method(model.class_name, "forward") or source.classes[model.class_name])
    return f"{model.class_name} ({where}) calls none of {', '.join(KINDS)}: where features of media go is not derived"


def _has_axes(source: SourceFile, owner: str, forward: ast.FunctionDef) -> bool:
    """Return whether a forward that gets no positions makes them by a method of its class, on several axes."""
    called = {dotted(node.func) for node in ast.walk(forward) if isinstance(node, ast.Call)}
    makes = called & {f"self.{POSITIONS}", f"self.{_WHOLE_POSITIONS}"}
    return bool(makes) and source.method(owner, POSITIONS) is not None


def _shares(source: SourceFile, owner: str) -> bool:
    """Return whether the method that finds placeholders looks for one and the same of two kinds of media."""
    method = source.method(owner, _MASK)
    compared = [node for node in ast.walk(method) if isinstance(node, ast.Compare)] if method is not None else []
    tokens = [ast.unparse(node) for node in compared if dotted(node.left) == "input_ids"]
    return len({*tokens}) < len(tokens)


_OF_BLOCKS = ("blocks", "features", "width")
_LAYERS = ("Attention", "DecoderLayer")  # in the names of classes: a file that defines both has its text's layers


def text_part(model: UpstreamModel) -> UpstreamModel | None:
    """Return the model of another type that a model builds for its text; None if its own file has the layers."""
    config = text_config(model)
    if config is model.config or all(any(part in name for name in model.source.classes) for part in _LAYERS):
        return None
    try:
        found = upstream_model(model.library, config)
    except BadInput:
        return None
    return found if found.source is not model.source else None


def refuse_attention_of_its_own(model: UpstreamModel) -> None:
    """Raise for a tower whose layers choose their attention from a table of their own, without VeOmni's name.

    Raises:
        Refusal: there is such a table; with the line that reads it.
    """
    for source in _tower_sources(model):
        for node in ast.walk(source.tree):
            if isinstance(node, ast.Subscript) and (dotted(node.slice) or "").endswith("config._attn_implementation"):
                table, where = ast.unparse(node.value), source.where(node)
                if table.isupper() and table != _REGISTRY:
                    raise Refusal(f"`{table}` ({where}) has no entry for VeOmni's attention: a tower cannot be built")


def mask_dropped(model: UpstreamModel) -> Obstacle | None:
    """Find a tower that makes no mask for flash attention, which then needs bounds that VeOmni's does not get."""
    for source in _tower_sources(model):
        for node in ast.walk(source.tree):
            asks = isinstance(node, ast.If) and "is_flash_attention_requested" in ast.unparse(node.test)
            if asks and any(ast.unparse(one) == "attention_mask = None" for one in node.body):  # type: ignore[attr-defined]
                return "without its mask VeOmni's attention takes all pictures for one", source.where(node)
    return None


def _tower_sources(model: UpstreamModel) -> Iterator[SourceFile]:
    """Yield the files of the towers that other types of model define."""
    for name in model.config.cls.sub_configs:
        view = model.built_config.get(name) if model.built_config.has(name) else None
        if isinstance(view, ConfigView) and view.config.cls is not text_config(model).cls:
            try:
                yield upstream_model(model.library, view.config).source
            except BadInput:
                continue


def refuse_encoder_decoder(model: UpstreamModel) -> None:
    """Raise for a model whose text is made by a decoder of what an encoder has read.

    Raises:
        Refusal: it is one; with the line that says so.
    """
    found = model.config.find("is_encoder_decoder")
    if found is not None and found.value is True:
        raise Refusal(f"{model.class_name} is an encoder-decoder ({found.evidence}): VeOmni trains only decoder models")
    source = model.source
    forward = source.method(model.class_name, "forward")
    taken = next((a for a in forward.args.args if a.arg == "decoder_input_ids"), None) if forward is not None else None
    if forward is not None and taken is not None:
        why = f"{model.class_name}.forward takes decoder_input_ids ({source.where(taken)})"
        if (branch := _branch_with(forward, taken.arg)) is not None:
            where = f"`{ast.unparse(branch.test)}` ({source.where(branch)})"
            why = f"{model.class_name}.forward runs a decoder or an encoder-decoder by {where}"
        raise Refusal(f"{why}: VeOmni trains only decoder models")


def _branch_with(function: ast.FunctionDef, name: str) -> ast.If | None:
    """Return the `if` by the config that has every use of an argument in one of its branches."""
    uses = {node for node in ast.walk(function) if isinstance(node, ast.Name) and node.id == name}
    for branch in (node for node in ast.walk(function) if isinstance(node, ast.If)):
        if uses and uses <= {*ast.walk(branch)} and "self.config." in ast.unparse(branch.test):
            return branch
    return None


def _first_alone(call: ast.Call) -> ast.Subscript | None:
    """Return the pixels that a call makes features of, where it takes their first row alone."""
    first = call.args[0] if call.args else None
    return first if isinstance(first, ast.Subscript) and ast.unparse(first.slice) == ":1" else None


def _calls(forward: ast.FunctionDef) -> Iterator[ast.Call]:
    """The calls that make features, in the order of the source."""
    found = [node for node in ast.walk(forward) if isinstance(node, ast.Call) and _kind(node)]
    yield from sorted(found, key=lambda node: node.lineno)


def _kind(call: ast.Call) -> str:
    name = dotted(call.func) or ""
    return KINDS.get(name.removeprefix("self."), "") if name.startswith("self.") else ""


def _not_handed_on(model: UpstreamModel, owner: str) -> ast.Call | None:
    """Return the call of the merging module by the head, where it leaves out the head's further arguments."""
    if owner == model.class_name:
        return None
    head = model.source.method(model.class_name, "forward")
    for node in ast.walk(head) if head is not None else ():
        if isinstance(node, ast.Call) and dotted(node.func) in {"self.model", "self.thinker"}:
            return node if all(keyword.arg is not None for keyword in node.keywords) else None
    return None


def _features(source: SourceFile, owner: str, call: ast.Call, taken: set[str], forward: ast.FunctionDef) -> Features:
    given = [*call.args, *(keyword.value for keyword in call.keywords if keyword.arg is not None)]
    names = (node.id for value in given for node in ast.walk(value) if isinstance(node, ast.Name))
    inputs = tuple(name for name in dict.fromkeys(names) if name in taken and not name.startswith("vision_feature"))
    following = list(statements_with(forward.body, call))
    name, placed = _placed(source, owner, following)
    blocks = placed is not None and any(_by_blocks(source.method(owner, called)) for called in _own_calls(placed))
    return Features(_kind(call), call, inputs, name, placed, tuple(_layers(following)), blocks)


def _apart(found: Sequence[Features]) -> tuple[Features, ...]:
    """Features; kinds that one statement places together are not told apart, so none of them counts as recognised."""
    placing = Counter(id(one.placed) for one in found if one.placed is not None)
    return tuple(replace(one, name="", placed=None) if placing[id(one.placed)] > 1 else one for one in found)


def _placed(source: SourceFile, owner: str, following: Sequence[Held]) -> tuple[str, ast.stmt | None]:
    """Return the variable of features, and the first statement that counts them, asks for their places or scatters
    them.
    """
    name, placed = _scattered(source, owner, following)
    until = (statement for statement, _ in following if placed is not None and statement.lineno < placed.lineno)
    return name, next((statement for statement in until if _counts(statement, name)), placed)


def _counts(statement: ast.stmt, name: str) -> bool:
    """Return whether a statement calls a function, such as a check, with a comparison of how much a variable holds."""
    call = statement.value if isinstance(statement, ast.Expr) else None
    compared = [one for one in call.args if isinstance(one, ast.Compare)] if isinstance(call, ast.Call) else []
    return any(dotted(node) == name for one in compared for node in ast.walk(one))


def _scattered(source: SourceFile, owner: str, following: Sequence[Held]) -> tuple[str, ast.stmt | None]:
    """Return the variable of features, and the first statement that asks for their places or scatters them."""
    for statement, held in following:
        for node in ast.walk(statement):
            if not isinstance(node, ast.Call):
                continue
            path, _, called = (dotted(node.func) or "").rpartition(".")
            scatters = isinstance(node.func, ast.Attribute) and node.func.attr == _SCATTER and len(node.args) == 2
            if called == _MASK or (path == "self" and _scatters(source.method(owner, called))):
                values = [*node.args, *(keyword.value for keyword in node.keywords)]
                found = next((one.id for one in values if isinstance(one, ast.Name) and one.id in held), "")
            elif scatters:
                names = (one.id for one in ast.walk(node.args[1]) if isinstance(one, ast.Name))
                found = next((name for name in names if name in held), "")
            else:
                continue
            if found:
                return found, statement
    return "", None


def _scatters(method: ast.FunctionDef | None) -> bool:
    """Return whether a method puts features where a mask says, as many as there are places."""
    calls = (node.func for node in ast.walk(method) if isinstance(node, ast.Call)) if method is not None else ()
    scatters = any(isinstance(function, ast.Attribute) and function.attr == _SCATTER for function in calls)
    return scatters or _by_blocks(method)


def _by_blocks(method: ast.FunctionDef | None) -> bool:
    """Return whether a method writes `embeds[mask] = features[blocks, numbers, :]`: each by its number in a block."""
    assigned = (node for node in ast.walk(method) if isinstance(node, ast.Assign)) if method is not None else ()
    return any(
        isinstance(node.targets[0], ast.Subscript)
        and isinstance(node.value, ast.Subscript)
        and isinstance(node.value.slice, ast.Tuple)
        and len(node.value.slice.elts) == len(_OF_BLOCKS)
        for node in assigned
    )


def _own_calls(statement: ast.stmt) -> Iterator[str]:
    """Yield the names of the methods of its own class that a statement calls."""
    for node in ast.walk(statement):
        path, _, called = (dotted(node.func) or "").rpartition(".") if isinstance(node, ast.Call) else ("", "", "")
        if path == "self":
            yield called


def _layers(following: Sequence[Held]) -> Iterator[tuple[str, ast.stmt]]:
    """Parts of a tower's output other than its features, such as those of earlier layers for later ones of text."""
    for statement, held in following:
        value = statement.value if isinstance(statement, ast.Assign) else None
        if (
            isinstance(statement, ast.Assign)
            and isinstance(value, ast.Attribute)
            and place_of(value.value) in held
            and value.attr.startswith("deepstack")
        ):
            yield ast.unparse(statement.targets[0]), statement
