"""Declarations of a replaced class compared with upstream's: VEO422."""

import ast
from collections.abc import Iterator

from omni_checkers.codediff.fingerprint import unparse_cached
from omni_checkers.engine.rule import Finding, Findings, NotApplicable, Rule, Severity
from omni_checkers.veomni.examples import GPU_CONFIG, patch_config
from omni_checkers.veomni.facts.generated import Generated, upstream_class_of, upstream_own

# What only chooses a kernel, in whose place VeOmni chooses its own, or writes a docstring.
_OTHERS = ("kernel", "experts_implementation", "docstring")
_NORM = """\


@config.replace_class("OlmoeRMSNorm", description="out of place")
class PatchedOlmoeRMSNorm(nn.Module):
    def __init__(self, hidden_size, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden_size))
        self.variance_epsilon = eps

    def forward(self, hidden_states):
        return nn.functional.rms_norm(hidden_states, self.weight.shape, self.weight, self.variance_epsilon)
"""
_REPR = """\

    def extra_repr(self):
        return f"{tuple(self.weight.shape)}, eps={self.variance_epsilon}"
"""


class DeclarationsAreKept(Rule):
    """Declare in a replaced class what upstream's class declares.

    This covers methods, class attributes with their values, decorators of methods, and base classes. Lists, sets and
    dicts may contain more. The rule ignores decorators that only choose a kernel.

    Why: transformers and VeOmni read the declarations: tied weights, recorded outputs, modules that are never split or
    that stay in float32, gradient support. A missing declaration silently disables the feature.

    Fine when: VeOmni's trainer must not have it; state that in an ignore comment.
    """

    id = "VEO422"
    name = "declarations-of-upstream-are-kept"
    severity = Severity.warning
    target = "veomni"
    obligations = ("VEO-PG-39",)
    failure_modes = ("override-signature-drift",)
    BAD = ({GPU_CONFIG: patch_config(_NORM)},)
    GOOD = ({GPU_CONFIG: patch_config(_NORM + _REPR)},)

    def check(self, generated: list[Generated]) -> Findings:
        judged = False
        for item in generated:
            for node in item.classes.values():
                theirs = upstream_class_of(item, node.name)
                if theirs is None or upstream_own(item, node):
                    continue
                judged = True
                for lost in _lost(node, theirs):
                    yield Finding(f"{node.name} {lost}", item.file.path, node.lineno)
        if not judged:
            raise NotApplicable("every class is upstream's own")


def _lost(ours: ast.ClassDef, theirs: ast.ClassDef) -> Iterator[str]:
    mine, wanted = _declared(ours), _declared(theirs)
    for name, value in wanted.items():
        if name not in mine:
            yield f"does not declare '{name}', but upstream's class does"
        elif isinstance(value, ast.expr) and isinstance(mine[name], ast.expr):
            if not _holds(mine[name], value):
                own, upstreams = unparse_cached(mine[name])[:60], unparse_cached(value)[:60]
                yield f"has '{name}' = {own}; upstream has {upstreams}"
        elif isinstance(value, ast.FunctionDef):
            for decorator in sorted(_decorators(value) - _decorators(mine[name])):
                yield f"has '{name}' without upstream's @{decorator}"
    lost = {unparse_cached(base).rpartition(".")[2] for base in theirs.bases} - {
        unparse_cached(base).rpartition(".")[2] for base in ours.bases
    }
    yield from (f"does not derive from {base}, as upstream's does" for base in sorted(lost))


def _declared(node: ast.ClassDef) -> dict[str, ast.AST]:
    """Return the attributes that have a value, and the methods."""
    found: dict[str, ast.AST] = {}
    for item in node.body:
        match item:
            case ast.Assign(targets, value):
                found |= {target.id: value for target in targets if isinstance(target, ast.Name)}
            case ast.AnnAssign(ast.Name(name), _, value) if value is not None:
                found[name] = value
            case ast.FunctionDef(name):
                found[name] = item
    return found


def _holds(ours: ast.AST, theirs: ast.AST) -> bool:
    """Return whether a value is upstream's, or has all of it in it; one that is computed is not judged."""
    if unparse_cached(ours) == unparse_cached(theirs):
        return True
    match ours, theirs:
        case (
            (ast.List(mine) | ast.Tuple(mine) | ast.Set(mine)),
            (ast.List(other) | ast.Tuple(other) | ast.Set(other)),
        ):
            return {unparse_cached(one) for one in other} <= {unparse_cached(one) for one in mine}
        case ast.Dict(keys, values), ast.Dict(other_keys, other_values):
            own = {
                unparse_cached(key): unparse_cached(value)
                for key, value in zip(keys, values, strict=True)
                if key is not None
            }
            pairs = zip(other_keys, other_values, strict=True)
            return all(
                key is not None and own.get(unparse_cached(key)) == unparse_cached(value) for key, value in pairs
            )
    plain = (ast.Constant, ast.List, ast.Tuple, ast.Set, ast.Dict)
    return not (isinstance(ours, plain) and isinstance(theirs, plain))


def _decorators(node: ast.AST) -> set[str]:
    found = {unparse_cached(decorator) for decorator in getattr(node, "decorator_list", [])}
    return {name for name in found if not any(word in name for word in _OTHERS)}
