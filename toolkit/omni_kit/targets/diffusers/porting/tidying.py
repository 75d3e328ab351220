"""Without what only the authors' own surroundings need: their checkpointing, their decorators, their one device."""

import re
from collections.abc import Collection

import libcst as cst

from omni_kit.targets.diffusers.porting.any_device import OnAnyDevice, device_names
from omni_kit.targets.diffusers.porting.any_precision import InAnyPrecision
from omni_kit.targets.diffusers.porting.parts import Parts
from omni_kit.targets.diffusers.porting.silent import Silent
from omni_kit.targets.diffusers.porting.syntax import (
    Removal,
    after_docstring,
    body_of,
    chain,
    code,
    expression,
    statement,
    with_body,
)
from omni_kit.targets.diffusers.porting.visiting import visited, walk
from omni_kit.upstream.repositories.traits import ENDS

_KEPT = re.compile(
    r"^(staticmethod|classmethod|property|\w+\.(setter|getter|deleter)|(torch\.)?(no_grad|inference_mode)|dataclass"
    r"|(\w+\.)*autocast|functools\.\w+|abstractmethod|abc\.\w+|contextmanager|(\w+\.)*(custom_(fwd|bwd)|register_to_config))$"
)
_OF_FIRST = re.compile(r"(^|\.)rank_zero_only$")
_CHECKPOINT = re.compile(r"(^|[._])(checkpoint|auto_grad_checkpoint|gradient_checkpointing_func)$")
_AXES = re.compile(r"""^(float|int|bool|complex)\[["'].*["']\]$""")
# A function that many repositories copy takes inputs in a tuple, parameters, and whether to checkpoint.
_PARAMETERS = re.compile(r"parameters\(\)|^\(\)$|params")
# What a `train` of the authors' own does that torch's does, too.
_OF_TRAIN = re.compile(
    r"self\.training = \w+$|super\(.*\)\.train\(\w*\)$|for \w+ in self\.children\(\):\s+\w+\.train\(\w+\)$|return self$"
    r"|if not isinstance\(\w+, bool\):\s+raise "
)
_UNSUPPORTED = '"The model does not support these inputs."'
NEVER = cst.Name("False")
_TENSORS = {"int": "LongTensor", "bool": "BoolTensor"}
_FLAG = re.compile(r"checkpoint", re.IGNORECASE)
# What diffusers reads of a model's class, and what other libraries read of theirs.
_SAID = re.compile(
    r"^(_supports_gradient_checkpointing|_no_split_modules|_repeated_blocks|_skip_layerwise_casting_patterns"
    r"|_keep_in_fp32_modules|ignore_for_config|_cp_plan|_skip_keys|config_class|base_model_prefix|model_type|main_input_name"
    r"|supports_gradient_checkpointing|_keys_to_ignore_on_load\w*|_tied_weights_keys)$"
)


def tidied(parts: Parts, taken: Collection[str]) -> None:
    """Tidies every part.

    Args:
        taken: the methods that a model of diffusers has: the authors' own would hide them.
    """
    wrapping = {part.name for part in parts.parts if isinstance(part.node, cst.FunctionDef) and _wraps(part.node)}
    devices = device_names(parts)
    for part in parts.parts:
        part.node = visited(
            part.node,
            Silent(),
            _Raising(),
            WithoutUnreachable(),
            _Unwrapped(),
            _Undecorated(wrapping),
            OnAnyDevice(devices),
            InAnyPrecision(),
            _PlainlyAnnotated(),
            _Copied(),
            _Uncached(),
        )
    root = parts.root
    assert root.cls is not None
    asked = {one.attr.value for part in parts.parts for one in walk(part.node) if isinstance(one, cst.Attribute)}
    body = [one for one in body_of(root.cls) if not _says(one) and not _hides(one, taken, asked)]
    root.node = with_body(root.cls, body)


def _says(one: cst.BaseStatement) -> bool:
    small = one.body[0] if isinstance(one, cst.SimpleStatementLine) else None
    targets = [target.target for target in small.targets] if isinstance(small, cst.Assign) else []
    targets += [small.target] if isinstance(small, cst.AnnAssign) else []
    return any(isinstance(target, cst.Name) and _SAID.match(target.value) for target in targets)


def _hides(one: cst.BaseStatement, taken: Collection[str], asked: Collection[str]) -> bool:
    """Return whether a method replaces one that every model has, or serves the authors' optimizer alone."""
    if not isinstance(one, cst.FunctionDef):
        return False
    name = one.name.value
    own = name in taken and not name.startswith("__") and name != "forward"
    return own or (name not in asked and bool(re.search(r"no_weight_decay|set_gradient_checkpointing", name)))


class _Branches(cst.CSTTransformer):
    """Knows which `if` is an `elif`: another node cannot stand there."""

    def __init__(self) -> None:
        self._elif: set[int] = set()

    def visit_If(self, node: cst.If) -> None:  # noqa: N802
        """An `elif` is part of the `if` before it."""
        if isinstance(node.orelse, cst.If):
            self._elif.add(id(node.orelse))

    def rest(self, node: cst.If, rest: cst.Else) -> cst.Else | cst.FlattenSentinel[cst.BaseStatement]:
        """Return what replaces a node of which the `else` alone is left."""
        if id(node) in self._elif:
            return rest
        return cst.FlattenSentinel([one for one in rest.body.body if isinstance(one, cst.BaseStatement)])


class WithoutUnreachable(Removal, _Branches):
    """Without branches whose test is `False`."""

    def leave_If(  # type: ignore[override]  # noqa: N802
        self, original_node: cst.If, updated_node: cst.If
    ) -> cst.If | cst.Else | cst.FlattenSentinel[cst.BaseStatement] | cst.RemovalSentinel:
        """Leave out what follows the test; keep what stands in `else`."""
        if not updated_node.test.deep_equals(NEVER):
            return updated_node
        rest = updated_node.orelse
        if rest is None:
            return cst.RemoveFromParent()
        return rest if isinstance(rest, cst.If) else self.rest(original_node, rest)


class _Raising(cst.CSTTransformer):
    """Errors where authors end the process: `exit()`."""

    def leave_Expr(self, original_node: cst.Expr, updated_node: cst.Expr) -> cst.Expr | cst.Raise:  # noqa: N802
        """Of a call of its own."""
        call = updated_node.value
        if not isinstance(call, cst.Call) or chain(call.func) not in ENDS:
            return updated_node
        said = call.args[0].value if call.args and isinstance(call.args[0].value, cst.SimpleString) else None
        return cst.Raise(cst.Call(cst.Name("ValueError"), [cst.Arg(said or cst.SimpleString(_UNSUPPORTED))]))


class _Unwrapped(_Branches):
    """Calls as they are without a checkpoint: the model's own forward checkpoints its blocks."""

    def leave_If(  # type: ignore[override]  # noqa: N802
        self, original_node: cst.If, updated_node: cst.If
    ) -> cst.If | cst.Else | cst.FlattenSentinel[cst.BaseStatement]:
        """Of two branches, the one without."""
        if not _FLAG.search(code(original_node.test)) or not isinstance(updated_node.orelse, cst.Else):
            return updated_node
        if not any(
            isinstance(one, cst.Call) and _CHECKPOINT.search(chain(one.func)) for one in walk(original_node.body)
        ):
            return updated_node
        if any(isinstance(one, cst.Call) and _CHECKPOINT.search(chain(one.func)) for one in walk(updated_node.orelse)):
            return updated_node
        return self.rest(original_node, updated_node.orelse)

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:  # noqa: N802
        """`checkpoint(block, x, use_reentrant=False)` is `block(x)`, as is `checkpoint(block, (x,), params, flag)` or
        `checkpoint(block, (x,), flag)`.
        """
        if not _CHECKPOINT.search(chain(updated_node.func)) or not updated_node.args:
            return updated_node
        first, *rest = updated_node.args
        called = first.value
        while isinstance(called, cst.Call) and len(called.args) == 1:  # a wrapper around the block
            called = called.args[0].value
        if first.keyword is not None or not isinstance(called, cst.Name | cst.Attribute | cst.Subscript):
            return updated_node
        own = ("use_reentrant", "preserve_rng_state", "context_fn", "determinism_check", "debug")
        given = [one for one in rest if one.keyword is None or one.keyword.value not in own]
        packed = len(given) == 3 and _PARAMETERS.search(code(given[1].value))
        flagged = len(given) == 2 and isinstance(given[0].value, cst.Tuple) and _FLAG.search(code(given[1].value))
        if packed or flagged:
            inputs = given[0].value
            if isinstance(inputs, cst.Tuple):
                given = [cst.Arg(one.value) for one in inputs.elements]
            else:
                given = [cst.Arg(inputs, star="*")]
        return cst.Call(called, [one.with_changes(comma=cst.MaybeSentinel.DEFAULT) for one in given])


def _wraps(node: cst.FunctionDef | cst.Lambda, above: Collection[str] = ()) -> bool:
    """Return whether a function makes another one that calls what it received, as decorators that change arguments or
    results do.
    """
    received = {one.name.value for one in node.params.params} | {*above}
    inner = [one for one in walk(node.body) if isinstance(one, cst.FunctionDef | cst.Lambda)]
    called = {chain(one.func) for function in inner for one in walk(function) if isinstance(one, cst.Call)}
    return bool(called & received) or any(_wraps(function, received) for function in inner)


class _Undecorated(cst.CSTTransformer):
    """Without decorators that compile, script or register."""

    def __init__(self, wrapping: Collection[str]) -> None:
        self.wrapping = wrapping

    def leave_FunctionDef(self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef) -> cst.FunctionDef:  # noqa: N802
        """Of a function."""
        return updated_node.with_changes(decorators=self._kept(updated_node.decorators))

    def leave_ClassDef(self, original_node: cst.ClassDef, updated_node: cst.ClassDef) -> cst.ClassDef:  # noqa: N802
        """Of a class."""
        return updated_node.with_changes(decorators=self._kept(updated_node.decorators))

    def _kept(self, given: Collection[cst.Decorator]) -> list[cst.Decorator]:
        names = ((_decorator(one.decorator), one) for one in given)
        return [one for name, one in names if _KEPT.match(name) or name in self.wrapping]

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:  # noqa: N802
        """Of a function that logs, on the first of several processes: `rank_zero_only(logger.info)`."""
        first = _OF_FIRST.search(chain(updated_node.func)) and len(updated_node.args) == 1
        return updated_node.args[0].value if first else updated_node


def _decorator(node: cst.BaseExpression) -> str:
    return chain(node.func) if isinstance(node, cst.Call) else chain(node)


class _PlainlyAnnotated(cst.CSTTransformer):
    """Tensors as tensors, where authors write their axes into annotations: `float["b n d"]`."""

    def leave_Subscript(  # noqa: N802
        self, original_node: cst.Subscript, updated_node: cst.Subscript
    ) -> cst.BaseExpression:
        """Return one of them."""
        found = _AXES.match(code(updated_node))
        return updated_node if found is None else expression(f"torch.{_TENSORS.get(found[1], 'Tensor')}")

    def leave_BinaryOperation(  # noqa: N802
        self, original_node: cst.BinaryOperation, updated_node: cst.BinaryOperation
    ) -> cst.BaseExpression:
        """Return two that are one now."""
        alike = updated_node.left.deep_equals(updated_node.right)
        changed = not original_node.left.deep_equals(original_node.right)
        return updated_node.left if alike and changed else updated_node


class _Copied(cst.CSTTransformer):
    """Copies of parameters where authors change in place what `detach` returns, and so the parameter itself."""

    def leave_FunctionDef(self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef) -> cst.FunctionDef:  # noqa: N802
        """Of the variables and attributes that a function assigns and changes."""
        changed = {code(one.target).partition("[")[0] for one in walk(updated_node) if isinstance(one, cst.AugAssign)}
        return updated_node.with_changes(body=visited(updated_node.body, _Cloned(changed))) if changed else updated_node


class _Cloned(cst.CSTTransformer):
    """`x = weight.detach().clone()` of `x = weight.detach()`."""

    def __init__(self, names: Collection[str]) -> None:
        self.names = names

    def leave_Assign(self, original_node: cst.Assign, updated_node: cst.Assign) -> cst.Assign:  # noqa: N802
        """Of these names."""
        value = updated_node.value
        if not code(value).endswith(".detach()") or not any(
            code(one.target) in self.names for one in updated_node.targets
        ):
            return updated_node
        return updated_node.with_changes(value=expression(f"{code(value)}.clone()"))


class _Uncached(cst.CSTTransformer):
    """Tensors that are made of weights in each forward, where authors make them once, as the model stops training.

    What they keep there is neither loaded nor moved with the model.
    """

    def leave_ClassDef(self, original_node: cst.ClassDef, updated_node: cst.ClassDef) -> cst.ClassDef:  # noqa: N802
        """Of a class with a `train` of its own."""
        methods = {one.name.value: one for one in body_of(updated_node) if isinstance(one, cst.FunctionDef)}
        train, forward = methods.get("train"), methods.get("forward")
        made = _made_to_evaluate(train) if train is not None else []
        names = [
            chain(one.func).removeprefix("self.") for line in made for one in walk(line) if isinstance(one, cst.Call)
        ]
        derived = [name for name in names if name in methods and ".detach()" in code(methods[name])]
        if not derived or derived != names or forward is None:
            return updated_node
        lines = [statement(f"if not self.training:\n    self.{name}()") for name in derived]
        body = body_of(forward)
        at = after_docstring(body)
        changed = forward.with_changes(body=cst.IndentedBlock([*body[:at], *lines, *body[at:]]))
        kept = [changed if one is forward else one for one in body_of(updated_node) if one is not train]
        return with_body(updated_node, kept)


def _made_to_evaluate(train: cst.FunctionDef) -> list[cst.BaseStatement]:
    """Return what a `train` does where it is not to train; empty if it does more than torch's own in other places."""
    names = [one.name.value for one in train.params.params]
    if len(names) != 2:
        return []
    found: list[cst.BaseStatement] = []
    for one in body_of(train):
        if isinstance(one, cst.If) and code(one.test) == names[1] and isinstance(one.orelse, cst.Else):
            found += [part for part in one.orelse.body.body if isinstance(part, cst.BaseStatement)]
        elif not _OF_TRAIN.match(code(one).strip()):
            return []
    return found
