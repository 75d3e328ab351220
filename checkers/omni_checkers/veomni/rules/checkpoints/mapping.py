"""VEO209: renamed keys lead to parts of the model."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from omni_checkers.engine.files import File, walked
from omni_checkers.engine.rule import Finding, Findings, Rule
from omni_checkers.veomni.facts.code_clones import by_hand
from omni_kit.pysource.reads import attributes_set
from omni_kit.pysource.source import dotted
from omni_kit.targets.veomni.model_dir import ModelDir

_MAPPING = "_checkpoint_conversion_mapping"
_WRAPPER = """\
from transformers import PreTrainedModel


class WrappedModel(PreTrainedModel):
    _checkpoint_conversion_mapping = {{"^": "{prefix}."}}

    def __init__(self, config):
        super().__init__(config)
        self.inner = build(config)
"""
# Bases that bring no part of a model with them.
_BARE = re.compile(r"(PreTrainedModel|Module|Mixin)$")
_FIRST = re.compile(r"(\w+)(\.|$)")


class RenamedKeysLeadToParts(Rule):
    """Map key prefixes in `_checkpoint_conversion_mapping` to parts of the model.

    The rule checks patterns that begin with `^`, in classes whose parts are all set in this file.

    Why: VeOmni renames every key with this mapping before it loads. A prefix that the model lacks matches no parameter:
    all weights are reported missing and initialised at random, and training starts.

    Fine when: code in another file sets the part.
    """

    id = "VEO209"
    name = "renamed-keys-lead-to-parts"
    target = "veomni"
    failure_modes = ("param-name-mapping-skip",)
    BAD = ({"modeling_wrapped.py": _WRAPPER.format(prefix="model")},)
    GOOD = ({"modeling_wrapped.py": _WRAPPER.format(prefix="inner")},)

    def check(self, files: dict[Path, File], model_dir: ModelDir) -> Findings:
        for file in files.values():
            if file.tree is not None and by_hand(file.path, model_dir.path):
                classes = {node.name: node for node in file.tree.body if isinstance(node, ast.ClassDef)}
                for node in classes.values():
                    for value, first in _leading(node):
                        parts = _parts(node, classes)
                        if parts is not None and first not in parts:
                            message = f"{_MAPPING} maps to '{first}', but {node.name} has no such part"
                            yield Finding(message, file.path, value.lineno)


def _leading(node: ast.ClassDef) -> Iterator[tuple[ast.expr, str]]:
    """Yield the first name of every key that is made of the beginning of another."""
    for item in node.body:
        match item:
            case ast.Assign([ast.Name(name)], ast.Dict(keys, values)) | ast.AnnAssign(
                ast.Name(name), _, ast.Dict(keys, values)
            ) if name == _MAPPING:
                for key, value in zip(keys, values, strict=True):
                    match key, value:
                        case ast.Constant(str(pattern)), ast.Constant(str(made)) if pattern.startswith("^"):
                            if first := _FIRST.match(made):
                                yield value, first[1]


def _parts(node: ast.ClassDef, classes: dict[str, ast.ClassDef]) -> set[str] | None:
    """Return the attributes that a class and its bases set; None if a base is elsewhere, or sets unreadable ones."""
    found = attributes_set(node)
    for base in node.bases:
        name = (dotted(base) or "").rpartition(".")[2]
        if name in classes:
            above = _parts(classes[name], {other: one for other, one in classes.items() if other != name})
            if above is None:
                return None
            found |= above
        elif not _BARE.search(name):
            return None
    named = (one.func for one in walked(node) if isinstance(one, ast.Call))
    return (
        None
        if any((dotted(one) or "").endswith(("add_module", "setattr", "register_module")) for one in named)
        else found
    )
