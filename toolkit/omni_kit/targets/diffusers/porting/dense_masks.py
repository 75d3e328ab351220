"""Flex attention as torch's kernel with a mask of every query and key, which each backend of the library accepts."""

import ast
from collections.abc import Iterator

from omni_kit.targets.diffusers.porting.alternatives import with_changed
from omni_kit.targets.diffusers.porting.replaced_functions import changed_functions
from omni_kit.upstream.repositories.attention import WRITTEN
from omni_kit.upstream.repositories.closure import Closure
from omni_kit.upstream.repositories.names import Defined, absolute

_FLEX = "torch.nn.attention.flex_attention"
_ATTEND, _BLOCKS, _TYPE = (f"{_FLEX}.{name}" for name in ("flex_attention", "create_block_mask", "BlockMask"))
_DENSE = "create_mask"
_ATTENDING = ("query", "key", "value", "score_mod", "block_mask", "scale", "enable_gqa", "return_lse", "kernel_options")
_MASKING = ("mask_mod", "B", "H", "Q_LEN", "KV_LEN", "device", "BLOCK_SIZE", "_compile")
_KEPT = {"block_mask": "attn_mask", "scale": "scale", "enable_gqa": "enable_gqa"}
_COMPUTED = ("score_mod", "return_lse")  # that torch's kernel knows nothing of


def with_dense_masks(closure: Closure) -> Closure:
    """Return the closure with dense masks; unchanged where a use of flex attention is more than masked attention."""
    uses = [(one, node) for one in closure.definitions for node in _uses(one)]
    if not any(absolute(one.source, node) == _ATTEND for one, node in uses) or not all(_plain(*use) for use in uses):
        return closure

    def dense(one: Defined, function: ast.FunctionDef) -> ast.FunctionDef | None:
        before = ast.dump(function)
        _Dense(one).visit(function)
        return function if ast.dump(function) != before else None

    changed = changed_functions(closure.definitions, dense)
    found = with_changed(closure, changed)
    for one in changed.values():
        if one in found.foreign:
            text = ast.unparse(one.node)
            wanted = {WRITTEN: WRITTEN, _DENSE: f"{_FLEX}.{_DENSE}"}
            found.foreign[one] |= {name: meant for name, meant in wanted.items() if f"{name}(" in text}
    return found


def _uses(one: Defined) -> Iterator[ast.Name | ast.Attribute]:
    """Yield what a definition names of the module."""
    for node in ast.walk(one.node):
        if isinstance(node, ast.Name | ast.Attribute) and absolute(one.source, node).startswith(f"{_FLEX}."):
            yield node


def _plain(one: Defined, node: ast.AST) -> bool:
    """Return whether a use can be written with a dense mask."""
    name = absolute(one.source, node)
    if name == _TYPE:
        return any(node is inner for said in _annotations(one.node) for inner in ast.walk(said))
    if name not in (_ATTEND, _BLOCKS):
        return True
    call = next((one for one in ast.walk(one.node) if isinstance(one, ast.Call) and one.func is node), None)
    if call is None or any(isinstance(argument, ast.Starred) for argument in call.args):
        return False
    given = _given(call, _ATTENDING if name == _ATTEND else _MASKING)
    return None not in given and all(_is_default(given[more]) for more in _COMPUTED if more in given)


def _is_default(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and not node.value


def _given(call: ast.Call, names: tuple[str, ...]) -> dict[str | None, ast.expr]:
    """Return the arguments of a call by name; those of a mapping have none."""
    return {**dict(zip(names, call.args, strict=False)), **{one.arg: one.value for one in call.keywords}}


def _annotations(node: ast.AST) -> Iterator[ast.expr]:
    for one in ast.walk(node):
        said = getattr(one, "returns", None) or getattr(one, "annotation", None)
        if isinstance(said, ast.expr):
            yield said


class _Dense(ast.NodeTransformer):
    """Dense masks in a function, and torch's kernel with them."""

    def __init__(self, home: Defined) -> None:
        self.home = home

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Return the call of the kernel, or of what makes a dense mask."""
        self.generic_visit(node)
        name = absolute(self.home.source, node.func)
        if name == _ATTEND:
            given = _given(node, _ATTENDING)
            more = [ast.keyword(new, given[old]) for old, new in _KEPT.items() if old in given]
            return ast.Call(ast.parse(WRITTEN, mode="eval").body, [given[one] for one in _ATTENDING[:3]], more)
        if name == _BLOCKS:
            given = {"device": ast.Constant("cuda"), **_given(node, _MASKING)}  # torch's default
            plain = [given[one] for one in _MASKING[:5] if one in given]
            return ast.Call(ast.Name(_DENSE, ast.Load()), plain, [ast.keyword("device", given["device"])])
        return node

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST:
        """Return an import without the function that the file imports."""
        node.names = [one for one in node.names if node.module != _FLEX or one.name != _DENSE]
        return node if node.names else ast.Pass()

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """Return the type of a dense mask for that of a block mask."""
        return self._typed(node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """See `visit_Name`."""
        self.generic_visit(node)
        return self._typed(node)

    def _typed(self, node: ast.expr) -> ast.expr:
        of_mask = absolute(self.home.source, node) == _TYPE
        return ast.parse("torch.Tensor", mode="eval").body if of_mask else node
