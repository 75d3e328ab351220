"""Diffusion objects: what authors sample with where a class of theirs holds betas and has the loop.

Such classes descend from one implementation: its constructor takes `betas`; `p_sample_loop` and `ddim_sample_loop`
take the model, the shape of the noise, and further keyword arguments for the model.
"""

import ast
from collections.abc import Collection, Iterator, Mapping

from omni_kit.pysource.eval import UNKNOWN
from omni_kit.pysource.reads import literal
from omni_kit.pysource.signatures import defaults, named, passed, signature
from omni_kit.pysource.source import SourceFile, dotted
from omni_kit.upstream.repositories.names import Defined, resolve
from omni_kit.upstream.repositories.processes.class_members import every_method, plain_arguments
from omni_kit.upstream.repositories.processes.process import Process
from omni_kit.upstream.repositories.published import documented
from omni_kit.upstream.repositories.reference import Reference

ANCESTRAL, DETERMINISTIC = "p_sample_loop", "ddim_sample_loop"
_SCHEDULERS = {ANCESTRAL: "DDPMScheduler", DETERMINISTIC: "DDIMScheduler"}
_EACH_STEP = "_progressive"  # the same loop, which yields its steps
_BETAS = "betas"
_PLACES = 3  # a model, a shape, noise
_TOLD = frozenset({"clip_denoised", "model_kwargs", "device"})
# How the settings of such an object are called by who makes one.
_SETTINGS = {
    "steps": ("diffusion_steps", "steps", "num_timesteps", "num_diffusion_timesteps"),
    "schedule": ("noise_schedule", "beta_schedule", "schedule"),
    "learned": ("learn_sigma", "learn_variance"), "small": ("sigma_small",), "start": ("predict_xstart",),
}  # fmt: skip


def diffusions(reference: Reference, source: SourceFile) -> Iterator[Process]:
    """Yield the uses of such an object in a file, where its betas are known."""
    made = dict(_objects(source))
    clipped = [one.value for node in ast.walk(source.tree) if isinstance(node, ast.Call) and made
               for one in node.keywords if one.arg == "clip_denoised"]  # fmt: skip
    for method in (node for node in ast.walk(source.tree) if isinstance(node, ast.Attribute) and made):
        head, _, loop = (dotted(method) or "").removesuffix(_EACH_STEP).rpartition(".")
        if head in made and loop in (ANCESTRAL, DETERMINISTIC):
            maker, meant = made[head]
            if _needs_more(meant, loop):
                continue
            clips = all(literal(one) is not False for one in clipped)
            given = _given(reference, maker, meant)
            config = _config(_settings(given, meant), clips, loop) if given is not None else None
            if given is not None and config is not None:
                yield _process(source.where(method), given, meant, loop, clips, config)


def _given(reference: Reference, maker: ast.Call, meant: Defined) -> dict[str, object] | None:
    """Return what such an object is made with: the literals of a call; what else its function must have, as the config
    of the model says it, or all configs alike. None if nothing says it.
    """
    assert isinstance(meant.node, ast.FunctionDef)
    taken = signature(meant.node)
    said = {name: literal(one) for name, one in passed(maker, named(taken)).items()}
    given = {name: one for name, one in said.items() if one is not UNKNOWN}
    missing = {*named(taken)} - {*defaults(taken)} - given.keys() - {_respacing(meant)}
    if not missing:
        return given
    repository = reference.repository
    configs = [({name: values[name] for name in sorted(missing)}, repository.show(file) == reference.config_file)
               for values, file in documented(repository, missing) if missing <= values.keys()]  # fmt: skip
    best = [values for values, near in configs if near] or [values for values, _ in configs]
    return {**given, **best[0]} if best and all(one == best[0] for one in best) else None


def _process(
    where: str, given: Mapping[str, object], meant: Defined, loop: str, clips: bool, config: Mapping[str, object]
) -> Process:
    respacing = _respacing(meant)
    more = "".join(f", {name}={value!r}" for name, value in given.items() if name != respacing)
    made = f"{meant.name}({respacing + '=' if respacing else ''}str(steps){more})"
    rest = f"clip_denoised={clips}, model_kwargs=told, device=noise.device"
    called = f"{made}.{loop}(\n        asked, begun.shape, begun, {rest}\n    )"
    told = ", ".join(f"{key}={value}" for key, value in config.items())
    reason = f"{loop} of what {meant.name} makes, with its settings: {told}"
    return Process(
        where, (f"from {meant.source.module} import {meant.name}",), called, _SCHEDULERS[loop], reason, config
    )


def _config(settings: Mapping[str, object], clips: bool, loop: str) -> dict[str, object] | None:
    """Return the arguments of the equivalent scheduler; None if the betas are unknown."""
    steps, schedule = settings.get("steps", 1000), settings.get("schedule", "linear")
    if not isinstance(steps, int) or schedule not in ("linear", "squaredcos_cap_v2", "cosine"):
        return None
    betas: dict[str, object] = {"beta_schedule": "squaredcos_cap_v2"}
    if schedule == "linear":
        betas = {"beta_schedule": "linear", "beta_start": 0.1 / steps, "beta_end": 20 / steps}
    small = "fixed_small" if settings.get("small") else "fixed_large"
    variance = {"variance_type": "learned_range" if settings.get("learned") else small}
    return {
        "num_train_timesteps": steps, **betas, "clip_sample": clips, "timestep_spacing": "linspace",
        **(variance if loop == ANCESTRAL else {}), "prediction_type": "sample" if settings.get("start") else "epsilon",
    }  # fmt: skip


def _objects(source: SourceFile) -> Iterator[tuple[str, tuple[ast.Call, Defined]]]:
    """Yield the variables that hold such an object: with the call that makes it, and the function that is called.

    `model, diffusion = create_both(...)` counts where that function returns what such a call makes.
    """
    for node in ast.walk(source.tree):
        target = node.targets[0] if isinstance(node, ast.Assign) else None
        if isinstance(node, ast.Assign) and isinstance(target, ast.Name | ast.Attribute):
            yield from _named_object(source, target, node.value)
        elif (
            isinstance(node, ast.Assign) and isinstance(target, ast.Tuple) and (meant := _function(source, node.value))
        ):
            inner = {
                name: made for one in ast.walk(meant.node)
                if isinstance(one, ast.Assign) and isinstance(held := one.targets[0], ast.Name)
                for name, made in _named_object(meant.source, held, one.value)
            }  # fmt: skip
            both = [one.value.elts for one in ast.walk(meant.node) if isinstance(one, ast.Return)
                    and isinstance(one.value, ast.Tuple)]  # fmt: skip
            for name, value in zip(target.elts, both[-1] if both else [], strict=False):
                if isinstance(name, ast.Name) and isinstance(value, ast.Name) and value.id in inner:
                    yield name.id, inner[value.id]


def _named_object(
    source: SourceFile, target: ast.Name | ast.Attribute, value: ast.expr
) -> Iterator[tuple[str, tuple[ast.Call, Defined]]]:
    """Yield the variable with the call and its function, where that function makes such an object."""
    meant = _function(source, value)
    if meant is not None and isinstance(value, ast.Call) and _makes(meant):
        yield dotted(target) or "", (value, meant)


def _function(source: SourceFile, value: ast.expr) -> Defined | None:
    """Return the function of the authors that an expression calls."""
    meant = resolve(source, dotted(value.func) or "") if isinstance(value, ast.Call) else None
    return meant if isinstance(meant, Defined) and isinstance(meant.node, ast.FunctionDef) else None


def _makes(meant: Defined) -> bool:
    """Return whether a function answers an object that is made of betas."""
    calls = [node for node in ast.walk(meant.node) if isinstance(node, ast.Return) and isinstance(node.value, ast.Call)]
    return any(_BETAS in {word.arg for word in one.value.keywords} for one in calls)  # type: ignore[union-attr]


def _needs_more(meant: Defined, loop: str) -> bool:
    """Return whether the loop of what a function makes takes other arguments than the usual ones, or reads one of its
    own that is null by default: it steps as that argument says.
    """
    calls = (node.value for node in ast.walk(meant.node) if isinstance(node, ast.Return))
    names = (dotted(one.func) or "" for one in calls if isinstance(one, ast.Call))
    for cls in [resolve(meant.source, name) for name in names]:
        if not isinstance(cls, Defined) or not isinstance(cls.node, ast.ClassDef):
            return True  # of a class that is chosen elsewhere
        methods = every_method(cls.source, cls.node)
        if (taker := methods.get(loop)) is not None and not _is_usual(taker):
            return True
        for method in filter(None, (methods.get(loop), methods.get(f"{loop}{_EACH_STEP}"))):
            null = {one.arg for one, default in plain_arguments(method) if default is not None and not literal(default)}
            if any(_reads(node, null) for node in method.body):
                return True
    return False


def _is_usual(method: ast.FunctionDef) -> bool:
    """Return whether a loop can be called as those of the usual implementation are."""
    own = plain_arguments(method)[1:]
    needed = [one.arg for one, default in own if default is None]
    return len(needed) <= _PLACES and (method.args.kwarg is not None or {one.arg for one, _ in own} >= _TOLD)


def _reads(node: ast.AST, names: Collection[str]) -> bool:
    """Return whether code takes an attribute or an entry of one of these, other than where it tests it."""
    if isinstance(node, ast.If | ast.IfExp) and {one.id for one in ast.walk(node.test) if isinstance(one, ast.Name)} & {
        *names
    }:
        tested = node.test
        plain = not any(isinstance(one, ast.Attribute | ast.Subscript) for one in ast.walk(tested))
        return not plain and _reads(tested, names)
    if isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id in names:
        return True
    return any(_reads(one, names) for one in ast.iter_child_nodes(node))


def _respacing(meant: Defined) -> str:
    assert isinstance(meant.node, ast.FunctionDef)
    return next((name for name in named(signature(meant.node)) if "respac" in name), "")


def _settings(given: Mapping[str, object], meant: Defined) -> dict[str, object]:
    """Return the arguments of the process: what it is made with, else the defaults."""
    assert isinstance(meant.node, ast.FunctionDef)
    known = {name: literal(one) for name, one in defaults(signature(meant.node)).items()} | {**given}
    found = {}
    for key, names in _SETTINGS.items():
        values = [known[name] for name in names if known.get(name, UNKNOWN) is not UNKNOWN]
        if values:
            found[key] = values[0]
    return found
