"""The rules about what SGLang finds of a pipeline: SGD101 and SGD102."""

import ast
from collections.abc import Iterator

from omni_checkers.engine.files import walked
from omni_checkers.engine.places import at
from omni_checkers.engine.rule import Finding, Findings, NotApplicable, Rule, Severity
from omni_checkers.sglang_diffusion.examples import CONFIG, PACKAGE, PIPELINE, QWEN, changed
from omni_checkers.sglang_diffusion.facts.registering import Registration, calls_of, registered_models
from omni_checkers.sglang_diffusion.facts.serving import Serving, entries
from omni_checkers.sglang_diffusion.facts.sources import own_classes, unseen_bases
from omni_kit.errors import BadInput
from omni_kit.pysource.classes import ClassRef
from omni_kit.pysource.nodes import calls
from omni_kit.pysource.source import SourceFile

_REGISTER = "register"
_COMMON = {"sampling_param_cls", "pipeline_config_cls", "hf_model_paths", "model_detectors"}
_KEYWORDS = {
    "register_configs": _COMMON | {"pipeline_config_registry_entries"},
    "register_pipeline": _COMMON | {"pipeline_cls", "overwrite"},
}
_BASES = {"sampling_param_cls": "", "pipeline_config_cls": "PipelineConfig"}


class PipelineIsRegistered(Rule):
    """Register the pipeline, its configs and its denoiser where SGLang looks for them.

    A plugin calls `register_pipeline` with its class at import, and `ModelRegistry.register_model` for its denoiser.
    Inside SGLang a module of `configs/pipeline_configs` has a function `register` that calls `register_configs`, and
    the denoiser's file has an EntryClass. Both functions receive classes of the right kind, and only SGLang's keywords.

    Why: SGLang logs a warning and uses diffusers' classes instead, or reports an unknown model.

    Fine when: the pipeline uses the configs of another pipeline; then the other one is registered.
    """

    id = "SGD101"
    name = "pipeline-is-registered"
    target = "sglang-diffusion"
    obligations = ("SGL-41", "SGL-42", "SGL-43", "SGL-51")
    BAD = (
        changed(PACKAGE, ("\nregister()\n", "\n")),
        changed(CONFIG, ("overwrite=True,", 'overwrite=True,\n        model_family="qwen",')),
        changed(PACKAGE, ('ModelRegistry.register_model("QwenDiT", QwenDiT)\n', "")),
    )
    GOOD = ({PACKAGE: QWEN[PACKAGE], CONFIG: QWEN[CONFIG]},)

    def check(self, serving: Serving) -> Findings:
        own = [source for file in serving.own if (source := serving.sources.read(file)) is not None]
        if serving.in_tree:
            yield from _in_tree(serving, own)
        else:
            yield from _plugin(serving, own)
        for one in serving.registrations:
            yield from _given(one)


def _plugin(serving: Serving, own: list[SourceFile]) -> Iterator[Finding]:
    mine = [one for one in serving.registrations if _is(one.cls("pipeline_cls"), serving.cls)]
    name = serving.cls.node.name
    if not mine and not any(one.function == "register_pipeline" for one in serving.registrations):
        yield at(
            serving.cls.source, serving.cls.node, f"nothing calls register_pipeline for {name}: SGLang does not know it"
        )
    for one in mine:
        if one.within is not None and not _reached(one.within.name, own):
            message = f"{one.within.name}() registers {name}, but nothing calls it at import"
            yield at(one.source, one.within, message)
    known = {cls.node for source in own for _, cls, _ in registered_models(source) if cls is not None}
    unread = any(cls is None for source in own for _, cls, _ in registered_models(source))
    dit = serving.denoiser
    if dit is not None and serving.is_own(dit) and dit.node not in known and not unread:
        message = f"{dit.node.name} is not passed to ModelRegistry.register_model: diffusers' class runs instead"
        yield at(dit.source, dit.node, message)


def _reached(name: str, own: list[SourceFile]) -> bool:
    """Return whether the call of a function stands at the top level of a file, or in a function whose call does."""
    if any(True for source in own for _ in calls_of(source, name)):
        return True
    callers = {f.name for source in own for f in source.functions.values() if f.name != name and any(calls(f, name))}
    return any(True for source in own for caller in callers for _ in calls_of(source, caller))


def _in_tree(serving: Serving, own: list[SourceFile]) -> Iterator[Finding]:
    for one in serving.registrations:
        home = one.source.functions.get(_REGISTER)
        if one.within is None or one.within is home:
            continue
        if home is None or not any(calls(home, one.within.name)):
            yield at(one.source, one.call, f"{one.within.name}() registers, but SGLang calls only {_REGISTER}()")
    dit = serving.denoiser
    if dit is not None and serving.is_own(dit) and not any(_is(one, dit) for one in entries(dit.source)):
        yield at(dit.source, dit.node, f"the file's EntryClass does not name {dit.node.name}: SGLang does not find it")


def _given(one: Registration) -> Iterator[Finding]:
    for word in one.call.keywords:
        if word.arg is not None and word.arg not in _KEYWORDS[one.function]:
            yield at(one.source, word.value, f"{one.function} does not accept '{word.arg}'")
    for name, base in _BASES.items():
        cls = one.cls(name)
        if name not in one.given and not any(word.arg is None for word in one.call.keywords):
            yield at(one.source, one.call, f"{one.function} needs '{name}'")
        elif cls is not None and base and not cls.is_a(base) and not unseen_bases(cls):
            yield at(one.source, one.given[name], f"{cls.node.name} is not a {base}")


def _is(one: ClassRef | None, two: ClassRef) -> bool:
    return one is not None and one.node is two.node


class ModulesAreUpstreams(Rule):
    """List the components of model_index.json in `_required_config_modules`, and read no others in stages.

    The rule compares the list with the constructor of diffusers' pipeline of that name: the list contains each required
    component under its own name. Each `get_module(name)` names a listed component, or one that the class adds itself.

    Why: SGLang does not load an unlisted component, and `get_module` returns None: the first call of a stage fails, or
    silently takes the branch for an absent component. A name that model_index.json lacks stops the server at start.

    Fine when: the pipeline loads the component itself or never uses it; then suppress the finding with that reason.
    """

    id = "SGD102"
    name = "modules-are-upstreams"
    target = "sglang-diffusion"
    obligations = ("SGL-06", "SGL-38", "SGL-39")
    BAD = (
        changed(PIPELINE, ('        "tokenizer",\n', "")),
        changed(PIPELINE, ('        "vae",\n', '        "autoencoder",\n')),
    )
    GOOD = ({PIPELINE: QWEN[PIPELINE]},)

    def check(self, serving: Serving) -> Findings:
        if serving.required is None:
            raise NotApplicable("the required modules are not written out")
        listed, node, source = serving.required
        yield from _upstreams(serving, listed, node, source)
        known = {*listed, *_added(serving)}
        for call in calls(serving.cls.node, "get_module"):
            name = call.args[0] if call.args else None
            optional = len(call.args) > 1 or any(word.arg == "default_value" for word in call.keywords)
            if isinstance(name, ast.Constant) and name.value not in known and not optional and listed:
                yield at(serving.cls.source, call, f"{name.value!r} is not in _required_config_modules, so it is None")


def _upstreams(serving: Serving, listed: list[str], node: ast.expr, source: SourceFile) -> Iterator[Finding]:
    if serving.upstream is None:
        return
    try:
        components = serving.upstream.components
    except BadInput:
        return
    name = serving.upstream.cls.node.name
    needed = [one for one in components if not one.optional]
    added = set(_added(serving))
    for one in needed:
        if one.name not in listed and one.name not in added:
            yield at(source, node, f"'{one.name}' of {name} is not listed: it is not loaded")
    for item in getattr(node, "elts", []):
        if item.value not in {one.name for one in components} and item.value not in added:
            found = at(source, item, f"{name} has no component '{item.value}'")
            yield Finding(found.message, found.path, found.line, found.column, severity=Severity.warning)


def _added(serving: Serving) -> Iterator[str]:
    """Yield the names that the pipeline's own classes speak of elsewhere than where they ask for a module."""
    for entry in own_classes(serving.cls):
        if entry.node.name == "ComposedPipelineBase":
            continue
        listed = entry.assigned("_required_config_modules")
        asking = [*calls(entry.node, "get_module"), *(call for call in calls(entry.node) if _only_hands_on(call))]
        apart = {id(arg) for call in asking for arg in (*call.args, *(word.value for word in call.keywords))}
        apart |= {id(node) for node in walked(listed[1])} if listed is not None else set()
        for node in walked(entry.source.tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in apart:
                yield node.value


def _only_hands_on(call: ast.Call) -> bool:
    """Return whether a call names a component that a standard stage asks for."""
    return any(word.arg is not None and word.arg.endswith("_key") for word in call.keywords)
