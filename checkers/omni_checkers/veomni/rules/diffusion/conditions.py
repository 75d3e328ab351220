"""The rule about the model that makes conditions: VEO636."""

import ast
import re
from collections.abc import Iterator

from omni_checkers.engine.files import walked
from omni_checkers.engine.rule import Finding, Findings, NotApplicable, Rule, Severity
from omni_checkers.symbolic import Class
from omni_checkers.veomni.examples_diffusion import CONDITION, CONDITION_CONFIG, CONDITION_CONFIGURATION, CONDITIONS
from omni_checkers.veomni.facts.diffusion import Diffusion, Side
from omni_checkers.veomni.facts.diffusion.sides import Method
from omni_kit.pysource.nodes import assigned, calls
from omni_kit.pysource.signatures import parameters
from omni_kit.pysource.source import dotted
from omni_kit.upstream.kinds import Kind

_HOOK = CONDITION_CONFIGURATION[CONDITION_CONFIGURATION.index("\n    @classmethod") :]
_INHERITED = re.compile(
    r"_\w+|model_type|to_\w+|from_\w+|update|dtype|torch_dtype|name_or_path|get|return_dict|use_\w+|output_\w+|architectures"
    r"|save_pretrained|tie_word_embeddings|is_\w+|num_labels|id2label|label2id|keys|items"
)
_LOADS = ("from_pretrained", "_load_components", "load_components")


class ConditionModelFitsTrainer(Rule):
    """Write a condition model that DiTTrainer can construct and call.

    Its constructor takes `meta_init` and loads no encoder if it is True. `get_condition` takes `**kwargs`. The config's
    `get_config_dict` stores the path as `base_model_path`, and the config has every field that the model reads. A
    generator seeded with `dp_rank` draws all random numbers. torchvision is imported where it is used.

    Why: the trainer passes the whole micro-batch, which raises TypeError without `**kwargs`. Without `meta_init`,
    training on stored latents loads gigabytes of unused encoders. One seed for all gives each process the same noise;
    the global rank gives processes that share a sequence different noise for one image.

    Fine when: the data set needs another way of loading; then suppress the finding.
    """

    id = "VEO636"
    name = "condition-model-fits-trainer"
    target = "veomni"
    kinds = frozenset({Kind.dit})
    obligations = ("DIT-02", "DIT-17", "DIT-18", "DIT-19", "DIT-20")
    failure_modes = ("text-encoder-prep", "removed-upstream-import")
    example_of = "wan_t2v"
    BAD = (
        {
            CONDITION: CONDITIONS.replace(", meta_init=False, **kwargs", "")
            .replace("(config, **kwargs)", "(config)")
            .replace("if not meta_init", "if True")
        },
        {CONDITION: CONDITIONS.replace("videos, **kwargs", "videos")},
        {CONDITION_CONFIG: CONDITION_CONFIGURATION.replace(_HOOK, ""), CONDITION: CONDITIONS},
    )
    GOOD = ({CONDITION: CONDITIONS, CONDITION_CONFIG: CONDITION_CONFIGURATION},)

    def check(self, diffusion: Diffusion) -> Findings:
        side = diffusion.condition
        if side is None or side.model is None:
            raise NotApplicable("the condition model cannot be followed")
        init = diffusion.method(side.model, "__init__")
        get = diffusion.method(side.model, "get_condition")
        if init is not None:
            yield from _constructor(diffusion, side.model, init)
        if get is not None and get.node.args.kwarg is None:
            message = "get_condition takes no **kwargs, but the trainer passes the whole micro-batch"
            yield Finding(message, get.path, get.node.lineno)
        yield from _config(diffusion, side)
        yield from _seeds(diffusion, side.model)
        yield from _draws(diffusion, side.model)
        yield from _imports(diffusion, side.model)


def _constructor(diffusion: Diffusion, model: Class, init: Method) -> Iterator[Finding]:
    here = init.path, init.node.lineno
    own = [item for item in walked(model.node) if isinstance(item, ast.FunctionDef)]
    loads = any(any(calls(node, *_LOADS)) or "load" in node.name or "encoder" in node.name for node in own)
    named = "meta_init" in parameters(init.node)
    if not named and init.node.args.kwarg is None:
        yield Finding("the constructor takes no meta_init: training on stored latents raises TypeError", *here)
    elif loads and not _asks(model.node):
        message = "meta_init has no effect: training on stored latents loads every encoder"
        yield Finding(message, *here, severity=Severity.warning)


def _asks(node: ast.ClassDef) -> bool:
    """Return whether anything depends on meta_init."""
    for item in walked(node):
        if isinstance(item, (ast.If, ast.IfExp, ast.While)) and "meta_init" in ast.unparse(item.test):
            return True
        if isinstance(item, ast.keyword) and "meta_init" in ast.unparse(item.value):
            return True
        if isinstance(item, ast.Call) and any("meta_init" in ast.unparse(arg) for arg in item.args):
            return "pop" not in ast.unparse(item.func) and "get" not in ast.unparse(item.func)
    return False


def _config(diffusion: Diffusion, side: Side) -> Iterator[Finding]:
    config, model = side.config, side.model
    if config is None or model is None or diffusion.inherits_unseen(config):
        return
    here = config.module.path, config.node.lineno
    reads = "base_model_path" in ast.unparse(model.node)
    hook = diffusion.method(config, "get_config_dict") or diffusion.method(config, "from_pretrained")
    if reads and (hook is None or "base_model_path" not in ast.unparse(hook.node)):
        message = f"{config.name} does not store the path that it is loaded from: base_model_path stays empty"
        yield Finding(message, *here, severity=Severity.warning)
    known = _attributes(diffusion, config)
    if known is None:
        return
    for name, line in _read(model):
        if name not in known and not _INHERITED.fullmatch(name):
            yield Finding(f"{config.name} has no '{name}'", model.module.path, line)


def _read(model: Class) -> Iterator[tuple[str, int]]:
    """(name, line) of what a model reads of its config, as `self.config` or as an argument of its constructor."""
    for node in (item for item in model.node.body if isinstance(item, ast.FunctionDef)):
        plain = node.name == "__init__" and "config" in parameters(node) and not assigned(node, "config")
        names = {"self.config", *(["config"] if plain else [])}
        for item in walked(node):
            if isinstance(item, ast.Attribute) and isinstance(item.ctx, ast.Load) and dotted(item.value) in names:
                yield item.attr, item.lineno


def _attributes(diffusion: Diffusion, config: Class) -> set[str] | None:
    """Return the attributes of a config's instances; None if some of them cannot be seen."""
    found: set[str] = set()
    for one in diffusion.lineage(config):
        if not isinstance(one, Class):
            continue
        text = ast.unparse(one.node)
        if "setattr" in text or "__dict__" in text or "__getattr__" in text:
            return None
        for item in walked(one.node):
            if isinstance(item, ast.Attribute) and isinstance(item.ctx, ast.Store):
                found.add(item.attr)
            elif isinstance(item, ast.FunctionDef):
                found.add(item.name)
            elif isinstance(item, (ast.Assign, ast.AnnAssign)):
                targets = item.targets if isinstance(item, ast.Assign) else [item.target]
                found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return found


def _seeds(diffusion: Diffusion, model: Class) -> Iterator[Finding]:
    for call in calls(model.node, "manual_seed"):
        text = " ".join(ast.unparse(arg) for arg in (*call.args, *call.keywords))
        if "Generator" not in ast.unparse(model.node) or not text:
            continue
        constructor = diffusion.method(model, "__init__")
        around = ast.unparse(constructor.node) if constructor is not None else ""
        if "dp_rank" in text or ("rank" not in text and "dp_rank" in around):
            continue
        if "rank" in text:
            message = "the seed has a rank that is not dp_rank: processes that share a sequence draw different noise"
            yield Finding(message, model.module.path, call.lineno)
        else:
            message = "the seed has no dp_rank: every process draws the same noise and timesteps"
            yield Finding(message, model.module.path, call.lineno, severity=Severity.warning)


def _draws(diffusion: Diffusion, model: Class) -> Iterator[Finding]:
    """Random numbers that do not come from the generator that the model keeps."""
    process = diffusion.method(model, "process_condition")
    if process is None or "generator=self.generator" not in ast.unparse(model.node):
        return
    for call in calls(process.node, "randn", "rand", "randint", "randn_like", "rand_like", "randn_tensor", "normal"):
        if not any(word.arg in {"generator", None} for word in call.keywords):
            message = "this is not drawn by self.generator: processes that share a sequence may draw different numbers"
            yield Finding(message, process.path, call.lineno, severity=Severity.warning)


def _imports(diffusion: Diffusion, model: Class) -> Iterator[Finding]:
    file = diffusion.files.get(model.module.path)
    for node in file.tree.body if file is not None and file.tree is not None else ():
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
        names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if any(name.partition(".")[0] == "torchvision" for name in names):
            message = "torchvision is imported at the top: training on stored latents fails without it"
            yield Finding(message, model.module.path, node.lineno, severity=Severity.warning)
