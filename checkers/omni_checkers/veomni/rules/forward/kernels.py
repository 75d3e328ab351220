"""Rules about VeOmni's kernel slots: VEO508 to VEO510."""

import ast
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from omni_checkers.engine.files import File, read_file, walked
from omni_checkers.engine.rule import Finding, Findings, NotApplicable, Rule
from omni_checkers.veomni.examples import GPU_CONFIG, patch_config
from omni_checkers.veomni.facts.configs import nested_text_configs
from omni_checkers.veomni.facts.constants import veomni_package
from omni_checkers.veomni.facts.generated import Generated
from omni_checkers.veomni.facts.plan import Skeletons
from omni_kit.files import files_matching
from omni_kit.pysource.source import dotted
from omni_kit.targets.veomni.model_dir import ModelDir
from omni_kit.upstream.transformers.configs import ConfigClass, ModelConfig
from omni_kit.upstream.transformers.defaults import default_config

_ROTARY = {"liger_rotary_pos_emb", "LigerRopeFunction", "npu_rotary_mul"}
_NORM = '''\


config.add_post_import_block(
    """
    from veomni.ops.dispatch import OpSlot

    veomni_rms_norm = OpSlot("{operation}", "standard")
    """
)


@config.override_method("OlmoeRMSNorm.forward", description="a slot for the fused kernel")
def olmoe_rms_norm_forward(self, hidden_states):
    if veomni_rms_norm.use_non_eager_impl:
        return veomni_rms_norm(hidden_states, {given})
    input_dtype = hidden_states.dtype
    hidden_states = hidden_states.to(torch.float32)
    variance = hidden_states.pow(2).mean(-1, keepdim=True)
    hidden_states = hidden_states * torch.rsqrt(variance + self.variance_epsilon)
    return self.weight * hidden_states.to(input_dtype)
'''


def _example(operation: str = "rms_norm", given: str = "self.weight, self.variance_epsilon") -> dict[str, str]:
    return {GPU_CONFIG: patch_config(_NORM.format(operation=operation, given=given))}


class SlotsAreRegistered(Rule):
    """Name in each kernel slot an operation and a variant that VeOmni has kernels for.

    Why: VeOmni binds the slot by these two names when it builds the model. Without a registered kernel every choice but
    "eager" raises "Unknown kernel", and eager code replaces the intended kernel.

    Fine when: the plugin registers a kernel for the slot itself, with KERNEL_REGISTRY.
    """

    id = "VEO508"
    name = "kernel-slots-are-registered"
    target = "veomni"
    obligations = ("VEO-NPU-05", "VEO-PG-11")
    failure_modes = ("kernel-registry-key",)
    BAD = (_example(operation="rmsnorm"),)
    GOOD = (_example(),)

    def check(self, generated: list[Generated], model_dir: ModelDir, files: dict[Path, File]) -> Findings:
        package = veomni_package(model_dir)
        if package is None:
            raise NotApplicable("VeOmni is not installed")
        known = _registered(package)
        own = {pair for file in files.values() if "KernelSpec" in file.text for pair in _specs(file)}
        if not known:
            raise NotApplicable("this VeOmni registers no kernels that can be read")
        slots = [(item, *slot) for item in generated for slot in _slots(item)]
        if not slots:
            raise NotApplicable("no generated file has a kernel slot")
        for item, node, operation, variant in slots:
            if (operation, variant) not in known | own:
                near = sorted(v for o, v in known if o == operation)
                hint = f"; variants are {', '.join(near)}" if near else "; the operation does not exist"
                message = f"no kernel is registered for OpSlot('{operation}', '{variant}'){hint}"
                yield Finding(message, item.file.path, node.lineno, node.col_offset + 1)


class FullRotaryFitsConfig(Rule):
    """Do not use a full-rotary kernel in a model with partial or interleaved rotary embeddings.

    Why: the kernel rotates the whole head: NaN, or wrong positions on the accelerator only.

    Fine when: the code splits off the rotated part before it calls the kernel.
    """

    id = "VEO509"
    name = "no-full-rotary-kernel-for-partial-rotary"
    target = "veomni"
    obligations = ("VEO-PG-22",)
    failure_modes = ("kernel-shape-contract",)
    example_of = "qwen3_5"
    BAD = (
        {
            "generated/patched_modeling_qwen3_5_gpu.py": """\
# Source: transformers.models.qwen3_5.modeling_qwen3_5
from transformers import PreTrainedModel
from transformers.models.qwen3_5.configuration_qwen3_5 import Qwen3_5TextConfig
from veomni.ops.dispatch import OpSlot

veomni_apply_rotary_pos_emb = OpSlot("rotary_pos_emb", "full")


class Qwen3_5TextModel(PreTrainedModel):
    config: Qwen3_5TextConfig
"""
        },
    )
    GOOD = (
        {
            "generated/patched_modeling_qwen3_5_gpu.py": """\
# Source: transformers.models.qwen3_5.modeling_qwen3_5
from transformers import PreTrainedModel
from transformers.models.qwen3_5.configuration_qwen3_5 import Qwen3_5TextConfig
from veomni.ops.dispatch import OpSlot

veomni_apply_rotary_pos_emb = OpSlot("rotary_pos_emb", "partial")


class Qwen3_5TextModel(PreTrainedModel):
    config: Qwen3_5TextConfig
"""
        },
    )

    def check(self, generated: list[Generated], skeletons: Skeletons) -> Findings:
        for item in generated:
            full = [
                (node, f"OpSlot('{o}', '{v}')") for node, o, v in _slots(item) if (o, v) == ("rotary_pos_emb", "full")
            ]
            full += [
                (node, name)
                for node in item.file.nodes(ast.Call)
                if (name := (dotted(node.func) or "").rpartition(".")[2]) in _ROTARY
            ]
            why = _partial(item, skeletons.toy) if full else ""
            for node, what in full if why else ():
                yield Finding(
                    f"{what} rotates whole heads, but {why}", item.file.path, node.lineno, node.col_offset + 1
                )


class FusedPathSeesAll(Rule):
    """Pass a fused path every value that the eager path of the same function reads.

    A kernel slot or a config setting enables the path. A call that receives `self` receives everything.

    Why: only the eager path applies a bias, a limit of the activation or a scale that the call omits. The two agree in
    small tests and differ in training, on the accelerator only.

    Fine when: the kernel contains the value; state that in an ignore comment.
    """

    id = "VEO510"
    name = "fused-path-is-given-what-eager-reads"
    target = "veomni"
    obligations = ("VEO-MOE-03",)
    failure_modes = ("fused-path-drops-arg",)
    BAD = (_example(given="self.variance_epsilon"),)
    GOOD = (_example(),)

    def check(self, generated: list[Generated]) -> Findings:
        judged = False
        for item in generated:
            for owner, function in item.patched:
                for fused, eager in _branches(function):
                    judged = True
                    own = _values(item, owner, eager) - _values(item, owner, fused) if not _given_self(fused) else ()
                    lost = [*(f"self.{name}" for name in sorted(own)), *_unseen(function, fused, eager)]
                    if lost:
                        message = f"{owner}.{function.name}: the fused path does not receive {', '.join(lost)}"
                        yield Finding(message, item.file.path, fused[0].lineno)
        if not judged:
            raise NotApplicable("no patched function has a fused and an eager path")


def _slots(item: Generated) -> Iterator[tuple[ast.Call, str, str]]:
    """Yield every `OpSlot(operation, variant)` with literal names."""
    for node in item.file.nodes(ast.Call):
        if (dotted(node.func) or "").rpartition(".")[2] == "OpSlot":
            given = [*node.args, *(k.value for name in ("op_name", "variant") for k in node.keywords if k.arg == name)]
            texts = [value.value for value in given if isinstance(value, ast.Constant)]
            if len(texts) == 2:
                yield node, str(texts[0]), str(texts[1])


@lru_cache(maxsize=16)
def _registered(package: Path) -> frozenset[tuple[str, str]]:
    """(operation, variant) of every kernel that VeOmni registers."""
    files = [
        path for path in files_matching(package / "ops", "**/*.py") if "KernelSpec(" in path.read_text(encoding="utf-8")
    ]
    return frozenset(pair for path in files for pair in _specs(read_file(path)))


def _specs(file: File) -> Iterator[tuple[str, str]]:
    """The pairs of literal KernelSpec(...) calls, and those of calls in a loop over literals."""
    loops = {
        name.id: [e.value for e in walked(node.iter) if isinstance(e, ast.Constant) and isinstance(e.value, str)]
        for node in file.nodes(ast.For)
        for name in walked(node.target)
        if isinstance(name, ast.Name)
    }
    for node in file.nodes(ast.Call):
        if (dotted(node.func) or "").rpartition(".")[2] == "KernelSpec":
            given = {keyword.arg: keyword.value for keyword in node.keywords}
            operations, variants = (_texts(given.get(name), loops) for name in ("op_name", "variant"))
            yield from ((operation, variant) for operation in operations for variant in variants)


def _texts(node: ast.expr | None, loops: dict[str, list[str]]) -> list[str]:
    if isinstance(node, ast.Name):
        return loops.get(node.id, [])
    return [node.value] if isinstance(node, ast.Constant) and isinstance(node.value, str) else []


def _partial(item: Generated, toy: dict[str, Any]) -> str:
    """Return why a model of this file does not rotate whole heads; empty if it does, or if that is unknown."""
    for name in item.classes:
        cls = item.config_class(name)
        for config in _configs(cls, toy) if cls is not None else ():
            factor = _factor(config)
            if factor < 1:
                return f"{config.cls.name} has partial_rotary_factor {factor}"
    return ""


def _factor(config: ModelConfig) -> float:
    """Return the rotated share of each head: the config's, else the default of its class."""
    rope = config.get("rope_parameters", "rope_scaling")
    said = rope.get("partial_rotary_factor") if isinstance(rope, dict) else None
    said = said or config.get("partial_rotary_factor")
    if isinstance(said, int | float):
        return said
    for node in walked(config.cls.source.classes[config.cls.name]):
        values = [a.value for a in node.args if isinstance(a, ast.Constant)] if isinstance(node, ast.Call) else []
        if "partial_rotary_factor" in values and isinstance(values[-1], float):
            return values[-1]
    return 1.0


def _configs(cls: ConfigClass, toy: dict[str, Any]) -> Iterator[ModelConfig]:
    yield ModelConfig(cls, toy, "toy_config.json") if toy.get("model_type") == cls.model_type else default_config(cls)
    yield from map(default_config, nested_text_configs(cls))


def _branches(function: ast.FunctionDef) -> Iterator[tuple[list[ast.stmt], list[ast.stmt]]]:
    """(fused statements, eager statements) of every branch that a slot switches on and that does not continue."""
    for index, node in enumerate(function.body):
        if isinstance(node, ast.If) and "use_non_eager_impl" in ast.unparse(node.test):
            if isinstance(node.body[-1], ast.Return):
                yield node.body, [*node.orelse, *function.body[index + 1 :]]
            elif node.orelse:
                yield node.body, node.orelse


def _unseen(function: ast.FunctionDef, fused: list[ast.stmt], eager: list[ast.stmt]) -> list[str]:
    """Return the arguments that eager statements compute with and fused ones do not; `self` is judged by its values.

    An argument that only selects positions of a sequence does not count: a fused loss takes all of them.
    """
    named = (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)
    there, here = (
        {node.id for one in body for node in walked(one) if isinstance(node, ast.Name)} for body in (eager, fused)
    )
    return [one.arg for one in named if one.arg != "self" and one.arg in there - here - _selecting(eager)]


def _selecting(body: list[ast.stmt]) -> set[str]:
    """Return the names that are only read to choose what is sliced: in `slice(...)`, and in tests of its kind."""
    names = [node for one in body for node in walked(one) if isinstance(node, ast.Name)]
    sliced = [node for one in body for node in walked(one) if _is_slice(node)]
    inside = {id(name) for node in sliced for name in ast.walk(node)}
    return {name.id for name in names} - {name.id for name in names if id(name) not in inside}


def _is_slice(node: ast.AST) -> bool:
    """Return whether an expression makes a slice, also where a condition decides between it and an index."""
    made = node.body if isinstance(node, ast.IfExp) else node
    return (isinstance(made, ast.Call) and dotted(made.func) == "slice") or isinstance(node, ast.Slice)


def _given_self(body: list[ast.stmt]) -> bool:
    calls = [node for statement in body for node in walked(statement) if isinstance(node, ast.Call)]
    values = [value for call in calls for value in (*call.args, *(k.value for k in call.keywords))]
    return any(isinstance(value, ast.Name) and value.id == "self" for value in values)


def _values(item: Generated, owner: str, body: list[ast.stmt]) -> set[str]:
    """Return parameters and numbers of the module that statements read, also through its own methods."""
    initialiser = item.source.method(owner, "__init__")
    known = {name for node in walked(initialiser) for name in _valued(node)} if initialiser is not None else set()
    found: set[str] = set()
    todo, seen = list(body), set[str]()
    while todo:
        for node in walked(todo.pop()):
            name = (dotted(node) or "") if isinstance(node, ast.Attribute) else ""
            attribute = name.removeprefix("self.")
            if name == attribute:
                continue
            found.add(attribute)
            helper = item.source.method(owner, attribute)
            if helper is not None and attribute not in seen:
                seen.add(attribute)
                todo += helper.body
    return {name.partition(".")[0] for name in found} & known


def _valued(node: ast.AST) -> Iterator[str]:
    """Yield attributes that are parameters or numbers that change the result; sizes are not among them."""
    if isinstance(node, ast.Assign):
        value = node.value
        name = (dotted(node.targets[0]) or "").removeprefix("self.")
        parameter = isinstance(value, ast.Call) and (dotted(value.func) or "").endswith("Parameter")
        number = isinstance(value, ast.Constant) and isinstance(value.value, float)
        read = (dotted(value) or "").startswith("config.")
        sized = any(word in name for word in ("num", "size", "dim", "top_k", "idx", "heads", "hidden", "act"))
        if parameter or number or (read and not sized):
            yield name
