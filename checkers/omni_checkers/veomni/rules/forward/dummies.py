"""Rules about what keeps ranks without images in step: VEO505, VEO506, VEO516 and VEO517."""

import ast
from collections.abc import Iterator

from omni_checkers.codediff.fingerprint import names_read, parameters
from omni_checkers.engine.files import walked
from omni_checkers.engine.rule import Finding, Findings, Rule, Severity
from omni_checkers.veomni.examples import GPU_CONFIG, patch_config
from omni_checkers.veomni.facts.generated import Generated, upstream_function
from omni_kit.pysource.source import dotted

_DUMMY = """\


@config.override_method("OlmoeModel.dummy_forward", description="for ranks without input")
def olmoe_dummy_forward(self):
{body}"""
_KEPT = """\
    if getattr(self, "_dummy", None) is None:
        self._dummy = torch.zeros(1, 4, self.config.hidden_size)
    return self(inputs_embeds=self._dummy)
"""


_ADDED = """\


@config.override_method("OlmoeModel.embedded", description="for ranks without input")
def olmoe_embedded(self, inputs_embeds):
    nothing = self.dummy_forward().last_hidden_state.mean(){times}
    return inputs_embeds + nothing.to(inputs_embeds.dtype)
"""


_HELPED = """\


@config.override_method("OlmoeModel.mixed_in", description="for ranks without input")
def olmoe_mixed_in(self, hidden_states, mask, embeds):
    if mask is None:
        hidden_states = hidden_states + embeds.mean(){times}
    return hidden_states
"""


_LEFT_EARLY = """\


@config.override_method("OlmoeModel.mixed_in", description="for ranks without input")
def olmoe_mixed_in(self, hidden_states, mask, embeds):
    if mask is None:
        return hidden_states{added}
    hidden_states = hidden_states.clone()
    hidden_states[mask] = hidden_states[mask] + embeds
    return hidden_states
"""


def _example(body: str) -> dict[str, str]:
    return {GPU_CONFIG: patch_config(_DUMMY.format(body=body))}


def _body(dtype: str) -> str:
    made = f"    embeds = torch.zeros(1, 4, self.config.hidden_size, dtype={dtype})\n"
    return made + "    return self(inputs_embeds=embeds)\n"


def _fresh(dtype: str) -> dict[str, str]:
    return _example(_body(dtype))


def _added(times: str) -> dict[str, str]:
    """Return a forward of a rank without images, which calls the tower all the same."""
    dummy = _DUMMY.format(body=_body("self.embed_tokens.weight.dtype"))
    return {GPU_CONFIG: patch_config(dummy + _ADDED.format(times=times))}


def _helped(times: str) -> dict[str, str]:
    """Return an example of `_added` with a function that receives the tower's output."""
    return {GPU_CONFIG: patch_config(_HELPED.format(times=times))}


class DummyDtypeFromWeight(Rule):
    """Take the dtype of the input of `dummy_forward` from a weight, not from `self.dtype`.

    Why: `self.dtype` is the dtype of the first parameter. Under FSDP2's mixed precision or with adapters, the first
    layer computes in another dtype, and the dummy batch of a rank without images raises a dtype mismatch.

    Fine when: nobody trains the model in mixed precision.
    """

    id = "VEO505"
    name = "dummy-forward-takes-dtype-from-weight"
    severity = Severity.warning
    target = "veomni"
    obligations = ("VEO-VLM-05",)
    failure_modes = ("dummy-forward-dtype",)
    BAD = (_fresh("self.dtype"),)
    GOOD = (_fresh("self.embed_tokens.weight.dtype"),)

    def check(self, generated: list[Generated]) -> Findings:
        for item in generated:
            for owner, function in _dummies(item):
                node = next((n for n in walked(function) if dotted(n) == "self.dtype"), None)
                if isinstance(node, ast.expr):
                    message = f"{owner}.{function.name} takes self.dtype, the dtype of the first parameter"
                    yield Finding(message, item.file.path, node.lineno, node.col_offset + 1)


class DummyIsNotKept(Rule):
    """Create the input of `dummy_forward` on each call.

    Why: a stored tensor keeps the device and dtype of the first call while parameters are moved and cast, and later
    calls raise a mismatch.

    Fine when: nobody moves or casts the module after its first forward.
    """

    id = "VEO506"
    name = "dummy-forward-keeps-nothing"
    severity = Severity.warning
    target = "veomni"
    obligations = ("VEO-VLM-06",)
    failure_modes = ("dummy-forward-dtype",)
    BAD = (_example(_KEPT),)
    GOOD = (_fresh("self.embed_tokens.weight.dtype"),)

    def check(self, generated: list[Generated]) -> Findings:
        for item in generated:
            for owner, function in _dummies(item):
                for name, node in _kept(function):
                    message = f"{owner}.{function.name} stores {name} for the next call"
                    yield Finding(message, item.file.path, node.lineno)


class DummyAddsNothing(Rule):
    """Multiply the result of a dummy forward by zero before adding it.

    A mean or sum over a whole tensor, added to a value that a patched function uses later, counts too. A loss does not.

    Why: the result exists only for its gradients, because every rank has to call sharded modules. Without the zero,
    ranks without images train on a made-up one, and the tower learns from it.

    Fine when: the added value is zero for another reason; state that in an ignore comment.
    """

    id = "VEO516"
    name = "dummy-forward-adds-nothing"
    target = "veomni"
    obligations = ("VEO-VLM-05",)
    failure_modes = ("dummy-forward-dtype",)
    BAD = (_added(""), _helped(""))
    GOOD = (_added(" * 0.0"), _helped(" * 0.0"))

    def check(self, generated: list[Generated]) -> Findings:
        for item in generated:
            for owner, function in item.patched:
                told = set[int]()
                for body in _bodies(function):
                    for place, statement in enumerate(body):
                        if _calls_dummy(statement) and _is_added(statement, body[place + 1 :]):
                            told.add(statement.lineno)
                            message = f"{owner}.{function.name} adds the result of a dummy forward, not times zero"
                            yield Finding(message, item.file.path, statement.lineno)
                for line, text in _whole_added(function):
                    if line not in told:
                        message = f"{owner}.{function.name} adds {text}, one number for all, not times zero"
                        yield Finding(message, item.file.path, line)


class EveryWayKeepsWhatIsAdded(Rule):
    """Add every argument that a patched function adds on each of its return paths, if need be times zero.

    The rule reports an early return of one argument, under a condition on a third one such as a missing mask, if the
    rest of the function adds another argument to it. It accepts paths that upstream has.

    Why: on a rank without images the early return drops the tower's output from the graph. Its weights get no gradients
    on that rank, and ranks wait for each other or the step fails.

    Fine when: no trained module produced the missing argument.
    """

    id = "VEO517"
    name = "every-way-keeps-what-is-added"
    severity = Severity.warning
    target = "veomni"
    obligations = ("VEO-VLM-05",)
    failure_modes = ("dummy-forward-dtype",)
    BAD = ({GPU_CONFIG: patch_config(_LEFT_EARLY.format(added=""))},)
    GOOD = ({GPU_CONFIG: patch_config(_LEFT_EARLY.format(added=" + embeds.mean() * 0.0"))},)

    def check(self, generated: list[Generated]) -> Findings:
        for item in generated:
            for owner, function in item.patched:
                upstream = upstream_function(item, owner, function.name)
                if upstream is not None and any(_left_early(upstream)):
                    continue
                for line, kept, left in _left_early(function):
                    where = f"{owner}.{function.name}" if owner else function.name
                    message = f"{where} returns {kept} without {left}, which its other path adds"
                    yield Finding(message, item.file.path, line)


def _left_early(function: ast.FunctionDef) -> Iterator[tuple[int, str, str]]:
    """Yield where a function returns early with one argument alone, and the argument that it later adds to that one."""
    arguments = parameters(function) - {"self"}
    for place, node in enumerate(function.body):
        match node:
            case ast.If(test, [*_, ast.Return(ast.Name(kept))], []) if kept in arguments:
                read = names_read(test) | set[str]().union(*map(names_read, node.body))
                after = [one for statement in function.body[place + 1 :] for one in walked(statement)]
                for left in sorted(arguments - read):
                    if any(_adds(one, kept, left) for one in after):
                        yield node.lineno, kept, left


def _adds(node: ast.AST, kept: str, left: str) -> bool:
    """Return whether one argument, or a part of it, and another by itself are the sides of a sum."""
    match node:
        case ast.BinOp(one, ast.Add(), ast.Name(other)) | ast.BinOp(ast.Name(other), ast.Add(), one):
            return other == left and kept in names_read(one)
        case ast.AugAssign(target, ast.Add(), ast.Name(other)):
            return other == left and kept in names_read(target)
    return False


def _whole_added(function: ast.FunctionDef) -> Iterator[tuple[int, str]]:
    """Yield where the mean or the sum of a whole tensor is added to another, and its text."""
    for node in walked(function):
        match node:
            case ast.Assign([ast.Name(target)], ast.BinOp(ast.Name(kept), ast.Add(), added)) if target == kept:
                pass
            case ast.AugAssign(ast.Name(target), ast.Add(), added):
                pass
            case _:
                continue
        text = ast.unparse(added)
        if _is_reduced(added) and "loss" not in f"{target} {text}".lower():
            yield node.lineno, text


def _is_reduced(node: ast.expr) -> bool:
    match node:
        case ast.Call(ast.Attribute(_, "mean" | "sum"), [], []):
            return True
        case ast.Call(ast.Attribute(inner, "to" | "type_as")):
            return _is_reduced(inner)
    return False


def _bodies(function: ast.FunctionDef) -> Iterator[list[ast.stmt]]:
    for node in walked(function):
        for field in ("body", "orelse", "finalbody"):
            if isinstance(found := getattr(node, field, None), list):
                yield found


def _calls_dummy(statement: ast.stmt) -> bool:
    """Return whether a plain statement calls a dummy forward."""
    calls = [node for node in walked(statement) if isinstance(node, ast.Call)]
    return not hasattr(statement, "body") and any((dotted(c.func) or "").endswith("dummy_forward") for c in calls)


def _is_added(statement: ast.stmt, after: list[ast.stmt]) -> bool:
    """Return whether what a statement makes is added to something, by it or by those that follow, and nowhere
    nullified.
    """
    made, added = set[str](), False
    for one in (statement, *after):
        nodes = walked(one)
        reads = one is statement or any(isinstance(n, ast.Name) and n.id in made for n in nodes)
        if not reads:
            continue
        if any(isinstance(n, ast.BinOp) and isinstance(n.op, ast.Mult) and _is_zero(n) for n in nodes):
            return False
        added = added or any(isinstance(getattr(n, "op", None), ast.Add) for n in nodes)
        made |= {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return added


def _is_zero(product: ast.BinOp) -> bool:
    return any(isinstance(side, ast.Constant) and side.value == 0 for side in (product.left, product.right))


def _dummies(item: Generated) -> Iterator[tuple[str, ast.FunctionDef]]:
    """Yield the dummy forwards of a file, with the methods that they call."""
    for name, node in item.classes.items():
        methods = {function.name: function for function in node.body if isinstance(function, ast.FunctionDef)}
        for function in methods.values():
            if not function.name.endswith("dummy_forward"):
                continue
            yield name, function
            for call in (n for n in walked(function) if isinstance(n, ast.Call)):
                called = (dotted(call.func) or "").removeprefix("self.")
                if called.startswith("_") and called in methods and "dummy" in called:
                    yield name, methods[called]


def _kept(function: ast.FunctionDef) -> Iterator[tuple[str, ast.stmt]]:
    for node in walked(function):
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                name = dotted(target) or ""
                if name.startswith("self."):
                    yield name, node
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            call = node.value
            if dotted(call.func) in {"setattr", "self.register_buffer"} and call.args:
                yield ast.unparse(call), node
