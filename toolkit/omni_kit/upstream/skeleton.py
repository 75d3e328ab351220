"""The skeleton of a model: names and shapes of its parameters, read from source.

It gives what building on the meta device gives, without torch: `__init__` of each class is interpreted by ast with
the real config. Where a value cannot be known, both branches are followed and the parameter is marked uncertain.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import cycle
from typing import Any

from omni_kit.pysource.eval import UNKNOWN
from omni_kit.pysource.reads import literal
from omni_kit.pysource.source import SourceFile
from omni_kit.upstream.construction import Config, Interpreter, Module, Tensor

_TIES = "tie_word_embeddings"
_LAYER = re.compile(r"(?<=\.)\d+(?=\.|$)")


@dataclass(frozen=True)
class Parameter:
    """One parameter or persistent buffer.

    Attributes:
        name: full name ("model.layers.0.mlp.experts.gate_up_proj").
        shape: dimensions; None if one could not be read.
        owner: class of the module that holds it.
        where: file:line of its assignment.
        certain: False when it stands behind a condition that could not be decided.
    """

    name: str
    shape: tuple[int | None, ...] | None
    owner: str
    where: str
    buffer: bool = False
    certain: bool = True

    @cached_property
    def pattern(self) -> str:
        """The name with every number replaced by `*`."""
        return _LAYER.sub("*", self.name)


@dataclass(frozen=True)
class Skeleton:
    """All parameters of one model class.

    Attributes:
        submodels: (path, class name, model_type) of the pre-trained sub-models, the root ("") first.
        unresolved: sub-modules whose class could not be read, with the expression.
        base_prefix: `base_model_prefix` of the class.
        tied: parameter -> the one that it is tied to, where the config ties.
        tieable: the same, whether the config ties or not.
    """

    class_name: str
    parameters: tuple[Parameter, ...]
    submodels: tuple[tuple[str, str, str], ...]
    unresolved: tuple[tuple[str, str], ...] = field(default=())
    base_prefix: str = ""
    tied: Mapping[str, str] = field(default_factory=dict)
    tieable: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def by_module(self) -> Mapping[str, Mapping[str, Parameter]]:
        """Module path -> leaf -> parameter; the `.weight` of a module counts as a leaf of the module above it."""
        found: dict[str, dict[str, Parameter]] = {}
        for parameter in self.parameters:
            head, _, leaf = parameter.name.removesuffix(".weight").rpartition(".")
            found.setdefault(head, {})[leaf] = parameter
        return found

    def names(self) -> dict[str, Parameter]:
        """Parameter by its full name."""
        return {parameter.name: parameter for parameter in self.parameters}

    def patterns(self) -> dict[str, Parameter]:
        """Return the first parameter of every pattern, in order."""
        found: dict[str, Parameter] = {}
        for parameter in self.parameters:
            found.setdefault(parameter.pattern, parameter)
        return found


def build_skeleton(source: SourceFile, class_name: str, config: Config) -> Skeleton:
    """Read the skeleton of `class_name` in `source` for this config, in which constructors may set attributes.

    Raises:
        BadInput: the file has no such class.
    """
    return _skeleton(Interpreter(source).build(class_name, [config], {}), config.model_type)


def build_from_arguments(source: SourceFile, class_name: str, arguments: Mapping[str, Any]) -> Skeleton:
    """Build the skeleton of a class whose config is the named arguments of its constructor.

    Raises:
        BadInput: the file has no such class.
    """
    return _skeleton(Interpreter(source).build(class_name, [], dict(arguments)), class_name)


def _skeleton(root: Module, model_type: str) -> Skeleton:
    parameters = tuple(_parameters(root, "", True))
    modules = list(_modules(root, ""))
    pretrained = [(path, module) for path, module in modules if module.pretrained]
    names = [parameter.name for parameter in parameters]
    return Skeleton(
        root.class_name,
        parameters,
        submodels=tuple((path, module.class_name, _model_type(module, model_type)) for path, module in pretrained),
        unresolved=tuple(_unresolved(modules)),
        base_prefix=str(_class_attribute(root, "base_model_prefix") or ""),
        tied=dict(_tied([one for one in pretrained if _config_ties(one[1])], names)),
        tieable=dict(_tied(pretrained, names)),
    )


def _class_attribute(module: Module, name: str) -> Any:
    """Return the literal that the class of a module, or one of its bases, assigns to `name`; None without one."""
    found = module.cls.assigned(name) if module.cls is not None else None
    value = literal(found[1]) if found is not None else UNKNOWN
    return None if value is UNKNOWN else value


def _tied(pretrained: Sequence[tuple[str, Module]], names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the ties in `_tied_weights_keys` of the sub-models: names, patterns of names, or whole modules.

    Paired in order, as `get_expanded_tied_weights_keys` of transformers does.
    """
    for path, module in pretrained:
        mapping = _class_attribute(module, "_tied_weights_keys")
        if not isinstance(mapping, dict):
            continue
        prefix = f"{path}." if path else ""
        below = [name.removeprefix(prefix) for name in names if name.startswith(prefix)]
        for pattern, goal in mapping.items():
            ties = sorted(name for name in below if re.search(f"^{pattern}", name))
            goals = sorted(name for name in below if re.search(f"^{goal}", name))
            yield from ((f"{prefix}{a}", f"{prefix}{b}") for a, b in zip(ties, cycle(goals), strict=False))


def _config_ties(module: Module) -> bool:
    config = module.attributes.get("config", [None])[0]
    return isinstance(config, Config) and config.get(_TIES) is True


def _model_type(module: Module, root: str) -> str:
    """Return the model_type of the config that a sub-model was built with; that of the whole where it has none."""
    configs = [value for value in module.attributes.get("config", ()) if isinstance(value, Config)]
    return configs[0].model_type if configs else root


def _parameters(module: Module, prefix: str, certain: bool) -> Iterator[Parameter]:
    for name, alternatives in module.attributes.items():
        path = f"{prefix}.{name}" if prefix else name
        sure = certain and name not in module.uncertain
        seen: set[str] = set()
        for value in alternatives:
            if isinstance(value, Tensor):
                found: Iterator[Parameter] = iter(
                    [Parameter(path, value.shape, module.class_name, value.where, value.buffer, sure)]
                )
            elif isinstance(value, Module):
                found = _parameters(value, path, sure and len(alternatives) == 1)
            else:
                continue
            for parameter in found:
                if parameter.name not in seen:
                    seen.add(parameter.name)
                    yield parameter


def _modules(module: Module, prefix: str) -> Iterator[tuple[str, Module]]:
    yield prefix, module
    for name, alternatives in module.attributes.items():
        for value in alternatives:
            if isinstance(value, Module):
                yield from _modules(value, f"{prefix}.{name}" if prefix else name)


def _unresolved(modules: Sequence[tuple[str, Module]]) -> Iterator[tuple[str, Any]]:
    for path, module in modules:
        for name, expression in module.unresolved.items():
            yield (f"{path}.{name}" if path else name), expression
