"""Determine whether a model of upstream can run with its sequence cut among processes, as far as its source tells."""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence

from omni_kit.pysource.source import SourceFile, dotted
from omni_kit.targets.veomni.text.sites import Site
from omni_kit.upstream.skeleton import Parameter
from omni_kit.upstream.transformers.models import UpstreamModel

# Parameters of layers that mix neighbouring tokens otherwise than by attention: convolutions over time, and states.
_MIXES_TOKENS = re.compile(
    r"(conv1d|short_conv|\.conv)\.weight$|A_log$|dt_bias$|time_decay$|\.D$|recurrent_param$|rg_lru"
)
_BLOCKS = "block_sequence_ids"  # what transformers' masks know such tokens by
_OF_IMAGES = ("Conv2d", "Conv3d")
_ATTENDS = re.compile(r"(full|sliding|chunked|compressed_\w+)_?\w*attention|attention")
_RUNS_ON_STATES = re.compile(r"linear_attention|mamba\d*|conv|hybrid|moe|mlp")  # with `layers_on_whole_samples`
_STATES, _MASK = "hidden_states", "attention_mask"


Obstacle = tuple[str, str]  # the reason, the evidence


def cut_sequences(model: UpstreamModel, sites: Sequence[Site], whole: Sequence[str] = ()) -> tuple[bool, str, str]:
    """Return whether Ulysses fits: (it does, the reason, the evidence).

    VeOmni's collator cuts inputs and position ids, its attention functions exchange heads for tokens, and its loss
    function adds up over the group (`veomni.ops.kernels.attention`, `veomni.ops.kernels.cross_entropy`): what goes
    past these sees a part of the sequence only.

    Args:
        whole: the classes of layers that run on whole samples; see `layers_on_whole_samples`.
    """
    obstacle = next(_past_attention(model, sites, whole), None) or next(_past_processes(model, sites), None)
    if obstacle is not None:
        return False, *obstacle
    reason = "position ids and inputs arrive already sharded for sequence parallelism"
    return True, reason, "VeOmni's SequenceParallelCollator"


def kept_apart(model: UpstreamModel, sites: Sequence[Site], whole: Sequence[str] = ()) -> tuple[bool, str, str]:
    """Return whether sequences that are packed into one row do not see each other: as `cut_sequences`.

    VeOmni's collator packs all samples of a batch into one row; position ids begin again with each, and its attention
    functions are told where (`veomni.data.data_collator`): what goes past these takes them for one sequence.
    """
    obstacle = next(_past_attention(model, sites, whole), None)
    if obstacle is not None:
        return False, *obstacle
    return True, "attention receives sequence starts, and position ids restart", "VeOmni's PackingCollator"


def sees_ahead(model: UpstreamModel) -> Obstacle | None:
    """Find where a model lets some tokens, such as those of a picture, see later ones, which flash attention cannot."""
    source = model.source
    for name in built_classes(source, model.class_name):
        for node in ast.walk(source.classes[name]):
            if isinstance(node, ast.keyword) and node.arg == _BLOCKS:
                at = node.value
            elif isinstance(node, ast.Subscript) and ast.unparse(node.slice) == repr(_BLOCKS):
                at = node
            else:
                continue
            return f"{name} lets tokens of a block see later ones, which flash attention cannot", source.where(at)
    return None


def without_flash_attention(source: SourceFile) -> Obstacle | None:
    """Return where a file declares flash attention for no class: transformers then refuses it to the whole model."""
    if re.search(r"_supports_flash_attn\w*\s*=\s*True", source.text):
        return None
    return "upstream does not declare flash attention, which VeOmni uses", source.where(source.tree)


def other_attention(sites: Sequence[Site]) -> Site | None:
    """Return the first class whose attention VeOmni's functions would change."""
    return next((one for one in sites if one.site == "attention" and one.read == "different"), None)


def _past_attention(model: UpstreamModel, sites: Sequence[Site], whole: Sequence[str]) -> Iterator[Obstacle]:
    """Yield what upstream does with several tokens at once that VeOmni's attention functions do not support."""
    source = model.source
    place = source.where(source.tree)
    layers = (p for p in _of_text(model.skeleton.parameters) if p.owner not in _OF_IMAGES)
    mixing = next((p for p in layers if _MIXES_TOKENS.search(p.name)), None)
    if mixing is not None and not whole:
        yield f"{mixing.owner} mixes neighbouring tokens across sequences", mixing.where
    types = model.find("layer_types", "layers_block_type")
    listed = types.value if types is not None and isinstance(types.value, (list, tuple)) else ()
    known = [_ATTENDS, _RUNS_ON_STATES] if whole else [_ATTENDS]
    odd = [kind for kind in listed if not any(one.fullmatch(str(kind)) for one in known)]
    if types is not None and odd:
        yield f"layers of type {odd[0]} are not attention over tokens, which VeOmni could shard", types.evidence
    settings = model.config.cls.source
    if "is_flash_attention_requested" in settings.text:
        place = settings.where(settings.tree)
        yield "its config rejects flash attention, which VeOmni uses, for some settings", place
    if "ALL_ATTENTION_FUNCTIONS" not in source.text:
        yield "attention does not use transformers' registry, where VeOmni registers its own", place
    if (other := other_attention(sites)) is not None:
        yield f"{other.target} {other.reason}", other.evidence
    if (undeclared := without_flash_attention(source)) is not None:
        yield undeclared
    for name in built_classes(source, model.class_name):
        if (call := _withheld(source.method(name, "forward"))) is not None:
            yield f"{name}.forward does not pass on where sequences begin", source.where(call)
    forward = source.method(model.class_name, "forward")
    taken = {argument.arg for argument in [*forward.args.args, *forward.args.kwonlyargs]} if forward else set()
    if "position_ids" not in taken:
        yield "forward takes no position_ids, so each process counts positions from zero", place


def layers_on_whole_samples(model: UpstreamModel) -> list[str]:
    """Return the classes that mix neighbouring tokens and can be run again on whole samples; empty if one cannot.

    Their forwards take states and further keywords, and what calls them passes on where sequences begin.
    """
    source, parameters = model.source, _of_text(model.skeleton.parameters)
    mixing = [p for p in parameters if p.owner not in _OF_IMAGES and _MIXES_TOKENS.search(p.name)]
    owners = {p.name.rpartition(".")[0]: p.owner for p in parameters if p.owner in source.classes}
    paths = {_place_in(p, owners) for p in mixing}
    outer = {path for path in paths if not any(path.startswith(f"{other}.") for other in paths)}
    found = sorted({owners.get(path, "") for path in outer})
    return found if found and all(_runs_on_states(source, name) for name in found) else []


def _place_in(parameter: Parameter, owners: Mapping[str, str]) -> str:
    """Return the path of the innermost module of the model's file that holds a parameter, as far as that can be
    told.
    """
    path = parameter.name.rpartition(".")[0]
    return path if path in owners else path.rpartition(".")[0]


def _runs_on_states(source: SourceFile, name: str) -> bool:
    forward = source.method(name, "forward") if name in source.classes else None
    if forward is None or forward.args.kwarg is None:
        return False
    if not {_STATES, _MASK} <= {argument.arg for argument in [*forward.args.args, *forward.args.kwonlyargs]}:
        return False
    calls = [call for node in source.classes.values() for call in _calls_of(node, name)]
    return bool(calls) and all(any(keyword.arg is None for keyword in call.keywords) for call in calls)


def _calls_of(node: ast.ClassDef, name: str) -> Iterator[ast.Call]:
    """The calls, in the methods of a class, of an attribute that it builds of the class `name`."""
    built = {
        dotted(one.targets[0])
        for one in ast.walk(node)
        if isinstance(one, ast.Assign) and isinstance(one.value, ast.Call) and dotted(one.value.func) == name
    }
    yield from (one for one in ast.walk(node) if isinstance(one, ast.Call) and dotted(one.func) in built)


def _of_text(parameters: Sequence[Parameter]) -> list[Parameter]:
    """Return the parameters of the module that embeds tokens: next to it there may be towers, whose inputs are no
    tokens.
    """
    embeddings = [(one.shape[0] or 0, one.name) for one in parameters if "embed" in one.name and one.shape]
    holder = max(embeddings, default=(0, ""))[1].split(".")[:-2]
    return [one for one in parameters if one.name.split(".")[: len(holder)] == holder]


def built_classes(source: SourceFile, name: str) -> list[str]:
    """Return the classes of the file that a class builds, itself first, and that those build."""
    found = [name]
    for each in found:
        calls = (node for node in ast.walk(source.classes[each]) if isinstance(node, ast.Call))
        names = dict.fromkeys(dotted(call.func) or "" for call in calls)
        found += [other for other in names if other in source.classes and other not in found]
    return found


def _withheld(forward: ast.FunctionDef | None) -> ast.Call | None:
    """Return the call of a part that gets states and mask in any case, and not the keywords that are taken next to
    them.
    """
    if forward is None or forward.args.kwarg is None:
        return None
    always = (node.value for node in forward.body if isinstance(node, ast.Assign))
    for call in (value for value in always if isinstance(value, ast.Call)):
        given = [keyword.arg for keyword in call.keywords]
        states = [*map(ast.unparse, call.args), *given]
        part = (dotted(call.func) or "").startswith("self.") and "hidden_states" in states
        if part and "attention_mask" in given and None not in given:
            return call
    return None


def _past_processes(model: UpstreamModel, sites: Sequence[Site]) -> Iterator[Obstacle]:
    """Yield other operations that each process would apply to its own part of a sequence alone."""
    place = model.source.where(model.source.tree)
    if not any(parameter.owner == "Linear" and "*" in parameter.pattern for parameter in model.skeleton.parameters):
        yield "its layers have no nn.Linear, from which VeOmni's attention takes its dtype", place
    loss = next((site for site in sites if site.site == "causal-lm-loss"), None)
    if loss is None or loss.decision == "skip":
        yield "the loss is upstream's own, over one process's part of the sequence", place
