"""The rules about sigmas and timesteps: SGD301 and SGD304."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from omni_checkers.engine.files import walked
from omni_checkers.engine.places import at
from omni_checkers.engine.rule import Finding, Findings, NotApplicable, Rule, Severity
from omni_checkers.sglang_diffusion.examples import QWEN, STAGE, changed
from omni_checkers.sglang_diffusion.facts.grids import grid, returned_grid, upstream_grid
from omni_checkers.sglang_diffusion.facts.requests import uses_of
from omni_checkers.sglang_diffusion.facts.serving import Serving
from omni_checkers.sglang_diffusion.facts.stages import StageUse
from omni_kit.pysource.classes import ClassRef
from omni_kit.pysource.nodes import assigned, calls, constant, keyword, last_name, returns
from omni_kit.pysource.source import SourceFile, dotted

_SETTERS = ("set_timesteps", "retrieve_timesteps")
_ORDER = {"retrieve_timesteps": ("scheduler", "num_inference_steps", "device", "timesteps", "sigmas")}
_CONFIGURED = frozenset({"base_shift", "max_shift", "base_image_seq_len", "max_image_seq_len"})
_NEAR = 1e-6
_INTEGERS = frozenset({"long", "int", "short"})
_COARSE = frozenset({"half", "bfloat16", "float16", "int32", "int64", *_INTEGERS})


@dataclass(frozen=True)
class Given:
    """Something that a scheduler is given: an expression of a function."""

    value: ast.expr
    source: SourceFile
    function: ast.FunctionDef


class ScheduleIsTheSchedulers(Rule):
    """Take the steps from the scheduler's config, as diffusers' pipeline does.

    If diffusers passes `mu` to the scheduler, the integration does too, and computes it from the scheduler's config,
    not from constants. Sigmas equal those of diffusers. Nothing shifts sigmas that the scheduler shifts itself.

    Why: a wrong schedule changes every step: images lack detail or have too much contrast. Constants fit one
    checkpoint, and a distilled one then follows the schedule of another.

    Fine when: the model family has one fixed schedule; then suppress the warning with that reason.
    """

    id = "SGD301"
    name = "schedule-is-the-schedulers"
    target = "sglang-diffusion"
    obligations = ("SGL-33", "SGL-45", "SGL-50")
    failure_modes = ("sigma-schedule",)
    BAD = (
        changed(STAGE, (", sigmas=sigmas, mu=mu)", ", sigmas=sigmas)")),
        changed(STAGE, ("np.linspace(1.0, 1 / steps, steps)", "np.linspace(1.0, 0.0, steps)")),
        changed(STAGE, ("        timesteps, ", "        sigmas = 3 * sigmas / (1 + 2 * sigmas)\n        timesteps, ")),
        changed(STAGE,
                ('config.get("base_image_seq_len", 256)', "256"), ('config.get("max_image_seq_len", 4096)', "4096"),
                ('config.get("base_shift", 0.5)', "0.5"), ('config.get("max_shift", 1.15)', "1.15")),
    )  # fmt: skip
    GOOD = ({STAGE: QWEN[STAGE]},)

    def check(self, serving: Serving, stages: list[StageUse]) -> Findings:
        mine = [one for one in stages if serving.is_own(one.cls)]
        standard = any(one.cls.node.name == "TimestepPreparationStage" for one in stages)
        setting = list(_setting(serving, mine))
        if not standard and not setting:
            raise NotApplicable("no code of the integration sets a scheduler's timesteps")
        place = (setting[0].source, setting[0].value) if setting else (serving.cls.source, serving.cls.node)
        mus = [*_handed(setting, "mu"), *_returned(serving)]
        call = _upstreams(serving)
        if call is not None and keyword(call, "mu") is not None and not mus and not _spreads(setting):
            yield at(place[0], place[1], f"{serving.name} passes `mu` to its scheduler, but this integration does not")
        if call is not None and _configured(serving):
            yield from _constant(serving, mus)
        yield from _grids(serving, setting, standard)
        for one in setting:
            yield from _shifted(one)


def _setting(serving: Serving, stages: list[StageUse]) -> Iterator[Given]:
    """The calls in stages of the integration that set steps."""
    seen: set[int] = set()
    for stage in stages:
        for entry in stage.cls.mro:
            if isinstance(entry, ClassRef) and serving.is_own(entry):
                functions = [item for item in entry.node.body if isinstance(item, ast.FunctionDef)]
                for function in functions:
                    for call in calls(function, *_SETTERS):
                        if id(call) not in seen:
                            seen.add(id(call))
                            yield Given(call, entry.source, function)


def _handed(setting: list[Given], name: str) -> Iterator[Given]:
    for one in setting:
        value = _argument(one.value, name) if isinstance(one.value, ast.Call) else None
        if value is not None and not (isinstance(value, ast.Constant) and value.value is None):
            yield Given(value, one.source, one.function)


def _argument(call: ast.Call, name: str) -> ast.expr | None:
    """Return an argument of `retrieve_timesteps` or `set_timesteps`, given either way."""
    order = _ORDER.get(last_name(call.func), ())
    given = dict(zip(order, call.args, strict=False))
    return keyword(call, name) or given.get(name)


def _spreads(setting: list[Given]) -> bool:
    """Return whether a call takes further keywords from a dict."""
    return any(word.arg is None for one in setting if isinstance(one.value, ast.Call) for word in one.value.keywords)


def _returned(serving: Serving) -> Iterator[Given]:
    """`return "mu", value` of a function in the pipeline's file, as TimestepPreparationStage asks for it."""
    for source in _sources(serving):
        for node in walked(source.tree):
            if isinstance(node, ast.FunctionDef) and node.name in _named(serving):
                for value in returns(node):
                    if isinstance(value, ast.Tuple) and len(value.elts) == 2:
                        first = value.elts[0]
                        if isinstance(first, ast.Constant) and first.value == "mu":
                            yield Given(value.elts[1], source, node)


def _named(serving: Serving) -> set[str]:
    """Return the functions that the pipeline's class names."""
    entries = [entry for entry in serving.cls.mro if isinstance(entry, ClassRef)]
    return {node.id for entry in entries for node in walked(entry.node) if isinstance(node, ast.Name)}


def _sources(serving: Serving) -> Iterator[SourceFile]:
    paths = dict.fromkeys(one.source.path for one in serving.cls.mro if isinstance(one, ClassRef))
    for path in paths:
        source = serving.sources.read(path)
        if source is not None and (path in serving.own or path.parent.name == "pipelines"):
            yield source


def _upstreams(serving: Serving) -> ast.Call | None:
    found = serving.upstream.cls.method("__call__") if serving.upstream is not None else None
    return next(iter(calls(found[1], *_SETTERS)), None) if found is not None else None


def _configured(serving: Serving) -> bool:
    """Return whether diffusers' pipeline reads what mu is made of from its scheduler's config."""
    found = serving.upstream.cls.method("__call__") if serving.upstream is not None else None
    return found is not None and any(
        isinstance(node, ast.Constant) and node.value in _CONFIGURED for node in walked(found[1])
    )


def _constant(serving: Serving, mus: list[Given]) -> Iterator[Finding]:
    for one in mus:
        if one.source.path in serving.own and not _reads_config(one) and _is_followed(one):
            found = at(one.source, one.value, "mu is computed from constants: the scheduler's config has no effect")
            yield Finding(found.message, found.path, found.line, found.column, severity=Severity.warning)


def _reads_config(one: Given) -> bool:
    """Return whether a value, or what it is made of, looks at a scheduler's config."""
    todo, seen = [one], set[int]()
    while todo:
        part = todo.pop()
        if id(part.value) in seen:
            continue
        seen.add(id(part.value))
        for node in walked(part.value):
            if _is_configured(node):
                return True
            if isinstance(node, ast.Name):
                todo += [Given(value, part.source, part.function) for value in assigned(part.function, node.id)]
            called = node.func if isinstance(node, ast.Call) else None
            found = part.source.resolve_function(called.id) if isinstance(called, ast.Name) else None
            if found is not None and found[0].path.name != "__init__.py":
                todo += [Given(value, *found) for value in returns(found[1])]
    return False


def _is_configured(node: ast.AST) -> bool:
    if isinstance(node, ast.Constant):
        return node.value in _CONFIGURED
    name = dotted(node) or "" if isinstance(node, ast.Attribute) else ""
    return name.endswith("scheduler.config") or name.rpartition(".")[2] in _CONFIGURED


def _is_followed(one: Given) -> bool:
    """Return whether mu comes from arithmetic or a function that is read, and not from elsewhere."""
    value = one.value
    while isinstance(value, ast.Name):
        known = assigned(one.function, value.id)
        if not known:
            return False
        value = known[-1]
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
        return value.func.id in ("float", "int") or one.source.resolve_function(value.func.id) is not None
    return isinstance(value, (ast.BinOp, ast.IfExp))


def _grids(serving: Serving, setting: list[Given], standard: bool) -> Iterator[Finding]:
    wanted = upstream_grid(serving.upstream.cls) if serving.upstream is not None else None
    if wanted is None:
        return
    for one in _handed(setting, "sigmas"):
        found = grid(one.value, one.function)
        if found is not None and not _same(found, wanted):
            yield at(one.source, one.value, _unlike(found, wanted))
    if setting and not any(_handed(setting, "sigmas")) and not _spreads(setting):
        yield at(
            setting[0].source, setting[0].value, f"{serving.name} passes its sigmas to the scheduler, but this does not"
        )
    config = serving.config
    if standard and not setting and config is not None:
        home, given = config.method("prepare_sigmas"), returned_grid(config, "prepare_sigmas")
        if given is not None and not _same(given, wanted) and home is not None:
            own = serving.is_own(home[0])
            place = (home[0].source, home[1]) if own else (config.source, config.node)
            yield at(
                place[0],
                place[1],
                _unlike(given, wanted) if given else f"prepare_sigmas returns none of the sigmas of {serving.name}",
            )


def _same(one: list[float], two: list[float]) -> bool:
    return len(one) == len(two) and all(abs(a - b) < _NEAR for a, b in zip(one, two, strict=True))


def _unlike(found: list[float], wanted: list[float]) -> str:
    shown = ", ".join(f"{one:.3g}" for one in [*found[:2], *found[-1:]])
    theirs = ", ".join(f"{one:.3g}" for one in [*wanted[:2], *wanted[-1:]])
    return f"for 10 steps this gives {len(found)} sigmas ({shown}), but diffusers has {len(wanted)} ({theirs})"


def _shifted(one: Given) -> Iterator[Finding]:
    """`shift * s / (1 + (shift - 1) * s)`, on sigmas that a scheduler is given."""
    given = [value.value for name in ("sigmas", "timesteps") for value in _handed([one], name)]
    names = [value.id for value in given if isinstance(value, ast.Name)]
    for value in [*given, *(known for name in names for known in assigned(one.function, name))]:
        for node in walked(value):
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) and _is_shift(node):
                yield at(one.source, node, "a time shift is applied to sigmas that the scheduler shifts again")


def _is_shift(node: ast.BinOp) -> bool:
    if not (isinstance(node.left, ast.BinOp) and isinstance(node.left.op, ast.Mult)):
        return False
    factors = {_shown(node.left.left), _shown(node.left.right)}
    below = node.right
    if not (isinstance(below, ast.BinOp) and isinstance(below.op, ast.Add)):
        return False
    product = next((part for part in (below.left, below.right) if isinstance(part, ast.BinOp)), None)
    if product is None or not isinstance(product.op, ast.Mult):
        return False
    one, two = product.left, product.right
    return factors in ({_shown(one, 1), _shown(two)}, {_shown(one), _shown(two, 1)})


def _shown(node: ast.expr, more: int = 0) -> str:
    """Return an expression, or one that is greater by 1, as text; empty if that would be no plain text."""
    value = constant(node)
    if isinstance(value, (int, float)):
        return f"{value + more:g}"
    if not more:
        return ast.unparse(node)
    less = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub) and constant(node.right) == 1
    if not less or not isinstance(node, ast.BinOp):
        return ""
    return _shown(node.left)


class TimestepsKeepTheirType(Rule):
    """Keep timesteps in the dtype of the scheduler: floats in full precision.

    Stages do not round `batch.timesteps` to integers or to 16 bits.

    Why: flow matching uses timesteps such as 987.65. A rounded timestep tells the denoiser another noise level than the
    latents have, and a scheduler that looks up the step does not find it.

    Fine when: the scheduler's own timesteps are integers, as those of DDIM are.
    """

    id = "SGD304"
    name = "timesteps-keep-their-type"
    target = "sglang-diffusion"
    obligations = ("SGL-32", "SGL-45")
    failure_modes = ("sigma-schedule",)
    BAD = (
        changed(STAGE, ("batch.timesteps = timesteps\n", "batch.timesteps = timesteps.long()\n")),
        changed(STAGE, ("batch.timesteps = timesteps\n", "batch.timesteps = timesteps.to(torch.bfloat16)\n")),
    )
    GOOD = ({STAGE: QWEN[STAGE]},)

    def check(self, serving: Serving, own_stages: list[StageUse]) -> Findings:
        seen: set[int] = set()
        for one in own_stages:
            for use in uses_of(one.cls, ("forward",), serving.config).sets:
                if (
                    use.name == "timesteps"
                    and use.value is not None
                    and use.function is not None
                    and id(use.node) not in seen
                ):
                    seen.add(id(use.node))
                    how = _rounded(use.value, use.function, 0)
                    if how and use.source.path in serving.own:
                        yield at(use.source, use.node, f"timesteps are rounded by {how}")


def _rounded(node: ast.expr, function: ast.FunctionDef, depth: int) -> str:
    """Return the operation that rounds an expression; empty for none."""
    if isinstance(node, ast.Name) and depth < 6:
        found = (
            _rounded(value, function, depth + 1) for value in assigned(function, node.id) if dotted(value) != node.id
        )
        return next((how for how in found if how), "")
    if isinstance(node, ast.Subscript):
        return _rounded(node.value, function, depth)
    if not isinstance(node, ast.Call):
        return ""
    name = last_name(node.func)
    if isinstance(node.func, ast.Attribute) and name in _COARSE and dotted(node.func.value) not in ("torch", "np"):
        return f".{name}()"
    types = [*node.args, *(word.value for word in node.keywords if word.arg == "dtype")]
    for one in types:
        if isinstance(one, ast.Attribute) and dotted(one.value) == "torch" and one.attr in _COARSE:
            return f"torch.{one.attr}"
    inner = node.func.value if isinstance(node.func, ast.Attribute) and dotted(node.func.value) != "torch" else None
    if name in ("to", "clone", "unsqueeze", "flatten", "contiguous", "cpu", "cuda") and inner is not None:
        return _rounded(inner, function, depth)
    return ""
