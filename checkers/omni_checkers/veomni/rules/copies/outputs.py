"""VEO426: a patched method returns every field that upstream's returns."""

import ast
from collections.abc import Iterator

from omni_checkers.codediff.fingerprint import unparse_cached
from omni_checkers.engine.files import walked
from omni_checkers.engine.rule import Finding, Findings, NotApplicable, Rule, Severity
from omni_checkers.veomni.examples import GPU_CONFIG, LOSS, OUTPUT, loss_contract, patch_config
from omni_checkers.veomni.facts.generated import Generated
from omni_checkers.veomni.facts.overrides import Override

_BODY = f"    loss, logits, aux = {LOSS}\n{OUTPUT}"


class OutputsAreFilled(Rule):
    """Return an output where upstream's method does, and fill the same fields.

    Upstream's `**outputs` fills every field that both output classes have. VEO415 checks the values.

    Why: the field is None. Load-balancing losses, log-probabilities, caches or hidden states are missing, and most
    callers silently skip None.

    Fine when: VeOmni never reads the field; state that in an ignore comment.
    """

    id = "VEO426"
    name = "outputs-have-the-fields-of-upstream"
    severity = Severity.warning
    target = "veomni"
    obligations = ("VEO-LOSS-10", "VEO-OMNI-12")
    failure_modes = ("modeloutput-post-mutation",)
    BAD = ({GPU_CONFIG: patch_config(loss_contract(_BODY.replace(", **others", "")))},)
    GOOD = ({GPU_CONFIG: patch_config(loss_contract(_BODY))},)

    def check(self, overrides: list[Override]) -> Findings:
        judged = False
        for one in overrides:
            wanted = {field for call in _made(one.copy.theirs) for field in _filled(call, one.item)}
            made = sorted(_made(one.copy.ours), key=lambda call: call.lineno)
            if not wanted:
                continue
            if not made:
                if (bare := _tuple(one.copy.ours)) is not None:
                    judged = True
                    theirs = ", ".join(sorted({unparse_cached(call.func) for call in _made(one.copy.theirs)}))
                    message = f"{one.name} returns a tuple, but upstream an object: {theirs}"
                    yield Finding(message, one.item.file.path, bare.lineno)
                continue
            judged = True
            given = {keyword.arg for call in made for keyword in call.keywords if keyword.arg}
            # One of VeOmni's has upstream's fields, and some more.
            own = {field for call in made for field in _fields(one.item, unparse_cached(call.func))} or wanted
            open_ended = any(keyword.arg is None for keyword in made[-1].keywords) or any(call.args for call in made)
            lost = [] if open_ended else sorted((wanted & own) - given)
            if lost:
                message = f"{one.name} leaves {', '.join(lost)} of its output empty; upstream sets it"
                yield Finding(message, one.item.file.path, made[-1].lineno)
        if not judged:
            raise NotApplicable("no patched method returns an output object")


def _made(function: ast.FunctionDef) -> Iterator[ast.Call]:
    """The outputs that a method makes and returns."""
    for node in walked(function):
        if isinstance(node, ast.Call) and "Output" in unparse_cached(node.func).rpartition(".")[2]:
            yield node


def _tuple(function: ast.FunctionDef) -> ast.Tuple | None:
    """Return the tuple that a function returns, where it returns nothing else."""
    returned = [node.value for node in walked(function) if isinstance(node, ast.Return) and node.value is not None]
    tuples = [value for value in returned if isinstance(value, ast.Tuple)]
    return tuples[-1] if tuples and len(tuples) == len(returned) else None


def _filled(call: ast.Call, item: Generated) -> set[str]:
    """Return the fields that upstream's call fills."""
    named = {keyword.arg for keyword in call.keywords if keyword.arg}
    spread = any(keyword.arg is None for keyword in call.keywords)
    return named | (_COMMON & _fields(item, unparse_cached(call.func)) if spread else set())


# What the inner model's output has, where it is handed on as a whole.
_COMMON = {"past_key_values", "hidden_states", "attentions", "router_logits"}


def _fields(item: Generated, name: str) -> set[str]:
    """Return the fields of an output class, as upstream's file or this one has it; empty for one that is not known."""
    for source in filter(None, (item.source, item.theirs)):
        found: set[str] = set()
        todo = [(source, name)]
        while todo:
            where, wanted = todo.pop()
            resolved = where.resolve_class(wanted)
            if resolved is not None:
                home, node = resolved
                fields = (inner.target for inner in node.body if isinstance(inner, ast.AnnAssign))
                found |= {target.id for target in fields if isinstance(target, ast.Name)}
                todo += [(home, base) for base in home.bases(node)]
        if found:
            return found
    return set()
