"""VEO507: attributes that are read from a config exist."""

import ast
from collections.abc import Iterator
from pathlib import Path

from omni_checkers.engine.files import File, walked
from omni_checkers.engine.rule import Finding, Findings, NotApplicable, Rule
from omni_checkers.veomni.facts.configs import ConfigRecord
from omni_checkers.veomni.facts.generated import Generated
from omni_kit.pysource.source import dotted
from omni_kit.upstream.transformers.configs import ConfigClass
from omni_kit.upstream.transformers.defaults import sub_config

_FILE = "generated/patched_modeling_qwen3_vl_moe_gpu.py"
_STATEMENTS = {"config", "config_class"}
_HEAD = """\
# Source: transformers.models.qwen3_vl_moe.modeling_qwen3_vl_moe
from transformers import PreTrainedModel
from transformers.models.qwen3_vl_moe.configuration_qwen3_vl_moe import Qwen3VLMoeConfig


class Qwen3VLMoeForConditionalGeneration(PreTrainedModel):
    config: Qwen3VLMoeConfig

"""


class ConfigAttributesExist(Rule):
    """Read from the config only attributes that its class has.

    The rule follows `self.config`, the `config` argument of `__init__`, variables for either, and nested configs.

    Why: the line raises AttributeError. A vision-language config stores text settings in `text_config`; code copied
    from the text model reads them from the outer config.

    Fine when: code sets the attribute before the model is built; then read it with `getattr` and a default.
    """

    id = "VEO507"
    name = "config-attributes-exist"
    target = "veomni"
    obligations = ("VEO-VLM-11", "VEO-MOE-04")
    failure_modes = ("nested-config-read",)
    example_of = "qwen3_vl_moe"
    BAD = ({_FILE: _HEAD + "    def twice(self, x):\n        return x + self.config.router_aux_loss_coef\n"},)
    GOOD = (
        {_FILE: _HEAD + "    def twice(self, x):\n        return x + self.config.text_config.router_aux_loss_coef\n"},
    )

    def check(self, generated: list[Generated], files: dict[Path, File]) -> Findings:
        judged = False
        own = frozenset(name for file in files.values() for name in _added(file))
        for item in generated:
            for owner, function in item.patched:
                config = _declared(item, owner) if owner else None
                if config is not None:
                    judged = True
                    yield from _wrong(item, config, function, own)
        if not judged:
            raise NotApplicable("no patched class has a known config")


def _declared(item: Generated, owner: str) -> ConfigClass | None:
    """Return the config class that a class states for itself; None for one that others derive from, or that states
    none.

    What a parameter of `__init__` is annotated with is not always what it is given.
    """
    if any(owner in item.source.bases(node) for node in item.classes.values()):
        return None
    fields = (field for node in item.source.lineage(owner) for field in node.body)
    states = any(name in _STATEMENTS for field in fields for name in _bound(field))
    return item.config_class(owner) if states else None


def _added(file: File) -> Iterator[str]:
    """Yield the names that the directory's own config classes, registered in place of upstream's, also define."""
    for node in file.nodes(ast.ClassDef):
        if node.name.endswith("Config"):
            yield from (name for item in node.body for name in (*_bound(item), getattr(item, "name", "")))
            stores = (n for n in walked(node) if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store))
            yield from (store.attr for store in stores)


def _bound(node: ast.stmt) -> list[str]:
    """Return the names that an assignment in a class body binds."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [dotted(target) or "" for target in targets]


def _wrong(item: Generated, config: ConfigClass, function: ast.FunctionDef, own: frozenset[str]) -> Iterator[Finding]:
    roots = dict(_roots(function, config))
    asked = {_asked(node) for node in walked(function) if isinstance(node, ast.Call)}
    for node in walked(function):
        if not isinstance(node, ast.Attribute) or not isinstance(node.ctx, ast.Load):
            continue
        owner = _config_of(dotted(node.value) or "", roots)
        if owner is not None and node.attr not in asked | own and not _has(owner, node.attr):
            parts = {name: sub_config(owner, written) for name, written in owner.sub_configs.items()}
            inner = next((name for name, part in parts.items() if part is not None and _has(part, node.attr)), "")
            hint = f"; its {inner} has" if inner else ""
            message = f"{owner.name} has no '{node.attr}'{hint}"
            yield Finding(message, item.file.path, node.lineno, node.col_offset + 1)


def _roots(function: ast.FunctionDef, config: ConfigClass) -> Iterator[tuple[str, ConfigClass]]:
    """Yield expressions that are a config: `self.config`, the parameter of `__init__`, and local names for them."""
    roots = {"self.config": config}
    if function.name == "__init__" and any(arg.arg == "config" for arg in function.args.args):
        roots["config"] = config
    assigned: dict[str, list[ast.expr]] = {}
    for node in walked(function):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                for inner in walked(target):
                    if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
                        assigned.setdefault(inner.id, []).append(node.value)
    for name, values in assigned.items():
        found = _value(values[0], roots) if len(values) == 1 else None
        if found is not None:
            roots[name] = found
        else:
            roots.pop(name, None)
    yield from roots.items()


def _value(node: ast.expr, roots: dict[str, ConfigClass]) -> ConfigClass | None:
    if isinstance(node, ast.Call) and (dotted(node.func) or "").endswith(".get_text_config") and not node.args:
        outer = _config_of((dotted(node.func) or "").removesuffix(".get_text_config"), roots)
        written = outer.sub_configs.get("text_config") if outer is not None else None
        return sub_config(outer, written) if outer is not None and written else outer
    return _config_of(dotted(node) or "", roots)


def _config_of(name: str, roots: dict[str, ConfigClass]) -> ConfigClass | None:
    """Return the config class of `self.config.text_config` and the like; None for anything else."""
    if name in roots:
        return roots[name]
    outer_name, _, last = name.rpartition(".")
    outer = _config_of(outer_name, roots) if outer_name else None
    written = outer.sub_configs.get(last) if outer is not None else None
    return sub_config(outer, written) if outer is not None and written else None


def _has(config: ConfigClass, name: str) -> bool:
    try:
        ConfigRecord(config).attribute(name)
    except KeyError:
        return name.startswith("__")
    return True


def _asked(call: ast.Call) -> str:
    """Return the attribute that a call of `hasattr` asks for."""
    second = call.args[1] if dotted(call.func) == "hasattr" and len(call.args) == 2 else None
    return str(second.value) if isinstance(second, ast.Constant) else ""
