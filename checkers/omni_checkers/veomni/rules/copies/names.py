"""Arguments that classes forward, and the names that they use: VEO424 and VEO425."""

import ast
from collections.abc import Iterator
from pathlib import Path

from omni_checkers.codediff.fingerprint import unparse_cached
from omni_checkers.engine.files import File, walked
from omni_checkers.engine.rule import Finding, Findings, NotApplicable, Rule
from omni_checkers.veomni.examples import GPU_CONFIG, patch_config
from omni_checkers.veomni.facts.generated import Generated, upstream_strings

_NAMES = "_no_split_modules"
_SPLIT = """\


@config.override_method("OlmoeForCausalLM.set_units", description="what is sharded whole")
def olmoe_for_causal_lm_set_units(self):
    self._no_split_modules = ["{name}"]
"""
_CONFIG = """\
from transformers import PreTrainedConfig


class SmallConfig(PreTrainedConfig):
    model_type = "small"

    def __init__(self, hidden_size=8, **kwargs):
        self.hidden_size = hidden_size
        super().__init__({rest})
"""


class UnitsExist(Rule):
    """Name only existing classes in `_no_split_modules`: of the generated file or of upstream's own list.

    Why: FSDP2 shards by these classes and ignores names that no module has. The layers are not sharded separately, and
    FSDP2 gathers the whole model at once.

    Fine when: the module comes from another file of transformers; the rule accepts names that the file imports.
    """

    id = "VEO424"
    name = "sharding-units-are-classes"
    target = "veomni"
    obligations = ("VEO-PG-39",)
    failure_modes = ("override-signature-drift",)
    BAD = ({GPU_CONFIG: patch_config(_SPLIT.format(name="OlmoDecoderLayer"))},)
    GOOD = ({GPU_CONFIG: patch_config(_SPLIT.format(name="OlmoeDecoderLayer"))},)

    def check(self, generated: list[Generated]) -> Findings:
        for item in generated:
            theirs = item.theirs.classes if item.theirs is not None else {}
            classes = {*item.classes, *item.source.imports, *theirs}
            patched = {id(node) for _, function in item.patched for node in walked(function)}
            for node in item.file.nodes(ast.Assign):
                if any(unparse_cached(target).rpartition(".")[2] == _NAMES for target in node.targets):
                    # Upstream's own lists name classes that are gone; what a patch sets is meant.
                    known = classes if id(node) in patched else classes | upstream_strings(item)
                    for name, line in _words(node.value):
                        if name not in known:
                            message = f"{_NAMES} names {name}, but the file has no such class"
                            yield Finding(message, item.file.path, line)


class RestReachesBase(Rule):
    """Pass the remaining keywords of a config class to its base class.

    Why: the base class handles common settings: architectures, dtype, attention, token ids. Without them the config
    silently keeps the defaults.

    Fine when: the class splits the keywords first; name those that you pass on.
    """

    id = "VEO425"
    name = "further-keywords-reach-the-base"
    target = "veomni"
    obligations = ("VEO-PG-39",)
    failure_modes = ("override-signature-drift",)
    BAD = ({"configuration_small.py": _CONFIG.format(rest="")},)
    GOOD = ({"configuration_small.py": _CONFIG.format(rest="**kwargs")},)

    def check(self, files: dict[Path, File]) -> Findings:
        judged = False
        for file in files.values():
            for node in file.nodes(ast.ClassDef):
                for function in (item for item in node.body if getattr(item, "name", "") == "__init__"):
                    rest = function.args.kwarg if isinstance(function, ast.FunctionDef) else None
                    if rest is None or not any(unparse_cached(base).endswith("Config") for base in node.bases):
                        continue
                    judged = True
                    used = sum(isinstance(n, ast.Name) and n.id == rest.arg for n in walked(function))
                    calls = [n for n in walked(function) if isinstance(n, ast.Call) and _is_base(n)]
                    if calls and not used:
                        message = f"{node.name} takes **{rest.arg} but does not pass it on"
                        yield Finding(message, file.path, calls[0].lineno)
        if not judged:
            raise NotApplicable("no config class takes **kwargs")


def _words(value: ast.expr) -> Iterator[tuple[str, int]]:
    for one in value.elts if isinstance(value, (ast.List, ast.Tuple, ast.Set)) else ():
        if isinstance(one, ast.Constant) and isinstance(one.value, str):
            yield one.value, one.lineno


def _is_base(call: ast.Call) -> bool:
    return unparse_cached(call.func) == "super().__init__"
