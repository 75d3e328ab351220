"""Samplers of latent diffusion: a class that is made with the whole model, and asks its `apply_model`.

Such classes descend from one implementation: `make_schedule` reads the betas that the model keeps, `sample` goes along
evenly spaced steps of them, and guides.
"""

import ast
import re
from collections.abc import Iterator, Mapping

from omni_kit.pysource.eval import UNKNOWN
from omni_kit.pysource.reads import literal
from omni_kit.pysource.signatures import defaults, signature
from omni_kit.pysource.source import SourceFile, dotted, read_source
from omni_kit.upstream.repositories.names import Defined, resolve
from omni_kit.upstream.repositories.processes.process import JOINED, Joined, Process
from omni_kit.upstream.repositories.published import Published
from omni_kit.upstream.repositories.repository import Repository
from omni_kit.upstream.repositories.sampler_step.members import MADE, SELF, methods_of, of_self

_METHODS = {"make_schedule", "ddim_sampling", "sample"}
_MODEL = ("model", "self.model")
_HELD = {"num_timesteps", "device", "betas", "alphas_cumprod", "alphas_cumprod_prev", "apply_model"}
_PASSED = {"conditioning", "x_T", "verbose", "unconditional_guidance_scale", "unconditional_conditioning"}
_START, _END, _STEPS = "linear_start", "linear_end", "timesteps"
_SCHEDULE, _LINEAR, _OTHER = "beta_schedule", "linear", "_betas"  # given_betas, rescale_betas_zero_snr
_KNOWN = {_START: 1e-4, _END: 2e-2, _STEPS: 1000}
_KEY, _CONCAT, _CROSS = "conditioning_key", "c_concat", "c_crossattn"
_HYBRID, _JOINS = "hybrid", ("hybrid", "concat")  # with a prompt besides, and alone
_ZEROED = re.compile(r"""\[["']c_concat["']\]\s*=\s*\[?\s*torch\.zeros""")
_PREDICTS, _VELOCITY = "parameterization", "v"
_OF_VELOCITY = {
    "predict_eps_from_z_and_v": "products[t].view(-1, *[1] * (x.dim() - 1)) ** 0.5 * v"
    " + (1 - products[t]).view(-1, *[1] * (x.dim() - 1)) ** 0.5 * x",
    "predict_start_from_z_and_v": "products[t].view(-1, *[1] * (x.dim() - 1)) ** 0.5 * x"
    " - (1 - products[t]).view(-1, *[1] * (x.dim() - 1)) ** 0.5 * v",
}
"""Methods of a model that predicts a velocity -> what they return for latents `x`, steps `t` and the velocity `v`."""


def samplers(source: SourceFile, condition: str, config: Published | None = None) -> Iterator[Process]:
    """Yield the uses of such a class in a file.

    Args:
        condition: what they call the argument of the model for labels or an embedded prompt.
        config: the published config of the model; what contains it may be that of the whole model.
    """
    told = config.around if config is not None else {}
    known = condition or told.get(_KEY) in _JOINS
    for call in (node for node in ast.walk(source.tree) if isinstance(node, ast.Call) and known):
        meant = resolve(source, dotted(call.func) or "")
        if isinstance(meant, Defined) and isinstance(meant.node, ast.ClassDef) and _is_one(meant.node):
            made = _process(source, call, meant, condition, config)
            if made is not None:
                yield made


def _is_one(cls: ast.ClassDef) -> bool:
    return {one.name for one in cls.body if isinstance(one, ast.FunctionDef)} >= _METHODS


def _process(
    source: SourceFile, call: ast.Call, meant: Defined, condition: str, config_of_model: Published | None
) -> Process | None:
    """Return the use of a class; None if it reads an attribute of its model of which no value is known, or if a config
    says other betas than those of one schedule.
    """
    betas, where, usual = _betas(source)
    said = f"these are the defaults of {where}" if where else ""
    told = config_of_model.around if config_of_model is not None else {}
    if config_of_model is not None and {_START, _END} <= told.keys():
        if told.get(_SCHEDULE, _LINEAR) != _LINEAR or any(value for name, value in told.items() if _OTHER in name):
            return None
        betas = betas | {name: told[name] for name in _KNOWN if name in told}
        said = f"these are those of {config_of_model.where}"
    joined = _joined(source) if (key := told.get(_KEY)) in _JOINS else None
    if (key in _JOINS and joined is None) or (key == _HYBRID and not condition):
        return None
    condition = condition if joined is None or key == _HYBRID else ""
    usual |= {name: value for name, value in told.items() if name in usual}
    more = _fields(meant.node, usual)
    if more is None:
        return None
    fields = "".join(f" {name}={value!r}," for name, value in more.items() if name not in _OF_VELOCITY)
    fields += "".join(f"\n    {name}=lambda x, t, v: {_OF_VELOCITY[name]}," for name in more if name in _OF_VELOCITY)
    predicts = {"prediction_type": "v_prediction"} if more.get(_PREDICTS) == _VELOCITY else {}
    start, end, steps = betas[_START], betas[_END], betas[_STEPS]
    config: dict[str, object] = {
        "num_train_timesteps": steps, "beta_schedule": "scaled_linear", "beta_start": start, "beta_end": end,
        "clip_sample": False, "set_alpha_to_one": False, "steps_offset": 1, **predicts,
    }  # fmt: skip
    held = (
        f"betas = torch.linspace({start}**0.5, {end}**0.5, {steps}, dtype=torch.float64) ** 2",
        "products = torch.cumprod(1 - betas, dim=0).float()",
        "held = SimpleNamespace(",
        f"    num_timesteps={steps}, device=noise.device, betas=betas.float(), alphas_cumprod=products,",
        "    alphas_cumprod_prev=torch.cat([torch.ones(1), products[:-1]]),",
        f"    apply_model=lambda x, t, c: model({_asked(joined, condition)}),{fields}",
        ")",
    )
    text, against = (_conditioning(joined, condition, each) for each in ("text", "against"))
    called = (
        f"{meant.name}(held).sample(\n"
        f"        steps, len(noise), noise.shape[1:], conditioning={text}, x_T=noise, verbose=False,\n"
        f"        unconditional_guidance_scale=scale, unconditional_conditioning={against},\n    )[0]"
    )
    lines = ("from types import SimpleNamespace", f"from {meant.source.module} import {meant.name}")
    todo = (f"set the scheduler's betas as the config of the checkpoint does: {said}",) if said else ()
    reason = f"{meant.name} goes along evenly spaced steps without noise"
    return Process(source.where(call), lines, called, "DDIMScheduler", reason, config, held=held, todo=todo,
                   joined=joined)  # fmt: skip


def _joined(source: SourceFile) -> Joined | None:
    """Return how a model joins latents with conditions that are kept under one key, as a file of theirs does it:
    `torch.cat([x] + c_concat, dim=1)`; None if none does.
    """
    assert isinstance(source.library, Repository)
    texts = {file: text for file in source.library.files
             if _CONCAT in (text := file.read_text(encoding="utf-8", errors="ignore"))}  # fmt: skip
    zeroed = any(map(_ZEROED.search, texts.values()))
    for node in (one for file in texts for one in ast.walk(read_source(source.library, file).tree)):
        match node:
            case ast.Call(args=[ast.BinOp(op=ast.Add(), left=left, right=right)]) if dotted(
                node.func
            ) == "torch.cat" and _CONCAT in (names := [ast.unparse(left), ast.unparse(right)]):
                axis = next((literal(one.value) for one in node.keywords if one.arg == "dim"), 0)
                return Joined(axis, tuple(one if one == _CONCAT else "" for one in names), zeroed)
    return None


def _asked(joined: Joined | None, condition: str) -> str:
    """Return the arguments of a model for latents `x`, steps `t` and conditions `c`."""
    if joined is None:
        return f"x, t, {condition}=c"
    parts = ", ".join(f"*c['{one}']" if one else "x" for one in joined.parts)
    told = f", {condition}=c['{_CROSS}'][0]" if condition else ""
    return f"torch.cat([{parts}], dim={joined.axis}), t{told}"


def _conditioning(joined: Joined | None, condition: str, text: str) -> str:
    """Return the expression for what a sampler is passed with a prompt, or with what it guides against."""
    if joined is None:
        return text
    against = text == "against"
    if against and not condition:
        return "None"
    value = f"{JOINED}['{_CONCAT}']"
    value = f"torch.zeros_like({value})" if against and joined.zeroed else value
    return f"{{'{_CONCAT}': [{value}]{f', {_CROSS!r}: [{text}]' if condition else ''}}}"


def _fields(cls: ast.AST, usual: Mapping[str, object]) -> dict[str, object] | None:
    """Return what else a sampler reads of its model, with the values by default; None if one is not known."""
    assert isinstance(cls, ast.ClassDef)
    methods, found = methods_of(cls), dict[str, object]()
    waiting, seen = [name for name in (MADE, *_METHODS) if name in methods], set[str]()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        for node in _reached(methods[name], usual):
            if isinstance(node, ast.Call) and of_self(node.func) in methods:
                waiting.append(of_self(node.func))
            if not isinstance(node, ast.Attribute) or ast.unparse(node.value) not in _MODEL or node.attr in _HELD:
                continue
            if node.attr in _OF_VELOCITY and usual.get(_PREDICTS) == _VELOCITY:
                found[node.attr] = node.attr
            elif node.attr not in usual:
                return None
            else:
                found[node.attr] = usual[node.attr]
    return found


def _reached(function: ast.FunctionDef, usual: Mapping[str, object]) -> Iterator[ast.AST]:
    """Yield the nodes of a method, without branches for attributes that are false and for arguments left out."""
    none = {name for name, one in defaults(signature(function)).items() if not literal(one)} - _PASSED
    off = {f"{owner}.{name}" for name, value in usual.items() if not value for owner in (*_MODEL, SELF)}
    off |= {text for name in none for text in (name, f"{name} is not None")}
    known = {f"{owner}.{name}": value for name, value in usual.items() for owner in _MODEL}

    def decided(test: ast.expr) -> bool | None:
        match test:
            case ast.Compare(left=left, ops=[ast.Eq() | ast.NotEq() as one], comparators=[ast.Constant(value=other)]):
                name = ast.unparse(left)
                return (known[name] == other) == isinstance(one, ast.Eq) if name in known else None
        return False if ast.unparse(test) in off else None

    waiting: list[ast.AST] = [*function.body]
    while waiting:
        node = waiting.pop()
        outcome = decided(node.test) if isinstance(node, ast.If | ast.IfExp) else None
        if outcome is None or not isinstance(node, ast.If | ast.IfExp):
            yield node
            waiting += ast.iter_child_nodes(node)
        else:
            part = node.body if outcome else node.orelse
            waiting.append(node.test)
            waiting += part if isinstance(part, list) else [part]


def _betas(source: SourceFile) -> tuple[dict[str, float], str, dict[str, object]]:
    """Return the default betas of a model; file:line of them, empty for those of the original implementation; and its
    attributes by default.
    """
    assert isinstance(source.library, Repository)
    for file in source.library.files:
        if _START not in file.read_text(encoding="utf-8", errors="ignore"):
            continue
        found = read_source(source.library, file)
        for node in (one for one in ast.walk(found.tree) if isinstance(one, ast.FunctionDef)):
            given = {name: literal(one) for name, one in defaults(signature(node)).items() if name in _KNOWN}
            if {_START, _END} <= {name for name, value in given.items() if isinstance(value, float)}:
                return {**_KNOWN, **given}, found.where(node), _attributes(found)
    return dict(_KNOWN), "", {}


def _attributes(source: SourceFile) -> dict[str, object]:
    """Return the attributes that constructors of a file set to a value, or to an argument that has one by default."""
    found: dict[str, object] = {}
    for init in (one for cls in source.classes.values() if (one := methods_of(cls).get(MADE)) is not None):
        values = {name: literal(one) for name, one in defaults(signature(init)).items()}
        for node in (one for one in ast.walk(init) if isinstance(one, ast.Assign)):
            name = of_self(node.targets[0])
            value = values.get(node.value.id, UNKNOWN) if isinstance(node.value, ast.Name) else literal(node.value)
            if name and value is not UNKNOWN:
                found.setdefault(name, value)
    return found
