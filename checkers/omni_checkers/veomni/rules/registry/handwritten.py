"""Rules about code that is not generated: VEO106, VEO108 and VEO109."""

import ast
from collections.abc import Iterator
from pathlib import Path

from omni_checkers.engine.files import File, walked
from omni_checkers.engine.rule import Example, Finding, Findings, NotApplicable, Rule, Severity
from omni_checkers.symbolic import Class, Evaluator, Function, Oracle, Program, Raised, Symbol, Value
from omni_checkers.veomni.examples import REGISTER
from omni_checkers.veomni.facts.registry import CONFIG, Registration, Returned
from omni_kit.pysource.library import Library
from omni_kit.pysource.signatures import required
from omni_kit.pysource.source import dotted
from omni_kit.upstream.transformers.configs import model_types

PROCESSOR = "MODEL_PROCESSOR_REGISTRY"
_CONFIG = """\


@MODEL_CONFIG_REGISTRY.register("olmoe")
def register_olmoe_config():
    from .configuration_olmoe import VeOmniOlmoeConfig

    return VeOmniOlmoeConfig
"""
_PROCESSOR = """\


@MODEL_PROCESSOR_REGISTRY.register("Qwen2_5OmniProcessor")
def register_processor():
    from .processing_olmoe import Qwen2_5OmniProcessor

    return Qwen2_5OmniProcessor
"""
_PROCESSOR_FILE = """\
from transformers.models.qwen2_5_omni.processing_qwen2_5_omni import Qwen2_5OmniProcessor as HFProcessor


class Qwen2_5OmniProcessor(HFProcessor):
    pass
"""


def _with_config(definition: str) -> Example:
    """Return a model with a config class of its own."""
    register = REGISTER.replace("import MODELING", "import MODEL_CONFIG_REGISTRY, MODELING") + _CONFIG
    return {"__init__.py": register, "configuration_olmoe.py": definition}


def _with_processor(key: str) -> Example:
    """Return a model with a processor of its own, under a key."""
    register = REGISTER.replace("import MODELING", "import MODEL_PROCESSOR_REGISTRY, MODELING")
    registered = _PROCESSOR.replace('"Qwen2_5OmniProcessor"', f'"{key}"')
    return {"__init__.py": register + registered, "processing_olmoe.py": _PROCESSOR_FILE}


class ModelingIsGenerated(Rule):
    """Generate the modeling code of models that transformers has; do not write it by hand.

    A class that a register function returns is defined in `generated/`, and no file assigns to classes or functions of
    transformers' modeling modules.

    Why: nothing compares copied or runtime-patched code with a transformers release. When upstream changes, the old
    code stays, silently, and differs from inference.

    Fine when: transformers does not have the model; the rule then does not apply.
    """

    id = "VEO106"
    name = "modeling-is-generated"
    severity = Severity.warning
    target = "veomni"
    obligations = ("VEO-REG-12", "VEO-REG-09")
    failure_modes = ("upstream-drift-body",)
    BAD = (
        {
            "__init__.py": REGISTER.replace("generated.patched_modeling_olmoe_gpu", "modeling_olmoe"),
            "modeling_olmoe.py": "from transformers import PreTrainedModel\n\n\n"
            + "class OlmoeModel(PreTrainedModel):\n    pass\n\n\nclass OlmoeForCausalLM(PreTrainedModel):\n    pass\n",
        },
        {
            "gpu_patch.py": """\
from transformers.models.olmoe import modeling_olmoe as hf_olmoe


def apply_veomni_patch():
    hf_olmoe.OlmoeModel.forward = None
"""
        },
    )
    GOOD = ({"__init__.py": REGISTER},)

    def check(
        self, program: Program, returned: list[Returned], files: dict[Path, File], transformers: Library
    ) -> Findings:
        known = model_types(transformers)
        types = {path.registration.key for path in returned if path.registration.key in known}
        if not types:
            raise NotApplicable("transformers has no model of the registered types")
        for path in {str(path.value): path for path in returned}.values():
            value = path.value
            own = isinstance(value, Class) and "generated" not in value.module.path.parts
            if own and isinstance(value, Class) and path.registration.key in types:
                yield Finding(f"{value.name} is written by hand", value.module.path, value.node.lineno)
        for file in files.values():
            if file.path.parent.name != "generated":
                for target, node in _monkey_patches(file, program):
                    yield Finding(f"{target} of transformers is replaced at run time", file.path, node.lineno)


class ConfigIsOfItsType(Rule):
    """Return a config class of the registered model_type from MODEL_CONFIG_REGISTRY functions.

    The function takes no arguments. A class of the package sets or inherits its `model_type`.

    Why: the loader calls `from_pretrained` on the result. Another object raises AttributeError before anything is
    built, and a config of another type selects another modeling class.

    Fine when: the type is an alias of the config's own, as a text part registered under the name of the whole model.
    """

    id = "VEO108"
    name = "registered-config-is-of-its-type"
    target = "veomni"
    obligations = ("VEO-REG-07", "VEO-REG-14")
    failure_modes = ("nested-config-read",)
    BAD = (
        _with_config(
            "from transformers import PretrainedConfig\n\n\n"
            + 'class VeOmniOlmoeConfig(PretrainedConfig):\n    model_type = "olmo_e"\n'
        ),
        _with_config("class VeOmniOlmoeConfig:\n    tie_word_embeddings = False\n"),
    )
    GOOD = (
        _with_config(
            "from transformers import OlmoeConfig\n\n\n"
            + "class VeOmniOlmoeConfig(OlmoeConfig):\n    tie_word_embeddings = False\n"
        ),
    )

    def check(self, program: Program, registrations: list[Registration]) -> Findings:
        for registration, value, wrong in _calls(program, registrations, CONFIG):
            if wrong:
                yield Finding(
                    f"the config function of '{registration.key}' {wrong}", registration.path, registration.line
                )
            elif isinstance(value, Class):
                said = _model_type(program, value)
                bases = _bases(program, value)
                if said is not None and said != registration.key:
                    message = f"{value.name}, registered for '{registration.key}', is of type '{said}'"
                    yield Finding(message, value.module.path, value.node.lineno)
                elif said is None and not any("onfig" in base for base in bases):
                    message = f"{value.name}, registered for '{registration.key}', is not a config class"
                    yield Finding(message, value.module.path, value.node.lineno)


class ProcessorByClassName(Rule):
    """Register processors under the class name of the transformers processor that they replace.

    The function takes no arguments and returns a subclass of a processor.

    Why: the loader looks up the class name of the processor that transformers builds. Under any other key, such as the
    model_type, it finds nothing and uses upstream's processor, whose arguments have other names.

    Fine when: transformers has no processor for the model, and `processor_config.json` names this class.
    """

    id = "VEO109"
    name = "processor-registered-by-class-name"
    target = "veomni"
    obligations = ("VEO-REG-03", "VEO-REG-08")
    failure_modes = ("data-contract",)
    BAD = (_with_processor("olmoe"),)
    GOOD = (_with_processor("Qwen2_5OmniProcessor"),)

    def check(self, program: Program, registrations: list[Registration], transformers: Library) -> Findings:
        known = model_types(transformers)
        for registration, value, wrong in _calls(program, registrations, PROCESSOR):
            key = registration.key or ""
            if wrong:
                yield Finding(f"the processor function of '{key}' {wrong}", registration.path, registration.line)
                continue
            name = str(value).rpartition(".")[2]
            if key in known or (isinstance(value, (Class, Symbol)) and not key.endswith("Processor")):
                message = f"'{key}' is not the class name of a processor: the loader looks for {name}"
                yield Finding(message, registration.path, registration.line)
            elif isinstance(value, Class) and not any("rocessor" in base for base in _bases(program, value)):
                message = f"{name}, registered as '{key}', does not derive from a processor"
                yield Finding(message, value.module.path, value.node.lineno)


def _calls(
    program: Program, registrations: list[Registration], registry: str
) -> Iterator[tuple[Registration, Value, str]]:
    """(registration, what its function returns, why it cannot be called) for one registry."""
    found = [item for item in registrations if item.registry == registry and item.key]
    if not found:
        raise NotApplicable(f"nothing is registered with {registry}")
    for registration in found:
        function = registration.function
        if not isinstance(function, Function):
            continue
        outcome = Evaluator(program, Oracle([])).call_function(function, [], {})
        needed = required(function.signature)
        yield registration, outcome.value, f"needs '{needed[0]}', and is called without arguments" if needed else ""


def _bases(program: Program, value: Class) -> list[str]:
    """Return the names of the bases of a class, as they are called where they are imported from."""
    tree = program.parse(value.module.path)
    imports = (node for node in walked(tree) if isinstance(node, ast.ImportFrom)) if tree is not None else ()
    real = {alias.asname: alias.name for node in imports for alias in node.names if alias.asname}
    return [real.get(name, name) for base in value.node.bases if (name := dotted(base))]


def _model_type(program: Program, value: Class) -> str | None:
    """Return the model_type that a class of the package states itself; None if it inherits one, or has none."""
    try:
        found = Evaluator(program, Oracle([])).class_attribute(value, "model_type")
    except Raised:
        return None
    return found if isinstance(found, str) else None


def _monkey_patches(file: File, program: Program) -> Iterator[tuple[str, ast.stmt | ast.expr]]:
    """Assignments, and calls of setattr, on what is imported from modeling modules of transformers."""
    names = {
        alias.asname or alias.name
        for node in file.nodes(ast.ImportFrom)
        if (node.module or "").startswith("transformers.models") and not node.level
        for alias in node.names
        if "modeling" in f"{node.module}.{alias.name}"
    }
    for node in file.nodes(ast.Assign):
        for target in node.targets:
            name = dotted(target) if isinstance(target, ast.Attribute) else None
            if name and name.partition(".")[0] in names:
                yield name, node
    for call in file.nodes(ast.Call):
        if dotted(call.func) == "setattr" and call.args:
            name = dotted(call.args[0]) or ""
            if name.partition(".")[0] in names:
                yield name, call
