"""The classes of an omni model that only produce speech: talker, codec and vocoder."""

import ast
from collections.abc import Iterator

from omni_kit.pysource.source import SourceFile, dotted
from omni_kit.upstream.transformers.configs import ConfigClass
from omni_kit.upstream.transformers.defaults import as_config, sub_config


def config_names(node: ast.ClassDef) -> Iterator[str]:
    """Yield the names of a class's config, the most reliable first."""
    for item in node.body:
        if isinstance(item, ast.Assign) and any(
            isinstance(target, ast.Name) and target.id == "config_class" for target in item.targets
        ):
            yield dotted(item.value) or ""
    for item in node.body:
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name) and item.target.id == "config":
            yield dotted(item.annotation) or ""
        elif isinstance(item, ast.FunctionDef) and item.name == "__init__":
            for argument in item.args.args:
                if argument.arg == "config" and argument.annotation is not None:
                    yield dotted(argument.annotation) or ""


def speech_configs(config: ConfigClass) -> set[str]:
    """Return the configs that the whole model's config leads to, and its thinker's does not."""
    whole = next((found for name in config.source.classes if (found := _with_thinker(config.source, name))), None)
    if whole is None:
        return set()
    others = (written for name, written in whole.sub_configs.items() if name != "thinker_config")
    spoken = set[str]().union(*(_below(whole, written) for written in others))
    return spoken - _below(whole, whole.sub_configs["thinker_config"])


def speech_classes(classes: dict[str, ast.ClassDef], configs: set[str]) -> list[str]:
    """Return the classes whose config is one of these; abstract ones stay."""
    return [
        name for name, node in classes.items() if "PreTrained" not in name and next(config_names(node), "") in configs
    ]


def _with_thinker(source: SourceFile, name: str) -> ConfigClass | None:
    found = as_config(source, source.classes[name])
    return found if found is not None and "thinker_config" in found.sub_configs else None


def _below(owner: ConfigClass, written: str) -> set[str]:
    """Return the name of a config, and those of all configs inside it."""
    config = sub_config(owner, written)
    inner = config.sub_configs.values() if config is not None and config.name != owner.name else ()
    return {written}.union(*(_below(config, name) for name in inner if config is not None))
