"""Faults around the layers: norms, embeddings, positions, pictures, the head, the loss, and what cuts gradients."""

import ast
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from omni_kit.parity.faults.kinds import (
    INAPPLICABLE,
    CodeFault,
    Fault,
    StateFault,
    Undo,
    calls,
    class_named,
    combines,
    left_as_initialised,
    own_parameter,
    reads,
    set_attribute,
    set_to,
    takes,
)
from omni_kit.parity.faults.source import CodeSite

_IGNORED = -100
_EPSILONS = ("eps", "variance_epsilon")
_is_norm = class_named("Norm")


def _epsilon(module: nn.Module) -> str:
    return next((name for name in _EPSILONS if isinstance(vars(module).get(name), float)), "")


def _ten_times_epsilon(module: nn.Module) -> Undo:
    return set_attribute(module, _epsilon(module), 10 * getattr(module, _epsilon(module)))


def _norm_weight(site: CodeSite) -> bool:
    parameter = own_parameter(site)
    return _is_norm(site.module) and parameter is not None and parameter.dim() == 1


def _normed(site: CodeSite) -> bool:
    """A norm that is a part of the module is called, with what it norms alone: another one answers more than that."""
    node = site.node
    alone = isinstance(node, ast.Call) and len(node.args) == 1 and not node.keywords
    if not (alone and isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
        return False
    name = node.func.attr
    part = getattr(site.module, name, None) if ast.unparse(node.func.value) == "self" else None
    return "norm" in name and isinstance(part, nn.Module) and not isinstance(part, nn.Identity)


def _centred(given: Any) -> Any:
    return given - given.mean(-1, keepdim=True) if isinstance(given, torch.Tensor) else INAPPLICABLE


def _rolled_rows(module: nn.Module) -> Undo:
    assert isinstance(module, nn.Embedding)
    return set_to(iter([(module.weight, module.weight.detach().roll(1, 0))]))


def _initialised(module: nn.Module) -> Undo:
    assert isinstance(module, nn.Linear)
    return set_to(iter([(module.weight, left_as_initialised(module.weight.detach()))]))


def _bias_lost(module: nn.Module) -> Undo:
    bias = module.bias
    assert isinstance(bias, torch.Tensor)
    return set_to(iter([(bias, torch.zeros_like(bias))]))


def _theta(module: nn.Module) -> bool:
    return isinstance(module._buffers.get("inv_freq"), torch.Tensor)


def _other_theta(module: nn.Module) -> Undo:
    """Frequencies that fall faster, as with a larger base."""

    def changes() -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        for name, buffer in module._buffers.items():
            if buffer is not None and name.endswith("inv_freq"):
                yield buffer, buffer**1.25

    return set_to(changes())


def _axes_swapped(positions: Any) -> Any:
    """Time, height and width in another order."""
    if not isinstance(positions, torch.Tensor) or positions.dim() != 3 or len(positions) != 3:
        return INAPPLICABLE
    return positions.flip(0)


def _heads_of(module: nn.Module) -> tuple[nn.Module, nn.Module] | None:
    """Input and output embeddings of the model that has both, where they have one shape."""
    try:
        words, head = module.get_input_embeddings(), module.get_output_embeddings()  # type: ignore[operator]
    except (AttributeError, NotImplementedError, TypeError):
        return None
    held = [getattr(part, "weight", None) for part in (words, head)]
    mine = head is not None and any(part is head for part in module.children())
    alike = all(isinstance(w, nn.Parameter) for w in held) and held[0].shape == held[1].shape  # type: ignore[union-attr]
    return (words, head) if mine and alike else None


def _names_of_heads(module: nn.Module) -> tuple[str, ...]:
    heads = _heads_of(module) or ()
    return tuple(name for name, part in module.named_modules() if any(part is head for head in heads))


def _tied_otherwise(module: nn.Module) -> Undo:
    """Ties a head that has weights of its own; gives a tied one a copy."""
    found = _heads_of(module)
    assert found is not None
    words, head = found
    own, shared = head.weight, words.weight
    assert isinstance(own, nn.Parameter)
    assert isinstance(shared, nn.Parameter)
    return set_attribute(head, "weight", nn.Parameter(own.detach().clone()) if own is shared else shared)


def _names_loss(module: nn.Module) -> bool:
    return _heads_of(module) is not None


def _later_labels(labels: Any) -> Any:
    return labels.roll(1, -1) if isinstance(labels, torch.Tensor) else INAPPLICABLE


def _padding_counted(labels: Any) -> Any:
    return labels.masked_fill(labels == _IGNORED, 0) if isinstance(labels, torch.Tensor) else INAPPLICABLE


def _without_last(logits: Any) -> Any:
    return logits[:-1] if isinstance(logits, tuple) and len(logits) > 1 else INAPPLICABLE


def _without_tanh(right: Any, function: Any, *given: Any) -> Any:
    value = getattr(function, "__self__", None)
    return value if isinstance(value, torch.Tensor) else next(iter(given), INAPPLICABLE)


def _one_later(timestep: Any) -> Any:
    return timestep + 1 if isinstance(timestep, torch.Tensor) else INAPPLICABLE


def _rolled(right: Any) -> Any:
    return right.roll(1, 0) if isinstance(right, torch.Tensor) and len(right) > 1 else INAPPLICABLE


def _reads_parameter(site: CodeSite) -> bool:
    parameter = own_parameter(site)
    return parameter is not None and parameter.requires_grad


class _ScaleAndShift(ast.NodeTransformer):
    def visit_Name(self, node: ast.Name) -> ast.AST:
        if "scale" in node.id:
            return ast.copy_location(ast.Name(node.id.replace("scale", "shift"), node.ctx), node)
        return ast.copy_location(ast.Name(node.id.replace("shift", "scale"), node.ctx), node)


def _swap_scale_and_shift(node: ast.expr) -> ast.expr:
    copy = ast.parse(ast.unparse(node), mode="eval").body
    changed = _ScaleAndShift().visit(copy)
    assert isinstance(changed, ast.expr)
    return changed


def _modulates(site: CodeSite) -> bool:
    """x * (1 + scale) + shift."""
    node = site.node
    if not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add)):
        return False
    multiplied = isinstance(node.left, ast.BinOp) and isinstance(node.left.op, ast.Mult)
    names = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
    return (
        multiplied
        and {name.replace("scale", "shift") for name in names if "scale" in name} <= names
        and any("scale" in name for name in names)
    )


NORMS: tuple[Fault, ...] = (
    CodeFault("norm-weight-from-one", "value", _norm_weight, lambda weight: weight + 1),
    CodeFault("norm-around-the-mean", "argument", takes("hidden_states|x|input", class_named("RMS")), _centred),
    CodeFault("norm-skipped", "call", _normed, lambda right, norm, given: given),
    StateFault("norm-epsilon-tenfold", lambda m: bool(_epsilon(m)), _ten_times_epsilon, stored=False, everywhere=True),
)
INPUTS: tuple[Fault, ...] = (
    StateFault("embedding-rows-shifted", lambda m: isinstance(m, nn.Embedding), _rolled_rows),
    StateFault("weight-left-as-initialised", lambda m: isinstance(m, nn.Linear), _initialised),
    StateFault("bias-lost", lambda m: isinstance(m, nn.Linear) and m.bias is not None, _bias_lost),
    StateFault("rotary-base-wrong", _theta, _other_theta, stored=False),
    CodeFault("position-axes-swapped", "argument", takes("position_ids", _theta), _axes_swapped),
    CodeFault(
        "position-embedding-dropped", "binary", combines(ast.Add, right=r"^pos\w*emb\w*$"), lambda r, left, p: left
    ),
    CodeFault("patches-shifted", "return", lambda s: class_named("PatchEmbed|PatchMerger")(s.module), _rolled),
    CodeFault("timestep-one-later", "argument", takes("timesteps?"), _one_later),
    CodeFault("gate-dropped", "binary", combines(ast.Mult, right=r"^\w*gate\w*$"), lambda right, left, gate: left),
    CodeFault("scale-and-shift-swapped", "expression", _modulates, lambda right, wrong: wrong, _swap_scale_and_shift),
)
OUTPUTS: tuple[Fault, ...] = (
    StateFault("wrong-tie", lambda m: _heads_of(m) is not None, _tied_otherwise, holders=_names_of_heads),
    CodeFault("labels-one-later", "argument", takes("labels", _names_loss), _later_labels),
    CodeFault("padding-counted-in-loss", "argument", takes("labels", _names_loss), _padding_counted),
    CodeFault("router-logits-dropped", "value", reads("router_logits"), _without_last),
    CodeFault("router-loss-dropped", "binary", combines(ast.Add, right="aux_loss"), lambda right, left, aux: left),
    CodeFault("softcap-dropped", "call", calls("tanh"), _without_tanh),
)
GRADIENTS: tuple[Fault, ...] = (
    CodeFault("weights-cut-off", "value", _reads_parameter, lambda parameter: parameter.detach()),
)
