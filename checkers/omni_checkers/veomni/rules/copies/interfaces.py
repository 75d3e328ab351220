"""Parameters and reads of a patch compared with upstream's: VEO417 and VEO418."""

import ast
from collections.abc import Iterator

from omni_checkers.codediff.fingerprint import unparse_cached
from omni_checkers.codediff.normalize import ONE_TENSOR
from omni_checkers.engine.files import walked
from omni_checkers.engine.rule import Finding, Findings, Rule, Severity
from omni_checkers.veomni.examples import GPU_CONFIG, patch_config
from omni_checkers.veomni.facts.overrides import Override, settings_of
from omni_kit.pysource.signatures import defaults, double_star, named, positional, required, signature

_ROUTER = """\


@config.override_method("OlmoeTopKRouter.forward", description="in fp32")
def olmoe_top_k_router_forward(self, hidden_states):
    logits = hidden_states.float().reshape(-1, self.hidden_dim) @ self.weight.float().t()
    weights, chosen = logits.softmax(dim=-1).topk(self.top_k)
{scale}    return logits, weights.to(hidden_states.dtype), chosen
"""
_SCALE = "    weights = weights / weights.sum(dim=-1, keepdim=True) if self.norm_topk_prob else weights\n"
_MLP = """\


@config.override_method("OlmoeDecoderLayer.forward", description="out of place")
def olmoe_decoder_layer_forward(
    self,
    hidden_states,
    attention_mask=None,
    position_ids=None,
    past_key_values=None,
    use_cache={default},
    {last},
):
    hidden_states = hidden_states + self.self_attn(
        hidden_states=self.input_layernorm(hidden_states),
        attention_mask=attention_mask,
        position_ids=position_ids,
        past_key_values=past_key_values,
        use_cache=use_cache,
        position_embeddings=position_embeddings,
        **kwargs,
    )[0]
    return hidden_states + self.mlp(self.post_attention_layernorm(hidden_states))
"""
_KEYWORDS = "position_embeddings=None,\n    **kwargs"
_MOVED = "    position_ids=None,\n    past_key_values=None,\n", "    past_key_values=None,\n    position_ids=None,\n"


class SettingsAreRead(Rule):
    """Read in a patch every setting that the replaced code reads.

    A setting is an attribute that upstream's `__init__` takes from the config. The patch may read it under the config's
    name, or in code that it calls in the same file.

    Why: the setting has no effect. Checkpoints with its default value are right; others load, train and produce wrong
    outputs.

    Fine when: VeOmni's kernel or loss reads it elsewhere; state where in an ignore comment.
    """

    id = "VEO417"
    name = "settings-that-upstream-reads-are-read"
    severity = Severity.warning
    target = "veomni"
    obligations = ("VEO-PG-39", "VEO-MOE-04")
    failure_modes = ("override-signature-drift",)
    BAD = ({GPU_CONFIG: patch_config(_ROUTER.format(scale=""))},)
    GOOD = ({GPU_CONFIG: patch_config(_ROUTER.format(scale=_SCALE))},)

    def check(self, overrides: list[Override]) -> Findings:
        for one in overrides:
            read = list(_read(one))
            mentioned = one.mentions() if read else set()
            lost = [name for name, other in read if not {name, *other} & mentioned]
            if lost and not _taken_out(one.copy.ours) and not _handed_over(one):
                message = f"{one.name} does not read {', '.join(sorted(set(lost)))}, but upstream does"
                yield Finding(message, one.item.file.path, one.copy.ours.lineno)


class OverridesTakeTheSame(Rule):
    """Keep the parameters, their order and defaults, and the number of returned values of a patched method.

    Why: other methods, the trainer, PEFT and generation call upstream's signature. A missing parameter raises
    TypeError, a moved one receives another value, and another default changes the model for callers that omit it.

    Fine when: only patched code calls it.
    """

    id = "VEO418"
    name = "overrides-take-what-upstream-takes"
    target = "veomni"
    obligations = ("VEO-PG-40",)
    failure_modes = ("override-signature-drift",)
    BAD = (
        {GPU_CONFIG: patch_config(_MLP.format(default="True", last=_KEYWORDS))},
        {GPU_CONFIG: patch_config(_MLP.format(default="False", last=_KEYWORDS).replace(*_MOVED))},
    )
    GOOD = ({GPU_CONFIG: patch_config(_MLP.format(default="False", last=_KEYWORDS))},)

    def check(self, overrides: list[Override]) -> Findings:
        for one in overrides:
            for wrong in _misfits(one):
                yield Finding(f"{one.name} {wrong}", one.item.file.path, one.copy.ours.lineno)


def _read(one: Override) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield the settings that upstream's function reads, with their other names; but those that it gives to its
    loss.
    """
    settings = dict(settings_of(one))
    calls = [node for node in walked(one.copy.theirs) if isinstance(node, ast.Call)]
    methods = {call.func for call in calls}
    loss = {n for call in calls if unparse_cached(call.func) == "self.loss_function" for n in walked(call)}
    inner = {node.value for node in walked(one.copy.theirs) if isinstance(node, ast.Attribute)}
    for node in walked(one.copy.theirs):
        if not isinstance(node, ast.Attribute) or node in methods or node in loss or not isinstance(node.ctx, ast.Load):
            continue
        if unparse_cached(node.value) == "self" and node.attr in settings:
            yield node.attr, settings[node.attr]
        elif unparse_cached(node.value).startswith("self.config") and node not in inner:
            yield node.attr, frozenset()


def _taken_out(function: ast.FunctionDef) -> bool:
    """Return whether a method does nothing but refuse, or nothing at all."""
    body = [node for node in function.body if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))]
    return all(isinstance(node, (ast.Raise, ast.Pass)) for node in body)


def _handed_over(one: Override) -> bool:
    """Return whether a function elsewhere is given the whole module, and upstream gives it to none of that name."""
    ours, theirs = (
        {
            unparse_cached(node.func)
            for node in walked(function)
            if isinstance(node, ast.Call) and any(unparse_cached(argument) == "self" for argument in node.args)
        }
        for function in (one.copy.ours, one.copy.theirs)
    )
    return bool(ours - theirs)


def _answers(function: ast.FunctionDef) -> set[int]:
    """Return the number of values in each return of a function; 0 if a return does not show it."""
    inner = {
        n for node in walked(function)[1:] if isinstance(node, (ast.FunctionDef, ast.Lambda)) for n in walked(node)
    }
    returns = [node.value for node in walked(function) if isinstance(node, ast.Return) and node not in inner]
    return {_count(function, value) for value in returns if value is not None}


def _count(function: ast.FunctionDef, value: ast.expr) -> int:
    match value:
        case ast.Tuple(values):
            return len(values)
        case ast.BinOp() | ast.Compare():
            return 1
        case ast.Call(ast.Attribute(_, method)):
            return int(method in ONE_TENSOR)
        case ast.Name(name):
            made = [
                node
                for node in walked(function)
                if isinstance(node, ast.Assign) and unparse_cached(node.targets[0]) == name
            ]
            last = max(made, key=lambda node: node.lineno, default=None)
            return _count(function, last.value) if last is not None and not isinstance(last.value, ast.Name) else 0
    return 0


def _misfits(one: Override) -> Iterator[str]:
    answers, wanted_answers = _answers(one.copy.ours), _answers(one.copy.theirs)
    if len(answers) == len(wanted_answers) == 1 and answers != wanted_answers and 0 not in answers | wanted_answers:
        yield f"returns {answers.pop()} values; upstream's returns {wanted_answers.pop()}"
    ours, theirs = signature(one.copy.ours), signature(one.copy.theirs)
    mine, wanted = named(ours), named(theirs)
    placed, order = positional(ours), positional(theirs)
    if one.copy.ours.name == "forward" and not double_star(ours):
        # What every caller has to give is mostly given by its place.
        pairs = zip(order, placed, strict=False)
        renamed = {name for name, own in pairs if own not in order and name in required(theirs)}
        lost = [name for name in wanted if name not in mine and name not in renamed]
        yield from (f"does not take '{name}', but upstream does" for name in lost)
        outer = one.owner.endswith(("Model", "ForCausalLM", "ForConditionalGeneration"))
        if double_star(theirs) and outer:
            yield f"does not take **{double_star(theirs)}, as upstream's does"
    if [name for name in placed if name in order] != [name for name in order if name in placed]:
        yield f"takes its parameters in a different order from upstream: {', '.join(order)}"
    own = defaults(ours)
    for name, default in defaults(theirs).items():
        if name in own and unparse_cached(own[name]) != unparse_cached(default):
            yield f"has {name}={unparse_cached(own[name])}; upstream has {name}={unparse_cached(default)}"
