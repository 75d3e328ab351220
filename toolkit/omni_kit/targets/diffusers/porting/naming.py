"""Names of a model's modules in diffusers, by the part that each plays."""

import ast
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import libcst as cst

from omni_kit.targets.diffusers.porting.forward import LATENTS, MASK, TEXT, TIME
from omni_kit.targets.diffusers.porting.parts import Parts
from omni_kit.targets.diffusers.porting.streams import RETURNED, first_calls, handed, own_calls, shared_by, slices
from omni_kit.targets.diffusers.porting.syntax import code
from omni_kit.targets.diffusers.porting.visiting import visited

_ATTENTION = "AttentionModuleMixin"
_LAYERS = ("Linear", "Conv1d", "Conv2d", "Conv3d")
_MAKERS = ("made", "linear_layer")  # what layers are made by that may be another kind of them
_LISTS = ("ModuleList", "Sequential", "ModuleDict")
_SETS = ("register_buffer", "register_parameter", "register_module", "add_module")
_TOKENS_IN = ("Embed", "Conv2d", "Conv3d", "Linear")
# Those of torch.nn without weights, which is not imported where models are written.
_EMBEDS_TIME = re.compile(r"^(t|time|timesteps?)_?(emb|in|proj)")
_ACTIVATIONS = frozenset(
    [
        "CELU",
        "ELU",
        "GELU",
        "GLU",
        "Hardshrink",
        "Hardsigmoid",
        "Hardswish",
        "Hardtanh",
        "LeakyReLU",
        "LogSigmoid",
        "LogSoftmax",
        "Mish",
        "RReLU",
        "ReLU",
        "ReLU6",
        "SELU",
        "SiLU",
        "Sigmoid",
        "Softmax",
        "Softmax2d",
        "Softmin",
        "Softplus",
        "Softshrink",
        "Softsign",
        "Tanh",
        "Tanhshrink",
        "Threshold",
    ]
)
# What a tensor has, too: asked of anything but a module itself, such a name stays.
_OF_TENSORS = frozenset({"norm", "proj", "data", "grad", "shape", "size", "weight", "bias", "mean", "std", "view", "T"})

Names = Mapping[str, Mapping[str, str]]
"""Class of the file -> attribute of the authors -> what it is called here."""


@dataclass
class _Class:
    """One class of the file as it stands there.

    Attributes:
        made: attribute -> the call that makes it.
        others: what else it sets.
    """

    node: ast.ClassDef
    made: dict[str, ast.Call] = field(default_factory=dict)
    others: set[str] = field(default_factory=set)

    @property
    def bases(self) -> list[str]:
        return [ast.unparse(one) for one in self.node.bases]

    def methods(self) -> list[ast.FunctionDef]:
        return [one for one in self.node.body if isinstance(one, ast.FunctionDef) and one.name != "__init__"]

    def method(self, name: str) -> ast.FunctionDef | None:
        return next((one for one in self.methods() if one.name == name), None)


def named(parts: Parts, blocks: Mapping[str, str], alternatives: Mapping[str, Collection[str]]) -> Names:
    """Return the names that modules get.

    Args:
        blocks: the lists of modules that the model's forward goes through -> the class of what they hold.
        alternatives: class -> those that the authors make in its place.
    """
    classes = {part.name: _read(part.node) for part in parts.parts if part.cls is not None}
    processors = {one: _processed(part.before) for part in parts.parts for one in [part.name] if part.before}
    wanted: dict[str, dict[str, str]] = {}
    for name, one in classes.items():
        if _ATTENTION in one.bases:
            wanted[name] = _of_attention(one, processors.get(name))
        elif name != parts.root.name:
            wanted[name] = _of_block(one, classes) if _attentions(one, classes) else {}
    functions = {tree.name: tree for part in parts.parts if part.cls is None
                 for tree in ast.parse(code(part.node)).body if isinstance(tree, ast.FunctionDef)}  # fmt: skip
    wanted[parts.root.name] = _of_model(classes[parts.root.name], classes, functions, blocks)
    safe = _safe({name: names for name, names in wanted.items() if names}, classes, parts)
    return {cls: {old: new for old, new in names.items()
                  if all(safe.get(one, {}).get(old) == new for one in alternatives.get(cls, ())
                         if one in classes and old in {*classes[one].made, *classes[one].others})}
            for cls, names in safe.items()}  # fmt: skip


def renamed(parts: Parts, names: Names) -> None:
    """Write the names in every part."""
    every = _of_all(names, parts)
    for part in parts.parts:
        own = every.get(part.name, {})
        part.node = visited(part.node, _Renamed(own, _shared(names), "self"))
        part.before = [visited(one, _Renamed(own, _shared(names), "attn")) for one in part.before]


def _shared(names: Names) -> dict[str, str]:
    """Return the names that mean the same wherever they are asked for."""
    return {old: new for one in names.values() for old, new in one.items()}


def _of_all(names: Names, parts: Parts) -> dict[str, Mapping[str, str]]:
    """With what bases of a class have."""
    found: dict[str, Mapping[str, str]] = {}
    for part in parts.parts:
        if part.cls is not None:
            inherited = [found.get(code(base.value), {}) for base in part.cls.bases]
            found[part.name] = {old: new for one in [*inherited, names.get(part.name, {})] for old, new in one.items()}
    return found


class _Renamed(cst.CSTTransformer):
    """Attributes under other names."""

    def __init__(self, own: Mapping[str, str], shared: Mapping[str, str], holder: str) -> None:
        self.own, self.shared, self.holder = own, shared, holder

    def leave_Attribute(self, original_node: cst.Attribute, updated_node: cst.Attribute) -> cst.Attribute:  # noqa: N802
        """Return one of the class itself, or of a module that it has."""
        name, base = original_node.attr.value, original_node.value
        mine = isinstance(base, cst.Name) and base.value == self.holder
        new = self.own.get(name) if mine else None if name in _OF_TENSORS else self.shared.get(name)
        foreign = isinstance(base, cst.Name) and base.value in ("torch", "nn", "F", "config")
        return updated_node.with_changes(attr=cst.Name(new)) if new and not foreign else updated_node


def _read(node: cst.CSTNode) -> _Class:
    tree = ast.parse(code(node)).body[0]
    assert isinstance(tree, ast.ClassDef)
    found = _Class(tree, others={*_set_by_name(tree), *_of_class(tree)})
    for one in ast.walk(tree):
        if not isinstance(one, ast.Assign | ast.AnnAssign):
            continue
        for target in one.targets if isinstance(one, ast.Assign) else [one.target]:
            for part in target.elts if isinstance(target, ast.Tuple) else [target]:
                if isinstance(part, ast.Attribute) and getattr(part.value, "id", "") == "self":
                    call = _made(one.value) if part is target else None
                    if call is not None:
                        found.made[part.attr] = call
                    else:
                        found.others.add(part.attr)
    return found


def _set_by_name(tree: ast.ClassDef) -> Iterator[str]:
    """Yield the attributes that calls set: `self.register_buffer("scale", ...)`, `setattr(self, "scale", ...)`."""
    for one in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        at = {"setattr": 1, "__setattr__": 1}.get(_last(one.func), 0 if _last(one.func) in _SETS else None)
        name = one.args[at] if at is not None and len(one.args) > at else None
        named = next((each.value for each in one.keywords if each.arg == "name"), name)
        if at is not None and isinstance(named, ast.Constant) and isinstance(named.value, str):
            yield named.value


def _of_class(tree: ast.ClassDef) -> Iterator[str]:
    """Yield the attributes that the body of a class sets."""
    for one in tree.body:
        targets = one.targets if isinstance(one, ast.Assign) else [one.target] if isinstance(one, ast.AnnAssign) else []
        yield from (target.id for target in targets if isinstance(target, ast.Name))


def _made(value: ast.expr | None) -> ast.Call | None:
    """Return the call that makes a module, also where it is made on a condition."""
    if isinstance(value, ast.IfExp):
        return _made(value.body) or _made(value.orelse)
    return value if isinstance(value, ast.Call) else None


def _processed(before: Sequence[cst.BaseStatement]) -> ast.FunctionDef | None:
    for one in before:
        tree = ast.parse(code(one)).body[0]
        for item in tree.body if isinstance(tree, ast.ClassDef) else []:
            if isinstance(item, ast.FunctionDef) and item.name == "__call__":
                return item
    return None


def _last(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _is_norm(call: ast.Call) -> bool:
    return "norm" in _last(call.func).lower()


def _attentions(one: _Class, classes: Mapping[str, _Class]) -> list[str]:
    """Return the attributes that are attention with a processor."""
    return [
        name for name, call in one.made.items()
        if (held := classes.get(_last(call.func))) is not None and _ATTENTION in held.bases
    ]  # fmt: skip


def _is_feed_forward(call: ast.Call, classes: Mapping[str, _Class]) -> bool:
    """Return whether a module is two or more layers one after the other, and no attention."""
    name = _last(call.func)
    if name == "Sequential":
        return sum(_last(one.func) in _LAYERS for one in ast.walk(call) if isinstance(one, ast.Call)) >= 2
    held = classes.get(name)
    if held is None or _ATTENTION in held.bases or _attentions(held, classes):
        return name == "FeedForward"
    return sum(_last(one.func) in (*_LAYERS, *_MAKERS) for one in held.made.values()) >= 2


def _of_attention(one: _Class, call: ast.FunctionDef | None) -> dict[str, str]:
    """Norms of queries and of keys."""
    if call is None:
        return {}
    called = slices(call, "dispatch_attention_fn", "attn")
    if len(called) < 3:
        return {}
    found = {}
    for mine, others, new in ((0, (1, 2), "norm_q"), (1, (0, 2), "norm_k")):
        alone = [name for name in called[mine] if not any(name in called[other] for other in others)]
        norms = [name for name in alone if name in one.made and _is_norm(one.made[name])]
        if len(norms) == 1:
            found[norms[0]] = new
    return found if len(found) == 2 else {}


def _of_block(one: _Class, classes: Mapping[str, _Class]) -> dict[str, str]:
    """Attention, norms and the feed-forward of a block with one stream of tokens.

    What normalises single heads is no block but the authors' own wrapper of attention.
    """
    attention = _attentions(one, classes)
    if any(_is_norm(call) and call.args and "head" in ast.unparse(call.args[0]) for call in one.made.values()):
        return {}
    calls = [name for method in one.methods() for name in own_calls(method)]
    streams = {target for method in one.methods() for target, name in handed(method) if name in attention} - {RETURNED}
    if len(attention) > 2 or len(streams) > 1 or any(calls.count(name) != 1 for name in attention):
        return {}
    ordered = sorted(attention, key=calls.index)
    found = dict(zip(ordered, ["attn1", "attn2"] if len(ordered) == 2 else ["attn"], strict=True))
    forwards = [name for name, call in one.made.items() if name not in attention and not _is_norm(call)
                and _is_feed_forward(call, classes) and _takes_stream(one, name, streams)]  # fmt: skip
    if len(forwards) == 1:
        found[forwards[0]] = "ff"
    norms = sorted((name for name, call in one.made.items() if _is_norm(call) and name in calls), key=calls.index)
    if all(calls.count(name) == 1 for name in norms):
        found |= {name: f"norm{number}" for number, name in enumerate(norms, 1)}
    return found


def _takes_stream(one: _Class, name: str, streams: set[str]) -> bool:
    """Return whether what a module answers goes to where attention's answer goes."""
    goes = {target for method in one.methods() for target, called in handed(method) if called == name}
    return bool(goes) and goes <= {*streams, RETURNED}


def _of_model(
    one: _Class, classes: Mapping[str, _Class], functions: Mapping[str, ast.FunctionDef], blocks: Mapping[str, str]
) -> dict[str, str]:
    """Return the lists of blocks, the embeddings, and what comes last."""
    found = {}
    attending = [name for name, held in blocks.items() if held in classes and _has_attention(held, classes)]
    if len(attending) == 1:
        found[attending[0]] = "transformer_blocks"
    elif len(attending) == 2 and len({blocks[name] for name in attending}) == 2:
        double, single = (classes[blocks[name]].method("forward") for name in attending)
        if _answers(double) == 2 and _answers(single) == 1:
            found |= {attending[0]: "transformer_blocks", attending[1]: "single_transformer_blocks"}
    forward = one.method("forward")
    if forward is None:
        return found
    arguments = (LATENTS, TIME, TEXT, MASK)
    first, shared = first_calls(forward, arguments, blocks), shared_by(forward, arguments)
    known = {name: call for name, call in one.made.items() if name not in blocks}
    for argument, new in ((LATENTS, "patch_embed"), (TIME, "time_embed"), (TEXT, "context_embedder")):
        alone = [name for name in first.get(argument, ()) if name in known and shared.get(name, set()) <= {argument}]
        fitting = [name for name in alone if not _is_norm(known[name]) and not _is_activation(known[name], functions)]
        if argument == TIME and any(_EMBEDS_TIME.match(name) for name in {*known} - {*fitting}):
            continue
        if len(fitting) == 1 and (argument != LATENTS or _makes_tokens(known[fitting[0]], classes)):
            found[fitting[0]] = new
    return found | _last_of(forward, known, classes)


def _makes_tokens(call: ast.Call, classes: Mapping[str, _Class]) -> bool:
    """Return whether a module embeds latents: one layer, by itself or in a class; blocks have several."""
    name = _last(call.func)
    held = classes.get(name)
    if held is None:
        return any(one in name for one in _TOKENS_IN)
    made = [_last(one.func) for one in held.made.values()]
    if any(_last(ast.parse(base, mode="eval").body) == "Sequential" for base in held.bases):
        return False
    lists, layers = any(one in _LISTS for one in made), sum(one in _LAYERS for one in made)
    return any(one in name for one in _TOKENS_IN) or (layers == 1 and not lists)


def _is_activation(call: ast.Call, functions: Mapping[str, ast.FunctionDef], depth: int = 0) -> bool:
    """Return whether an activation is made, also by a function of the file that returns nothing else."""
    made = functions.get(_last(call.func))
    if made is None or depth > 3:
        return _last(call.func) in _ACTIVATIONS
    returned = [_made(one.value) for one in ast.walk(made) if isinstance(one, ast.Return)]
    return bool(returned) and all(one is not None and _is_activation(one, functions, depth + 1) for one in returned)


def _last_of(forward: ast.FunctionDef, known: Mapping[str, ast.Call], classes: Mapping[str, _Class]) -> dict[str, str]:
    """Return the last layer and the norm before it."""
    calls = [name for name in own_calls(forward) if name in known]
    if not calls or calls.count(calls[-1]) != 1 or _last(known[calls[-1]].func) != "Linear":
        return {}
    before = calls[-2] if len(calls) > 1 and calls.count(calls[-2]) == 1 else ""
    norm = {before: "norm_out"} if before and _is_norm(known[before]) else {}
    return {calls[-1]: "proj_out", **norm}


def _has_attention(name: str, classes: Mapping[str, _Class], depth: int = 0) -> bool:
    one = classes[name]
    if _ATTENTION in one.bases or _attentions(one, classes):
        return True
    held = [_last(call.func) for call in one.made.values()]
    return depth < 3 and any(other in classes and _has_attention(other, classes, depth + 1) for other in held)


def _answers(forward: ast.FunctionDef | None) -> int:
    """Return the number of a forward's outputs."""
    values = [one.value for one in ast.walk(forward) if isinstance(one, ast.Return)] if forward is not None else []
    counts = {len(one.elts) if isinstance(one, ast.Tuple) else 1 for one in values if one is not None}
    return counts.pop() if len(counts) == 1 else 0


def _safe(wanted: dict[str, dict[str, str]], classes: Mapping[str, _Class], parts: Parts) -> Names:
    """Without the names that something else has, that one cannot tell apart, or that are written as texts."""
    indirect = _indirect(parts)
    texts = _texts(parts)
    heirs = {base for one in classes.values() for base in one.bases if base in classes}
    found: dict[str, dict[str, str]] = {}
    for cls, names in wanted.items():
        one = classes[cls]
        related = cls in heirs or any(base in classes for base in one.bases)
        if related or cls in indirect:
            continue
        taken = {*one.made, *one.others, *(item.name for item in one.methods())}
        kept = {old: new for old, new in names.items() if old != new and old not in texts}
        while clash := [old for old, new in kept.items()
                        if (new in taken and new != old) or list(kept.values()).count(new) > 1]:  # fmt: skip
            numbered = {old for old in kept if re.fullmatch(r"norm\d", kept[old])}
            kept = {old: new for old, new in kept.items() if old not in {*clash, *(numbered & {*clash} and numbered)}}
        found[cls] = kept
    for old in {old for names in found.values() for old in names}:
        owners = [cls for cls, one in classes.items() if old in one.made or old in one.others]
        if len({found.get(cls, {}).get(old) for cls in owners}) > 1 and _asked_elsewhere(old, parts):
            for names in found.values():
                names.pop(old, None)
    shared: dict[str, set[str]] = {}
    for names in found.values():
        for old, new in names.items():
            shared.setdefault(old, set()).add(new)
    odd = {old for old, news in shared.items() if len(news) > 1 and _asked_elsewhere(old, parts)}
    return {cls: {old: new for old, new in names.items() if old not in odd} for cls, names in found.items() if names}


def _asked_elsewhere(name: str, parts: Parts) -> bool:
    """Return whether a name is asked of anything but a module itself."""
    for part in parts.parts:
        for one in (part.node, *part.before):
            for node in ast.walk(ast.parse(code(one))):
                own = isinstance(node, ast.Attribute) and getattr(node.value, "id", "") in ("self", "attn", "nn", "F")
                if isinstance(node, ast.Attribute) and node.attr == name and not own and name not in _OF_TENSORS:
                    return True
    return False


def _indirect(parts: Parts) -> set[str]:
    """Return the classes that something else than a call makes, or of which one cannot tell where."""
    names = {part.name for part in parts.parts if part.cls is not None}
    found: set[str] = set()
    for part in parts.parts:
        tree = ast.parse("\n".join(code(one) for one in (part.node, *part.before)))
        plain = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
        plain |= {id(base) for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for base in node.bases}
        checks = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _last(node.func) == "isinstance"]
        plain |= {id(one) for node in checks for one in ast.walk(node)}
        notes = [node.annotation for node in ast.walk(tree) if isinstance(node, ast.arg | ast.AnnAssign)]
        plain |= {id(one) for node in notes if node is not None for one in ast.walk(node)}
        found |= {node.id for node in ast.walk(tree)
                  if isinstance(node, ast.Name) and node.id in names and id(node) not in plain}  # fmt: skip
    return found - {parts.root.name}


def _texts(parts: Parts) -> set[str]:
    """Return words of texts that may name attributes: those without spaces."""
    return {word for part in parts.parts for word in _words(part.node)}


def _words(node: cst.CSTNode) -> Iterator[str]:
    for one in ast.walk(ast.parse(code(node))):
        if isinstance(one, ast.Constant) and isinstance(one.value, str) and not re.search(r"\s", one.value):
            yield from re.findall(r"\w+", one.value)
