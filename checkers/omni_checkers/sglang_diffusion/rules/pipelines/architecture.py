"""The rule about the architecture config of a denoiser: SGD106."""

import ast
import re
from typing import Any

from omni_checkers.engine.files import walked
from omni_checkers.engine.places import at
from omni_checkers.engine.rule import Finding, Findings, NotApplicable, Rule, Severity
from omni_checkers.sglang_diffusion.examples import ARCH, QWEN, changed
from omni_checkers.sglang_diffusion.facts.serving import Serving
from omni_checkers.sglang_diffusion.facts.sources import fields, own_classes
from omni_kit.pysource.classes import ClassRef
from omni_kit.pysource.eval import UNKNOWN
from omni_kit.pysource.nodes import keyword
from omni_kit.pysource.source import dotted
from omni_kit.upstream.diffusers.classes import find_class
from omni_kit.upstream.diffusers.signatures import arguments

_CONFIG = re.compile(r"config|(^|_)(cfg|arch|extra_attrs)$")
_OF_TRAINING = "dropout"  # does nothing while a model serves


class ArchitectureHasEveryArgument(Rule):
    """Declare each argument of diffusers' class in arch_config, with the same default.

    SGLang silently puts config keys without a field into `extra_attrs`. The finding is an error if nothing reads the
    key, and a warning if code reads it without a default: a config without that key then raises AttributeError. A
    different default is an information: it matters only if a config omits the key.

    Why: SGLang builds the default size for a checkpoint of another size. SGLang's Z-Image knows `num_layers`, its
    checkpoints set `n_layers`, and 30 layers are built in any case.

    Fine when: the argument selects a variant and the integration serves only one; suppress with that reason.
    """

    id = "SGD106"
    name = "architecture-has-every-argument"
    target = "sglang-diffusion"
    obligations = ("SGL-20",)
    BAD = (
        changed(ARCH, ("    axes_dims_rope: tuple[int, int, int] = (16, 56, 56)\n", "")),
        changed(ARCH, ("    num_layers: int = 60\n", "    depth: int = 60\n")),
        changed(ARCH, ("joint_attention_dim: int = 3584", "joint_attention_dim: int = 4096")),
    )
    GOOD = ({ARCH: QWEN[ARCH]},)

    def check(self, serving: Serving) -> Findings:
        arch = serving.arch_config
        pipeline = serving.upstream
        upstream = find_class(pipeline.library, serving.upstream_denoiser) if pipeline is not None else None
        if arch is None or upstream is None or not serving.is_own(arch):
            raise NotApplicable("diffusers has no denoiser for this pipeline, or the integration has no architecture")
        read, given_up = _names_read(arch, serving.denoiser)
        for name, argument in arguments(upstream).items():
            found = _field(arch, name)
            told = f"argument '{name}' of diffusers' {upstream.node.name} ({argument.where})"
            if _OF_TRAINING in name or name in given_up:
                continue
            if found is None and name not in _derived(arch):
                lost = name not in read
                what = (
                    "and nothing reads the key" if lost else "which is read, and is missing unless the config sets it"
                )
                one = at(arch.source, arch.node, f"{arch.node.name} has no field for {told}, {what}")
                yield one if lost else Finding(one.message, one.path, one.line, one.column, severity=Severity.warning)
            elif found is not None and _differ(value := _literal(found[1].value), argument.default):
                text = f"'{name}' is {value!r} by default, but {argument.default!r} is the {told}"
                place = found if serving.is_own(found[0]) else (arch, arch.node)
                one = at(place[0].source, place[1], text)
                yield Finding(one.message, one.path, one.line, one.column, severity=Severity.info)


def _field(cls: ClassRef, name: str) -> tuple[ClassRef, ast.AnnAssign] | None:
    return next(((entry, fields(entry)[name]) for entry in own_classes(cls) if name in fields(entry)), None)


def _derived(cls: ClassRef) -> set[str]:
    """Return attributes that a class computes, properties among them."""
    found: set[str] = set()
    for entry in own_classes(cls):
        found |= {item.name for item in entry.node.body if isinstance(item, ast.FunctionDef) and item.decorator_list}
    return found


def _names_read(arch: ClassRef, denoiser: ClassRef | None) -> tuple[set[str], set[str]]:
    """Return the names read of a config in the files of both classes: required ones, and those that may be absent.

    An attribute of anything else, and a text, say nothing of the config.
    """
    needed: set[str] = set()
    optional: set[str] = set()
    entries = [*own_classes(arch), *(own_classes(denoiser) if denoiser is not None else ())]
    for entry in own_classes(arch):
        needed |= {node.attr for node in walked(entry.node) if isinstance(node, ast.Attribute) and _is_self(node.value)}
    for tree in {id(entry.source): entry.source.tree for entry in entries}.values():
        for node in walked(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load) and _is_config(node.value):
                needed.add(node.attr)
            elif isinstance(node, ast.Subscript) and _is_config(node.value) and (name := _text(node.slice)):
                needed.add(name)
            elif isinstance(node, ast.Call) and (found := _asked(node)) is not None:
                (optional if found[1] else needed).add(found[0])
    return needed, optional


def _asked(call: ast.Call) -> tuple[str, bool] | None:
    """Return the name that `getattr` or `get` reads of a config, and whether it may be absent; None for another
    call.
    """
    if dotted(call.func) == "getattr" and len(call.args) > 1 and _is_config(call.args[0]):
        name = _text(call.args[1])
        return (name, len(call.args) > 2) if name else None
    if isinstance(call.func, ast.Attribute) and call.func.attr in ("get", "pop") and _is_config(call.func.value):
        name = _text(call.args[0]) if call.args else ""
        return (name, True) if name else None
    return None


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def _is_config(node: ast.expr) -> bool:
    """Return whether an expression is named as configs are: `config`, `self.hf_config`, `arch_config`, `arch`,
    `cfg`.
    """
    last = (dotted(node) or "").rpartition(".")[2].lower()
    return bool(_CONFIG.search(last))


def _text(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _literal(node: ast.expr | None) -> Any:
    """Return a literal default, also one of a factory that makes nothing else."""
    if isinstance(node, ast.Call):
        factory = keyword(node, "default_factory")
        node = factory.body if isinstance(factory, ast.Lambda) else next(
            (one.value for one in node.keywords if one.arg == "default"), None
        )  # fmt: skip
    try:
        return UNKNOWN if node is None else ast.literal_eval(node)
    except (ValueError, TypeError):
        return UNKNOWN


def _differ(own: Any, upstream: Any) -> bool:
    if UNKNOWN in (own, upstream) or own is None or upstream is None:
        return False
    return bool(_plain(own) != _plain(upstream))


def _plain(value: Any) -> Any:
    return [_plain(one) for one in value] if isinstance(value, (list, tuple)) else value
