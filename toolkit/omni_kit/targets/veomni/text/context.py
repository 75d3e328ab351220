"""Variables for the templates of a language model."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from omni_kit.targets.protocol import Request
from omni_kit.targets.veomni.checkout import MODELS, shipped_model_types
from omni_kit.targets.veomni.replaced import shipped_features, slot
from omni_kit.targets.veomni.text.converter import class_prefix
from omni_kit.targets.veomni.text.patches import PatchSet
from omni_kit.targets.veomni.text.replay import MONITOR, REPLAY
from omni_kit.upstream.transformers.models import UpstreamModel
from omni_kit.upstream.transformers.traits import expert_parameters, stacked_parameters

BROUGHT = {
    "moe_implementation": {"fused_grouped_mm": "grouped_mm"},
    "cross_entropy_loss_implementation": {"liger_large_chunks": "liger_large_chunks"},
    "attn_implementation": {"torch_varlen": "torch_varlen"},
}
"""Setting -> kernel that omni-kit brings -> the module among the templates that registers it."""
COMPILED, PADDED = "train.torch_compile.enable", "train.pad_to_length"
"""The settings, by their place in a training file, with which VeOmni compiles decoder blocks."""


@dataclass(frozen=True)
class TextContext:
    """The names that templates may use; all but the converter's, which has its own.

    Attributes:
        name, class_name: the integration's name, and as the beginning of class names.
        models: where VeOmni keeps its models, relative to its root.
        test_path: the generated test, relative to where the integration is written.
        veomni, veomni_models: what imports of VeOmni, and of its models, begin with.
        model_type: of the upstream model; `shipped`, that the installed VeOmni registers it itself.
        source_module: upstream's modeling module, of `library_version`.
        patches, slots, outputs, functions, import_lines: of the patch config.
        lost: what VeOmni's own integration of a shipped model_type has, and this one does not.
        recorded: the classes of routers whose choices are counted by a call; `replayed`, that choices can be replayed.
        regenerate: the command that generates the modeling file.
        heads: the classes that are registered; `default_head` answers where no architecture is named.
        plan_keys: patterns of all that is stacked by expert, biases included.
        lora_pairs: of each container of experts that has one of each, the patterns of the weights of gate and up, and
            of down.
        expert_parallel: the experts' code can do with a part of them, so there is a plan that cuts them.
        converter: a converter is written, for experts that lie `disk` where there are some.
        media: what the generated module takes from the integration's module for media; nothing for text alone.
        excluded: definitions that the generated module leaves out.
        helpers: (module of the integration, function) that patches of text call.
        apart: packed samples run as rows of their own; see packed_rows.py.
        ahead: some tokens see later ones, which flash attention cannot compute.
        brought: the modules of kernels that omni-kit brings and the settings choose.
    """

    name: str
    class_name: str
    in_tree: bool
    models: str
    test_path: str
    veomni: str
    veomni_models: str
    model_type: str
    shipped: bool
    source_module: str
    library_version: str
    patches: Sequence[object]
    slots: Sequence[object]
    outputs: Sequence[str]
    functions: Sequence[object]
    lost: Sequence[str]
    recorded: Sequence[str]
    replayed: bool
    import_lines: Sequence[str]
    regenerate: str
    heads: Sequence[str]
    default_head: str
    moe: bool
    plan_keys: Sequence[str]
    lora_pairs: Sequence[tuple[str, str]]
    expert_parallel: bool
    converter: bool
    inner: Sequence[tuple[str, str]]
    disk: str
    media: Sequence[str]
    excluded: Sequence[str]
    helpers: Sequence[tuple[str, str]]
    apart: bool
    ahead: bool
    brought: Sequence[str]


def text_context(
    model: UpstreamModel,
    request: Request,
    patches: PatchSet,
    *,
    moe: bool,
    expert_parallel: bool,
    converter: bool,
    disk: str,
    inner: Mapping[str, str] = MappingProxyType({}),
    routers: Sequence[str] = (),
    media: Sequence[str] = (),
    excluded: Sequence[str] = (),
    helpers: Sequence[tuple[str, str]] = (),
    apart: bool = False,
    ahead: bool = False,
) -> TextContext:
    """Return the context of one integration.

    Args:
        inner: class inside the model whose names the renamings would spoil -> its path, or nothing if they stay.
        routers: the classes of the modules that VeOmni knows a layer's choice of experts by.
        excluded: definitions that the generated module leaves out; no head is among those that are registered.
    """
    name, in_tree, model_type = request.name, request.style == "in-tree", model.config.model_type
    heads = [head for head in model.heads if head not in excluded and _registrable(head, model)]
    module = f"veomni.models.transformers.{name}" if in_tree else name
    pairs = list(_lora_pairs(model))
    planned = {slot(operation) for _, operation, _ in patches.slots}
    planned |= {patch.target.rpartition(".")[2] for patch in patches.patches}
    planned |= {"get_parallel_plan"} if expert_parallel else set()
    planned |= {"_create_checkpoint_tensor_converter", "_convert_fqn_to_index_mapping"} if converter else set()
    planned |= {"_convert_lora_targets_to_parameters"} if moe and pairs else set()
    test = f"test_{name}_parity.py"
    return TextContext(
        name=name,
        class_name=class_prefix(name),
        in_tree=in_tree,
        models=MODELS,
        test_path=f"tests/models/{test}" if in_tree else f"{name}/tests/{test}",
        veomni="...." if in_tree else "veomni.",
        veomni_models=models_package(request),
        model_type=model_type,
        shipped=not in_tree and model_type in shipped_model_types(),
        source_module=model.source.module,
        library_version=model.library.version,
        patches=patches.patches,
        slots=patches.slots,
        outputs=patches.outputs,
        functions=patches.functions,
        lost=sorted(shipped_features(model_type) - planned) if not in_tree else [],
        recorded=list(routers) if any(module == MONITOR for module, _ in patches.functions) else [],
        replayed=any(module == REPLAY for module, _ in patches.functions),
        import_lines=_import_lines(patches),
        regenerate=_regenerate(name, module, in_tree),
        heads=heads,
        default_head=model.class_name if model.class_name in heads else heads[0],
        moe=moe,
        plan_keys=[parameter.pattern for parameter in stacked_parameters(model.skeleton)],
        lora_pairs=pairs,
        expert_parallel=expert_parallel,
        converter=converter,
        inner=[(head, inner[head]) for head in heads if head in inner],
        disk=disk,
        media=media,
        excluded=excluded,
        helpers=helpers,
        apart=apart,
        ahead=ahead,
        brought=[
            kernels[chosen]
            for setting, kernels in BROUGHT.items()
            if (chosen := request.kernels.get(setting)) in kernels
        ],
    )


def _lora_pairs(model: UpstreamModel) -> Iterator[tuple[str, str]]:
    """Yield the stacked weights that VeOmni's adapters take, which are named as in every model of transformers."""
    names = {parameter.pattern for parameter in expert_parameters(model.skeleton)}
    for name in sorted(names):
        container, _, leaf = name.rpartition(".")
        down = f"{container}.down_proj"
        if leaf == "gate_up_proj" and down in names:
            yield name, down


def models_package(request: Request) -> str:
    """Return the package of VeOmni's models as an integration's files import from it, with a dot at the end."""
    return "..." if request.style == "in-tree" else "veomni.models."


def _import_lines(patches: PatchSet) -> list[str]:
    lines = [
        f"from {module} import {', '.join(names)}" if names else f"import {module}" for module, names in patches.imports
    ]
    lines += [f"from {module} import {', '.join(names)}" for module, names in patches.functions]
    return (
        [*lines, f"from veomni.utils.model_outputs import {', '.join(patches.outputs)}"] if patches.outputs else lines
    )


def _regenerate(name: str, module: str, in_tree: bool) -> str:
    config = f"{name}_gpu_patch_gen_config"
    if in_tree:
        return f"patchgen {module}.{config} -o {MODELS}/{name}/generated --diff"
    return f"omni-kit patchgen run {name}/{config}.py"


def _registrable(name: str, model: UpstreamModel) -> bool:
    """Heads whose config is this model_type's; text sub-models of a larger file count, its towers do not."""
    return not name.endswith(("VisionModel", "ForConditionalGeneration")) or name == model.class_name
