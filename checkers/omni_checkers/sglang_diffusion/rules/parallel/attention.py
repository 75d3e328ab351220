"""The rules about attention that several devices share: SGD401 and SGD402."""

import ast
from collections.abc import Iterator

from omni_checkers.engine.files import walked
from omni_checkers.engine.places import at
from omni_checkers.engine.rule import Findings, NotApplicable, Rule
from omni_checkers.sglang_diffusion.examples import CONFIG, DIT, QWEN, changed
from omni_checkers.sglang_diffusion.facts.serving import Serving
from omni_checkers.sglang_diffusion.facts.sources import Sources
from omni_checkers.sglang_diffusion.facts.stages import StageUse
from omni_kit.pysource.classes import ClassRef
from omni_kit.pysource.nodes import assigned, calls, keyword, last_name
from omni_kit.pysource.source import SourceFile, dotted

_SHARING = ("USPAttention", "UlyssesAttention", "UlyssesAttention_VSA", "MinimalA2AAttnOp")
_GROUPS = ("sp_group", "sp_world", "sequence_parallel", "sequence_model_parallel", "ulysses", "sp_size")
_SHARDED = ("ColumnParallelLinear", "QKVParallelLinear", "MergedColumnParallelLinear")
_TENSOR = ("tp_size", "get_tp_world_size", "divide", "get_tensor_model_parallel_world_size", "tp_world_size")
_ATTENTION = (*_SHARING, "LocalAttention")
_REFUSED = ("sp_degree", "ulysses_degree", "ring_degree", "num_gpus", "enable_sequence_shard")
_SHARD = "shard_latents_for_sp"


class DegreesAreImplemented(Rule):
    """Accept a degree of parallelism only if the denoiser's attention implements it.

    If SGLang splits latents across devices, attention uses USPAttention or UlyssesAttention, or gathers the sequence
    itself. If it does not, the config rejects the degree in `validate_server_args`, or keeps latents whole in
    `shard_latents_for_sp`. Under tensor parallelism each device has a part of the heads, so the number of heads is
    divided by the degree.

    Why: nothing fails with two devices. Each attends only to its own half of the image, and the halves do not match.
    Heads that are not divided raise a shape error.

    Fine when: the denoiser attends along an axis that is not split; then suppress the finding with that reason.
    """

    id = "SGD401"
    name = "degrees-are-implemented"
    target = "sglang-diffusion"
    obligations = ("SGL-12", "SGL-14", "SGL-15")
    failure_modes = ("tp-fused-linear",)
    BAD = (
        changed(DIT, ("USPAttention", "LocalAttention")),
        changed(DIT, ("ReplicatedLinear", "ColumnParallelLinear")),
    )  # fmt: skip
    GOOD = ({DIT: QWEN[DIT], CONFIG: QWEN[CONFIG]},)

    def check(
        self, serving: Serving, sglang: Sources, before: list[StageUse], config: ClassRef, denoiser: ClassRef
    ) -> Findings:
        if not serving.is_own(denoiser):
            raise NotApplicable("the denoiser is SGLang's own")
        used = list(_files(serving, denoiser))
        words = {word for source in used for word in _words(source)}
        shares = any(group in word for word in words for group in (*_SHARING, *_GROUPS))
        if not shares and not _refuses(serving, config) and _shards(serving, config):
            message = f"latents are split across devices, but {denoiser.node.name} attends only to its own part"
            yield at(denoiser.source, denoiser.node, message)
        if not words & set(_TENSOR):
            shared = ((source, call) for source in used for call in calls(source.tree, *_SHARDED) if not _gathers(call))
            for source, call in list(shared)[:1]:
                yield at(source, call, "tensor parallelism splits the heads, but their number is not divided")


def _gathers(call: ast.Call) -> bool:
    """Return whether a projection gives each device the whole answer again."""
    value = keyword(call, "gather_output")
    return value is not None and not (isinstance(value, ast.Constant) and value.value is False)


def _files(serving: Serving, denoiser: ClassRef) -> Iterator[SourceFile]:
    """Yield the denoiser's file, those of its bases, and what it imports of the integration and of SGLang's
    denoisers.
    """
    places = dict.fromkeys(entry.source.path for entry in denoiser.mro if isinstance(entry, ClassRef))
    for imported in denoiser.source.imports.values():
        home = denoiser.source.home_of(imported)
        if home is not None and (home[0].path in serving.own or home[0].path.parent.name == "dits"):
            places.setdefault(home[0].path)
    for path in places:
        source = serving.sources.read(path)
        base = path.name == "base.py" and path.parent.name == "dits"
        if source is not None and not base and "diffusers" not in source.module.split("."):
            yield source


def _words(source: SourceFile) -> Iterator[str]:
    for node in walked(source.tree):
        if isinstance(node, (ast.Name, ast.Attribute)):
            yield last_name(node)


def _refuses(serving: Serving, config: ClassRef) -> bool:
    """Return whether the config speaks of the degree where it validates arguments."""
    found = config.method("validate_server_args")
    if found is None or found[0].node.name == "PipelineConfig":
        return False
    said = {last_name(node) for node in walked(found[1]) if isinstance(node, (ast.Name, ast.Attribute))}
    said |= {str(node.value) for node in walked(found[1]) if isinstance(node, ast.Constant)}
    return bool(said & set(_REFUSED))


def _shards(serving: Serving, config: ClassRef) -> bool:
    """Return whether latents are shared out: SGLang's config for images does so, and so does an override that cuts
    them.
    """
    found = config.method(_SHARD)
    if found is None or found[0].node.name == "PipelineConfig":
        return False  # films are left whole unless someone asks for more
    cuts = (node for node in walked(found[1]) if isinstance(node, (ast.Subscript, ast.Call)))
    return any(isinstance(node, ast.Subscript) or last_name(node) in ("rearrange", "chunk", "split") for node in cuts)


class CrossAttentionStaysWhole(Rule):
    """Do not split attention over the prompt across devices.

    A USPAttention whose keys come from another input than its queries needs `skip_sequence_parallel=True` or
    `is_cross_attention=True`.

    Why: every device has the whole prompt. USPAttention exchanges its tokens as if they were parts of one sequence:
    with two devices each reads the prompt twice, or a wrong part of it.

    Fine when: the prompt itself is split across devices.
    """

    id = "SGD402"
    name = "cross-attention-stays-whole"
    target = "sglang-diffusion"
    obligations = ("SGL-16",)
    BAD = (
        changed(
            DIT,
            ("forward(self, x, freqs_cis)", "forward(self, x, context, freqs_cis)"),
            ("q, k, v = self.to_qkv(x)[0].unflatten(-1, (self.heads, -1)).chunk(3, dim=-1)",
             "q, k, v = self.to_q(x), self.to_k(context), self.to_v(context)"),
        ),
    )  # fmt: skip
    GOOD = ({DIT: QWEN[DIT]},)

    def check(self, serving: Serving, denoiser: ClassRef) -> Findings:
        if not serving.is_own(denoiser):
            raise NotApplicable("the denoiser is SGLang's own")
        source = denoiser.source
        for node in source.classes.values():
            for made, name in _layers(node):
                skipped = keyword(made, "skip_sequence_parallel") or keyword(made, "is_cross_attention")
                if skipped is None and _crosses(node, name):
                    yield at(
                        source,
                        made,
                        f"keys of self.{name} come from another input than queries: skip_sequence_parallel is missing",
                    )


def _layers(node: ast.ClassDef) -> Iterator[tuple[ast.Call, str]]:
    """`self.name = USPAttention(...)` in a class."""
    for item in walked(node):
        if (
            isinstance(item, ast.Assign)
            and isinstance(item.value, ast.Call)
            and last_name(item.value) == "USPAttention"
        ):
            target = item.targets[0]
            spread = any(word.arg is None for word in item.value.keywords)
            if isinstance(target, ast.Attribute) and dotted(target.value) == "self" and not spread:
                yield item.value, target.attr


def _crosses(node: ast.ClassDef, name: str) -> bool:
    """Return whether keys and queries of a layer come from different inputs, wherever it is called."""
    found: list[bool] = []
    for function in (item for item in node.body if isinstance(item, ast.FunctionDef)):
        for call in walked(function):
            if isinstance(call, ast.Call) and dotted(call.func) == f"self.{name}":
                if len(call.args) < 2:
                    return False
                queries, keys = (_inputs(one, function) for one in call.args[:2])
                found.append(bool(queries) and bool(keys) and not queries & keys)
    return bool(found) and all(found)


def _inputs(node: ast.expr, function: ast.FunctionDef) -> set[str]:
    """Return the parameters of a function that an expression is made of."""
    taken = {one.arg for one in [*function.args.args, *function.args.kwonlyargs]} - {"self"}
    todo, seen = _names(node), set[str]()
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            for value in [*assigned(function, name), *_unpacked(function, name)]:
                todo |= _names(value) - seen
    return seen & taken


def _names(node: ast.expr) -> set[str]:
    """Return the variables that an expression is made of; of a call, those of what it works on, and not of its
    settings.
    """
    if isinstance(node, ast.Call):
        return _names(_worked_on(node))
    if isinstance(node, ast.Name):
        return {node.id}
    parts = (one for one in ast.iter_child_nodes(node) if isinstance(one, ast.expr))
    return {name for one in parts for name in _names(one)}


def _worked_on(call: ast.Call) -> ast.expr:
    """Return the tensor of `tensor.method(...)`, and the first argument of any other call."""
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    if owner is not None and (dotted(owner) or "").partition(".")[0] not in ("self", "torch", "F", "nn"):
        return owner
    return call.args[0] if call.args else ast.Constant(None)


def _unpacked(function: ast.FunctionDef, name: str) -> Iterator[ast.expr]:
    for node in walked(function):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                for place, one in enumerate(getattr(target, "elts", [])):
                    if isinstance(one, ast.Name) and one.id == name:
                        parts = getattr(node.value, "elts", [])
                        alone = len(parts) == len(getattr(target, "elts", []))
                        yield parts[place] if alone else node.value
