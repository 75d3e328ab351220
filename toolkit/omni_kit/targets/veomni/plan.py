"""The files and edits of a VeOmni integration, derived from the upstream model."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from omni_kit.errors import BadInput
from omni_kit.layout.expected import expected_layout
from omni_kit.targets import Decision, ImportEntry, ListEntry, NewFile, Plan, Request, Todo
from omni_kit.targets.veomni.checkout import MODELS, find_checkout, shipped_model_types
from omni_kit.targets.veomni.converter import ExpertLayout, class_prefix, converter_context, layout_of
from omni_kit.targets.veomni.patches import PatchSet, derive_patches
from omni_kit.targets.veomni.sites import Site, find_sites
from omni_kit.upstream.interpret import ConfigView
from omni_kit.upstream.profile import expert_parameters
from omni_kit.upstream.toy import toy_config


def make_plan(request: Request) -> Plan:
    """The whole plan of one integration.

    Raises:
        BadInput: the checkpoint's layout has no converter, or `into` is no VeOmni checkout for an in-tree integration.
    """
    sites = find_sites(request.model, request.profile)
    patches = derive_patches(request.model, sites)
    layout = _layout(request)
    context = _context(request, patches, layout)
    base = _model_dir(request)
    return Plan(
        files=tuple(_files(request, base, context, layout)),
        edits=tuple(_edits(request)) if request.style == "in-tree" else (),
        decisions=tuple(_decisions(request, sites, layout)),
        todo=tuple(_todo(request, sites, base)),
        next=_next(request, base),
    )


def _model_dir(request: Request) -> str:
    if request.style == "plugin":
        return request.name
    if find_checkout(request.into) is None:
        raise BadInput(f"{request.into} is no VeOmni checkout: it has no {MODELS}", "give its root with --into")
    return f"{MODELS}/{request.name}"


def _layout(request: Request) -> ExpertLayout:
    verdict = request.verdict
    if verdict is None:
        disk, names = expected_layout(request.model)
        recipe = request.model.recipe
        origin = ", ".join(recipe.resolved_from) if recipe else "no recipe"
        return ExpertLayout(disk, names, "no checkpoint was given: as transformers declares it", origin)
    return layout_of(verdict)


def _context(request: Request, patches: PatchSet, layout: ExpertLayout) -> dict[str, Any]:
    model, in_tree = request.model, request.style == "in-tree"
    heads = [name for name in model.heads if _registrable(name, request)]
    module = f"veomni.models.transformers.{request.name}" if in_tree else request.name
    test = f"test_{request.name}_parity.py"
    return {
        "name": request.name,
        "class_name": class_prefix(request.name),
        "module": module,
        "in_tree": in_tree,
        "models": MODELS,
        "test_path": f"tests/models/{test}" if in_tree else f"{request.name}/tests/{test}",
        "veomni": "...." if in_tree else "veomni.",
        "veomni_models": "..." if in_tree else "veomni.models.",
        "model_type": model.config.model_type,
        "shipped": not in_tree and model.config.model_type in shipped_model_types(),
        "source_module": model.source.module,
        "library_version": model.library.version,
        "patches": patches.patches,
        "slots": patches.slots,
        "import_lines": _import_lines(patches),
        "regenerate": _regenerate(request, module),
        "outputs": patches.outputs,
        "heads": heads,
        "default_head": next((name for name in heads if name.endswith("ForCausalLM")), heads[0]),
        "moe": request.profile.experts is not None,
        "plan_keys": [parameter.pattern for parameter in expert_parameters(model.skeleton)],
        "converter": layout.needs_converter,
        **(converter_context(request.model, layout) if layout.needs_converter else {}),
    }


def _import_lines(patches: PatchSet) -> list[str]:
    lines = [
        f"from {module} import {', '.join(names)}" if names else f"import {module}" for module, names in patches.imports
    ]
    return (
        [*lines, f"from veomni.utils.model_outputs import {', '.join(patches.outputs)}"] if patches.outputs else lines
    )


def _regenerate(request: Request, module: str) -> str:
    config = f"{request.name}_gpu_patch_gen_config"
    if request.style == "plugin":
        return f"omni-kit patchgen run {request.name}/{config}.py"
    return f"patchgen {module}.{config} -o {MODELS}/{request.name}/generated --diff"


def _registrable(name: str, request: Request) -> bool:
    """Heads whose config is this model_type's; text sub-models of a larger file count, its towers do not."""
    return not name.endswith(("VisionModel", "ForConditionalGeneration")) or name == request.model.class_name


def _files(request: Request, base: str, context: Mapping[str, Any], layout: ExpertLayout) -> Iterator[NewFile]:
    name = request.name
    yield NewFile(f"{base}/__init__.py", "__init__.py.jinja", context=context)
    yield NewFile(f"{base}/{name}_gpu_patch_gen_config.py", "gpu_patch_gen_config.py.jinja", context=context)
    if layout.needs_converter:
        yield NewFile(f"{base}/checkpoint_tensor_converter.py", "checkpoint_tensor_converter.py.jinja", context=context)
    if context["moe"]:
        yield NewFile(f"{base}/parallel_plan.py", "parallel_plan.py.jinja", context=context)
    yield NewFile(f"{base}/generated/__init__.py", text="")
    yield NewFile(str(context["test_path"]), "test_parity.py.jinja", context=context)
    toy = json.dumps(_toy(request), indent=2, ensure_ascii=False) + "\n"
    if request.style == "in-tree":
        yield NewFile(f"tests/toy_config/{name}_toy/config.json", text=toy)
        yield NewFile(f"tests/toy_config/{name}_toy/README.md", "toy_readme.md.jinja", context=context)
    else:
        yield NewFile(f"{base}/toy_config.json", text=toy)
        yield NewFile(f"{base}/README.md", "README.md.jinja", context=context)


def _toy(request: Request) -> dict[str, Any]:
    complete = ConfigView(request.model.config).as_dict()
    complete["architectures"] = [request.model.class_name]
    return toy_config(complete)


def _edits(request: Request) -> Iterator[ListEntry | ImportEntry]:
    name, moe = request.name, request.profile.experts is not None
    aggregate = f"{MODELS}/__init__.py"
    yield ImportEntry(aggregate, ".", name)
    yield ListEntry(aggregate, "__all__", f'"{name}"')
    config = f"./tests/toy_config/{name}_toy"
    tolerances = "_DEFAULT_RTOL, _DEFAULT_ATOL"
    level1 = f'pytest.param("{config}/config.json", {moe}, {tolerances}, id="{name}")'
    if (request.into / "tests/models/test_models_patch.py").is_file():
        yield ListEntry("tests/models/test_models_patch.py", "TEST_CASES", level1)
    level2 = f'pytest.param("{name}", "{config}", {moe}, {tolerances}, None, None)'
    if (request.into / "tests/e2e/test_e2e_parallel.py").is_file():
        yield ListEntry("tests/e2e/test_e2e_parallel.py", "text_test_cases", level2)


def _decisions(request: Request, sites: list[Site], layout: ExpertLayout) -> Iterator[Decision]:
    for site in sites:
        yield Decision(f"{site.site} {site.target}".strip(), site.decision, site.reason, site.evidence)
    if request.profile.experts is not None:
        choice = "generate" if layout.needs_converter else "none"
        disk = layout.disk or "unknown"
        yield Decision("checkpoint converter", choice, f"{disk} on disk: {layout.reason}", layout.evidence)
        keys = ", ".join(parameter.pattern for parameter in expert_parameters(request.model.skeleton))
        yield Decision("parallel plan", "ep: Shard(0)", "the stacked expert parameters", keys)
    forward = f"{request.model.class_name.removesuffix('ForCausalLM')}Model.forward"
    reason = "position ids and inputs arrive already cut for sequence parallelism"
    yield Decision(forward, "upstream", reason, "VeOmni's SequenceParallelCollator")
    if request.model.config.model_type in shipped_model_types() and request.style == "plugin":
        reason = "VeOmni registers this model_type itself; importing the plugin replaces it"
        yield Decision("registration", "override", reason, "MODELING_REGISTRY of the installed VeOmni")


def _todo(request: Request, sites: list[Site], base: str) -> Iterator[Todo]:
    for head in request.model.heads:
        if head.endswith("ForSequenceClassification"):
            what = f"{head} keeps upstream's head: to train it, override its forward for VeOmni's loss contract"
            yield Todo(f"{base}/{request.name}_gpu_patch_gen_config.py", 1, what)
    if any(site.site == "causal-lm-loss" and site.decision == "skip" for site in sites):
        what = "no loss was recognised: override the forward so that it unpacks (loss, logits, fused_linear_aux)"
        yield Todo(f"{base}/{request.name}_gpu_patch_gen_config.py", 1, what)


def _next(request: Request, base: str) -> tuple[str, ...]:
    place = request.into / base
    config = place / f"{request.name}_gpu_patch_gen_config.py"
    return (
        f"omni-kit patchgen run {config}",
        f"omni-kit check {place}",
        f"omni-kit parity {place}",
    )
