"""VEO515: a branch that makes logits, or leaves them to a loss, leaves out what upstream does to them."""

import ast
from collections.abc import Iterator, Mapping, Sequence

from omni_checkers.engine.files import walked
from omni_checkers.engine.rule import Example, Finding, Findings, NotApplicable, Rule, Severity
from omni_checkers.veomni.facts.generated import Generated, upstream_function
from omni_kit.pysource.source import dotted

_LOGITS = "logits"
_FILE = "generated/patched_modeling_gemma3_gpu.py"
_HEAD = """\
# Source: transformers.models.gemma3.modeling_gemma3
class Gemma3ForCausalLM(Gemma3PreTrainedModel, GenerationMixin):
    @can_return_tuple
    def forward(
        self,
        input_ids=None,
        attention_mask=None,
        position_ids=None,
        past_key_values=None,
        inputs_embeds=None,
        labels=None,
        use_cache=None,
        logits_to_keep=0,
        **kwargs,
    ):
        outputs = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            past_key_values=past_key_values,
            inputs_embeds=inputs_embeds,
            use_cache=use_cache,
            **kwargs,
        )
        hidden_states = outputs.last_hidden_state
        loss, logits, fused_linear_aux = None, None, None
        if labels is not None and veomni_causal_lm_loss.use_non_eager_impl:
{guard}            loss, logits, fused_linear_aux = veomni_causal_lm_loss(
                logits=None,
                labels=labels,
                vocab_size=self.vocab_size,
                hidden_states=hidden_states,
                weights=self.lm_head.weight,
                **kwargs,
            )
        else:
            slice_indices = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
            logits = self.lm_head(hidden_states[:, slice_indices, :])
            if self.config.final_logit_softcapping is not None:
                logits = logits / self.config.final_logit_softcapping
                logits = torch.tanh(logits)
                logits = logits * self.config.final_logit_softcapping
            if labels is not None:
                loss, _, fused_linear_aux = self.loss_function(
                    logits=logits,
                    labels=labels,
                    vocab_size=self.vocab_size,
                    hidden_states=hidden_states,
                    weights=self.lm_head.weight,
                    **kwargs,
                )
        return CausalLMOutputWithLogProbs(
            loss=loss,
            logits=logits,
            fused_linear_aux=fused_linear_aux,
            past_key_values=outputs.past_key_values,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )
"""
_GUARD = """\
            if self.config.final_logit_softcapping is not None:
                raise ValueError("the fused loss caps no logits")
"""


def _example(guard: str) -> Example:
    return {_FILE: _HEAD.format(guard=guard)}


class FusedLossChangesLogits(Rule):
    """Apply upstream's change of the logits on every branch; pass it to a fused loss, or raise.

    Why: a fused loss multiplies hidden states by the head's weight. It silently drops a cap, scale or bias that
    upstream applies to the logits: training optimises another loss than evaluation measures.

    Fine when: upstream changes nothing, or the branch reads the setting and raises or scales before.
    """

    id = "VEO515"
    name = "fused-loss-knows-what-is-done-to-logits"
    severity = Severity.warning
    target = "veomni"
    obligations = ("VEO-LOSS-02",)
    failure_modes = ("loss-wrapper-arity",)
    example_of = "gemma3"
    BAD = (_example(""),)
    GOOD = (_example(_GUARD),)

    def check(self, generated: list[Generated]) -> Findings:
        judged = False
        for item in generated:
            for owner, function in item.patched:
                upstream = upstream_function(item, owner, function.name)
                settings = _settings(upstream) if upstream is not None else {}
                for branch, before in _fused(function.body, []) if settings else ():
                    judged = True
                    for said in _lost(settings, [*before, branch]):
                        message = f"{owner}.{function.name} passes the fused loss no {said}"
                        yield Finding(message, item.file.path, branch.lineno)
                for made, after in _made(function.body, []) if settings else ():
                    judged = True
                    for said in _lost(settings, [made, *after]):
                        yield Finding(
                            f"{owner}.{function.name} computes logits without {said}", item.file.path, made.lineno
                        )
        if not judged:
            raise NotApplicable("upstream does not change logits that a fused loss computes")


def _lost(settings: Mapping[str, int], statements: Sequence[ast.stmt]) -> Iterator[str]:
    """Yield the settings of which none of these statements speaks."""
    known = {name for node in statements for name in _attributes(node)}
    for name, line in settings.items():
        if name not in known:
            yield f"{name}, by which upstream changes the logits (its line {line})"


def _made(body: Sequence[ast.stmt], after: list[ast.stmt]) -> Iterator[tuple[ast.stmt, list[ast.stmt]]]:
    """Yield statements that make logits by the head, with all that is done after them on the way."""
    for place, statement in enumerate(body):
        rest = [*body[place + 1 :], *after]
        if isinstance(statement, ast.If):
            for part in (statement.body, statement.orelse):
                yield from _made(part, rest)
        elif isinstance(statement, ast.Assign) and dotted(statement.targets[0]) == _LOGITS:
            calls = (node.func for node in walked(statement.value) if isinstance(node, ast.Call))
            if any((dotted(one) or "").endswith(".lm_head") for one in calls):
                yield statement, rest


def _settings(function: ast.FunctionDef) -> dict[str, int]:
    """Return the attributes by which a head changes its logits once they are made, with the line."""
    found: dict[str, int] = {}
    for node in walked(function):
        if isinstance(node, (ast.Assign, ast.AugAssign)) and _changes_logits(node):
            for name in _attributes(node):
                found.setdefault(name, node.lineno)
    return found


def _changes_logits(node: ast.Assign | ast.AugAssign) -> bool:
    target = node.target if isinstance(node, ast.AugAssign) else node.targets[0]
    read = {inner.id for inner in walked(node.value) if isinstance(inner, ast.Name)}
    return dotted(target) == _LOGITS and (isinstance(node, ast.AugAssign) or _LOGITS in read)


def _attributes(node: ast.AST) -> Iterator[str]:
    """Yield the attributes read of the model or its config: the last names."""
    holders = {id(inner.value) for inner in walked(node) if isinstance(inner, ast.Attribute)}
    for inner in walked(node):
        if isinstance(inner, ast.Attribute) and id(inner) not in holders and (dotted(inner) or "").startswith("self."):
            yield inner.attr
        elif isinstance(inner, ast.Constant) and isinstance(inner.value, str):
            yield inner.value


def _fused(body: Sequence[ast.stmt], before: list[ast.stmt]) -> Iterator[tuple[ast.stmt, list[ast.stmt]]]:
    """Yield statements that call a kernel for the loss with hidden states, with all that is done before them on the
    way.
    """
    done = list(before)
    for statement in body:
        if isinstance(statement, ast.If):
            for part in (statement.body, statement.orelse):
                yield from _fused(part, [*done, ast.Expr(statement.test, lineno=statement.lineno)])
            if not any(True for _ in _fused([*statement.body, *statement.orelse], [])):
                done.append(statement)
            continue
        if any(_is_kernel(node) for node in walked(statement)):
            yield statement, done
        done.append(statement)


def _is_kernel(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    name = dotted(node.func) or ""
    given = {keyword.arg for keyword in node.keywords}
    return name.startswith("veomni_") and name.endswith("_loss") and "hidden_states" in given
