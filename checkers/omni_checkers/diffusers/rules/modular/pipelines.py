"""Rules about modular pipelines themselves: DFU411, DFU412."""

import ast
from collections.abc import Iterator
from pathlib import Path

from omni_checkers.engine.places import at
from omni_checkers.engine.rule import Findings, Rule
from omni_kit.pysource.classes import ClassRef
from omni_kit.pysource.source import SourceFile, read_source
from omni_kit.upstream.diffusers.classes import MODULAR
from omni_kit.upstream.diffusers.package import package_root

_NAMED, _MODEL = "default_blocks_name", "model_name"
_MAPPING = "MAPPING"
_FILE = "modular_pipeline.py"
_PIPELINE = """\
from diffusers.modular_pipelines import ModularPipeline


class LumenModularPipeline(ModularPipeline):
    default_blocks_name = "LumenSetTimestepsStep"
"""
_HOME = f"src/diffusers/{MODULAR}"
_MAPPED = '("lumen", _create_default_map_fn("LumenModularPipeline"))'
_BASES = f"""\
from collections import OrderedDict


def _create_default_map_fn(name):
    return lambda config_dict=None: name


MODULAR_PIPELINE_MAPPING = OrderedDict([{_MAPPED}])


class ModularPipelineBlocks:
    model_name = None


class ModularPipeline:
    default_blocks_name = None
"""
_OWN = """\
from ..modular_pipeline import ModularPipeline


class LumenModularPipeline(ModularPipeline):
    default_blocks_name = "LumenBlocks"
"""
_BLOCKS = """\
from ..modular_pipeline import ModularPipelineBlocks


class LumenBlocks(ModularPipelineBlocks):
    model_name = "lumen"
"""
_TREE = {
    "src/diffusers/configuration_utils.py": "class ConfigMixin:\n    pass\n",
    "src/diffusers/__init__.py": "",
    f"{_HOME}/__init__.py": "",
    f"{_HOME}/{_FILE}": _BASES,
    f"{_HOME}/lumen/__init__.py": "",
    f"{_HOME}/lumen/{_FILE}": _OWN,
    f"{_HOME}/lumen/modular_blocks_lumen.py": _BLOCKS,
}


class PipelinesNameTheirBlocks(Rule):
    """Set `default_blocks_name` of a modular pipeline to blocks that its package contains.

    Why: `from_pretrained` creates the pipeline without blocks and looks them up by this name. Without it the pipeline
    has no blocks, and with a wrong name its construction fails.

    Fine when: the class is a base class that nobody instantiates.
    """

    id = "DFU411"
    name = "pipelines-name-their-blocks"
    target = "diffusers"
    obligations = ("DIF-44",)
    BAD = (
        {_FILE: _PIPELINE.replace("LumenSetTimestepsStep", "LumenBlocks")},
        {_FILE: _PIPELINE.replace('default_blocks_name = "LumenSetTimestepsStep"', "pass")},
    )
    GOOD = ({_FILE: _PIPELINE},)

    def check(self, modulars: list[ClassRef], sources: list[SourceFile]) -> Findings:
        known = {name for source in sources for name in {*source.classes, *source.imports}}
        above = {base for cls in modulars for base in cls.source.bases(cls.node)}
        for cls in modulars:
            name = _text(cls, _NAMED)
            if not name and cls.node.name not in above:
                yield at(cls.source, cls.node, f"{cls.node.name} has no {_NAMED}")
            elif name and name not in known:
                yield at(cls.source, cls.node, f"{cls.node.name} names {name}, which its package does not define")


class ModularPipelinesAreMapped(Rule):
    """Inside diffusers, map the default blocks' model to its modular pipeline.

    Why: `init_pipeline` of blocks, and `from_pretrained` of a standard repository, look up the class by `model_name`.
    Without an entry they create a plain ModularPipeline, which lacks the model's properties.

    Fine when: the blocks belong to another model that has its own entry.
    """

    id = "DFU412"
    name = "modular-pipelines-are-mapped"
    target = "diffusers"
    obligations = ("DIF-44",)
    BAD = (
        {**_TREE, f"{_HOME}/{_FILE}": _BASES.replace(_MAPPED, "")},
        {**_TREE, f"{_HOME}/lumen/modular_blocks_lumen.py": _BLOCKS.replace('"lumen"', '"lumens"')},
    )
    GOOD = (_TREE,)

    def check(self, path: Path, modulars: list[ClassRef], sources: list[SourceFile]) -> Findings:
        root = package_root(path)
        file = root / MODULAR / _FILE if root is not None else None
        if file is None or not file.is_file():
            return
        mapping = _mapping(read_source(modulars[0].source.library, file))
        blocks = {name: ClassRef(source, node) for source in sources for name, node in source.classes.items()}
        for cls in modulars if mapping is not None else ():
            runs = blocks.get(_text(cls, _NAMED))
            model = _text(runs, _MODEL) if runs is not None else ""
            if model and model not in set(_keys(mapping)):
                yield at(cls.source, cls.node, f"no entry maps '{model}' to {cls.node.name}")


def _text(cls: ClassRef, name: str) -> str:
    """Return the text that a class, or one above it, assigns to a name; empty for anything else."""
    found = cls.assigned(name)
    value = found[1] if found is not None else None
    return value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else ""


def _mapping(source: SourceFile) -> ast.expr | None:
    """Return the pipeline table of a file."""
    return next((value for name, value in source.constants.items() if name.endswith(_MAPPING)), None)


def _keys(mapping: ast.AST | None) -> Iterator[str]:
    """Yield the keys of a table: of a dict, or the first of each pair."""
    for node in ast.walk(mapping) if mapping is not None else ():
        firsts = node.keys if isinstance(node, ast.Dict) else node.elts[:1] if isinstance(node, ast.Tuple) else []
        yield from (one.value for one in firsts if isinstance(one, ast.Constant) and isinstance(one.value, str))
