"""The rule about the config of a transformer: VEO623."""

import ast
from collections.abc import Iterator
from typing import Any

from omni_checkers.engine.rule import Finding, Findings, NotApplicable, Rule, Severity
from omni_checkers.symbolic import Class, Opaque
from omni_checkers.veomni.examples_diffusion import CONFIG, CONFIGURATION, TO_DICTS
from omni_checkers.veomni.facts.diffusion import Diffusion
from omni_checkers.veomni.facts.diffusion.config import ConfigRun, run_config
from omni_checkers.veomni.facts.diffusion.sides import Method
from omni_kit.pysource.classes import ClassRef
from omni_kit.pysource.eval import UNKNOWN
from omni_kit.pysource.signatures import defaults, parameters, signature
from omni_kit.upstream.diffusers.signatures import Argument, arguments
from omni_kit.upstream.kinds import Kind

_OTHERS = frozenset({"kwargs", "config", "attn_implementation", "dtype", "torch_dtype"})


class ConfigIsThatOfDiffusers(Rule):
    """Give the transformer's config the parameters of diffusers' constructor, and save it in diffusers' format.

    Every parameter has its own name and the same default, and there are no others. `to_diffuser_dict` returns exactly
    these. `to_dict` adds `_class_name` of diffusers' class and `_diffusers_version`, and omits `dtype`.

    Why: a checkpoint's config.json omits values that equal its version's defaults. A different default builds another
    architecture, a missing name raises AttributeError, and diffusers cannot load a config.json without the class name.

    Fine when: the transformer is not a diffusers class; the rule then does not apply.
    """

    id = "VEO623"
    name = "transformer-config-is-that-of-diffusers"
    target = "veomni"
    kinds = frozenset({Kind.dit})
    obligations = ("DIT-05", "DIT-09", "DIT-10", "DIT-24")
    failure_modes = ("param-name-mapping-skip",)
    example_of = "wan_t2v"
    BAD = (
        {CONFIG: CONFIGURATION.replace('        values["_class_name"] = "WanTransformer3DModel"\n', "")},
        {CONFIG: CONFIGURATION.replace('if key != "self"}', 'if key not in ("self", "qk_norm")}')},
        {CONFIG: CONFIGURATION.replace(TO_DICTS, TO_DICTS.partition("    def to_dict")[0])},
    )
    GOOD = ({CONFIG: CONFIGURATION},)

    def check(self, diffusion: Diffusion) -> Findings:
        upstream, side = diffusion.upstream, diffusion.transformer
        if upstream is None or side is None or side.config is None:
            raise NotApplicable("the transformer is not a diffusers class that can be read")
        init = diffusion.method(side.config, "__init__")
        taken = arguments(upstream)
        if init is not None:
            yield from _signature(init, taken, upstream)
        run = run_config(diffusion.program, side.config, upstream)
        if init is not None:
            yield from _stored(run, init, taken)
        yield from _written(diffusion, run, side.config, upstream)


def _signature(init: Method, taken: dict[str, Argument], upstream: ClassRef) -> Iterator[Finding]:
    """Yield names and defaults, where the constructor names its parameters."""
    own, given = parameters(init.node), defaults(signature(init.node, bound=True))
    if sum(name in taken for name in own) * 2 < len(taken):
        return
    lines = {one.arg: one.lineno for one in [*init.node.args.args, *init.node.args.kwonlyargs]}
    for name, upstreams in taken.items():
        if name not in own and not any(isinstance(n, ast.Constant) and n.value == name for n in ast.walk(init.node)):
            message = f"{upstream.node.name} takes '{name}', but the config does not have it"
            yield Finding(message, init.path, init.node.lineno)
        elif name in given and upstreams.default is not UNKNOWN:
            mine = _literal(given[name])
            if mine is not UNKNOWN and not _same(mine, upstreams.default):
                message = f"'{name}' is {mine!r} by default, but {upstreams.default!r} in {upstream.node.name}"
                yield Finding(message, init.path, lines.get(name, init.node.lineno))
    for name in own:
        if name not in taken and name not in _OTHERS:
            message = f"{upstream.node.name} takes no '{name}': it has no effect"
            yield Finding(message, init.path, lines.get(name, init.node.lineno), severity=Severity.warning)


def _stored(run: ConfigRun, init: Method, taken: dict[str, Argument]) -> Iterator[Finding]:
    """Each parameter is stored, under its own name."""
    own = [name for name in parameters(init.node) if name in taken]
    for name in own if run.attributes is not None else ():
        value = (run.attributes or {}).get(name)
        other = value.text.strip("<>") if isinstance(value, Opaque) else ""
        if run.attributes is not None and name not in run.attributes:
            yield Finding(f"'{name}' is not stored: to_diffuser_dict lacks it", init.path, init.node.lineno)
        elif other != name and other in own:
            yield Finding(f"'{name}' receives the value of '{other}'", init.path, init.node.lineno)


def _written(diffusion: Diffusion, run: ConfigRun, config: Class, upstream: ClassRef) -> Iterator[Finding]:
    """Both dicts."""
    name, place = upstream.node.name, (config.module.path, config.node.lineno)
    method = diffusion.method(config, "to_diffuser_dict")
    if method is not None and run.diffusers is not None:
        here = method.path, method.node.lineno
        taken = set(arguments(upstream))
        if missing := sorted(taken - set(run.diffusers)):
            yield Finding(f"to_diffuser_dict leaves out '{missing[0]}': {name} is built with its default", *here)
        if extra := sorted(set(run.diffusers) - taken):
            yield Finding(f"to_diffuser_dict returns '{extra[0]}', which {name} does not accept", *here)
        for key, value in run.diffusers.items() if run.attributes is None else ():
            other = value.text.strip("<>") if isinstance(value, Opaque) and value.text.startswith("<") else key
            if other != key and other in taken:
                yield Finding(f"to_diffuser_dict returns '{other}' as '{key}'", *here)
    writes = diffusion.method(config, "to_dict")
    if writes is None and not diffusion.inherits_unseen(config):
        yield Finding(f"{config.name} has no to_dict: the saved config does not name {name}", *place)
    elif writes is not None and run.written is not None:
        here = writes.path, writes.node.lineno
        said = run.written.get("_class_name")
        if said is None or (isinstance(said, str) and said != name):
            yield Finding(f"to_dict returns {said!r} as _class_name: diffusers looks for '{name}'", *here)
        if "_diffusers_version" not in run.written:
            message = "to_dict returns no _diffusers_version"
            yield Finding(message, *here, severity=Severity.warning)
        if "dtype" in run.written:
            message = "to_dict returns 'dtype', which JSON cannot store and diffusers does not accept"
            yield Finding(message, *here, severity=Severity.warning)


def _literal(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError):
        return UNKNOWN


def _same(one: Any, two: Any) -> bool:
    if isinstance(one, list | tuple) and isinstance(two, list | tuple):
        return list(one) == list(two)
    return bool(one == two) and isinstance(one, bool) == isinstance(two, bool)
