"""The stacked experts of a class, and what transformers merges into them when it loads a checkpoint."""

from dataclasses import dataclass, field

from omni_checkers.engine.facts import fact
from omni_checkers.engine.rule import NotApplicable
from omni_checkers.symbolic import Class, Symbol, Value
from omni_checkers.veomni.facts.generated import Generated
from omni_checkers.veomni.facts.plan import Skeletons
from omni_checkers.veomni.facts.upstream import config_of, upstream_class
from omni_kit.pysource.library import Library
from omni_kit.pysource.source import SourceFile, read_source
from omni_kit.upstream.skeleton import Parameter, Skeleton
from omni_kit.upstream.transformers.configs import ConfigClass
from omni_kit.upstream.transformers.models import UpstreamModel
from omni_kit.upstream.transformers.recipes.transform import Transform
from omni_kit.upstream.transformers.traits import expert_parameters

_MERGE = "MergeModulelist"


@dataclass(frozen=True)
class StackedExperts:
    """Experts of one class.

    Attributes:
        parameter: the first stacked parameter, by pattern; empty if the class has none.
        split: the keys on disk that transformers merges into it; empty if it merges nothing.
        names: the stacked parameters of the first layer that has some.
        transforms: what transformers declares for loading the class.
        model: the library's own class of this name.
    """

    parameter: str = ""
    split: str = ""
    names: tuple[str, ...] = ()
    transforms: tuple[Transform, ...] = ()
    model: UpstreamModel | None = None
    config: ConfigClass | None = None


@dataclass
class Experts:
    """Answers what experts a class has that a register function returned."""

    generated: list[Generated]
    skeletons: Skeletons
    library: Library
    _known: dict[Value, StackedExperts] = field(default_factory=dict)

    def of(self, value: Value) -> StackedExperts:
        """Return the experts of a class of a generated file, or of a class of transformers.

        Raises:
            NotApplicable: the class cannot be read; why.
        """
        if value not in self._known:
            self._known[value] = self._read(value)
        return self._known[value]

    def _read(self, value: Value) -> StackedExperts:
        name = str(value).rpartition(".")[2]
        if isinstance(value, Class):
            file = next((item for item in self.generated if item.file.path == value.module.path), None)
            if file is None:
                raise NotApplicable(f"{name} is not in a generated file")
            skeleton, cls = self.skeletons.of(file, name), file.config_class(name)
        elif isinstance(value, Symbol):
            cls = config_of(_upstream(value, self.library), name)
            skeleton = _skeleton(name, cls)
        else:
            raise NotApplicable(f"{value} is not a class that can be read")
        if not any("*" in parameter.pattern for parameter in skeleton.parameters):
            raise NotApplicable(f"the layers of {name} cannot be read")
        stacked = expert_parameters(skeleton)
        if not stacked or cls is None:
            return StackedExperts()
        model = upstream_class(cls, name)
        transforms = model.recipe.transforms if model is not None and model.recipe is not None else ()
        names = tuple(parameter.name for parameter in stacked)
        return StackedExperts(stacked[0].pattern, _merged(stacked, transforms), names, transforms, model, cls)


@fact
def experts(generated: list[Generated], skeletons: Skeletons, transformers: Library) -> Experts:
    """Return the experts of the classes that can be returned."""
    return Experts(generated, skeletons, transformers)


def _upstream(value: Symbol, library: Library) -> SourceFile:
    module, _, name = value.name.rpartition(".")
    file = library.module_file(module)
    source = read_source(library, file) if file is not None else None
    found = source.resolve_class(name) if source is not None else None
    if found is None:
        raise NotApplicable(f"{value.name} is not found in {library.name} {library.version}")
    return found[0]


def _skeleton(class_name: str, cls: ConfigClass | None) -> Skeleton:
    model = upstream_class(cls, class_name) if cls is not None else None
    if model is None:
        raise NotApplicable(f"the parameters of {class_name} cannot be read")
    return model.skeleton


def _merged(stacked: list[Parameter], transforms: tuple[Transform, ...]) -> str:
    """Return the source patterns of the first recipe that merges modules into one of these parameters."""
    for transform in transforms:
        leaf = transform.targets[0].rpartition(".")[2].removesuffix("$")
        merges = any(operation.name == _MERGE for operation in transform.operations)
        if merges and any(parameter.name.endswith(leaf) for parameter in stacked):
            return " + ".join(transform.sources)
    return ""
