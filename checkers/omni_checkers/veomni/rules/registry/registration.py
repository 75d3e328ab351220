"""Rules about registering a model: VEO1xx."""

import ast
from pathlib import Path

from omni_checkers.engine.files import File, read_file
from omni_checkers.engine.rule import Edit, Finding, Findings, NotApplicable, Rule
from omni_checkers.symbolic import Evaluator, Module, Oracle, Program, Raised
from omni_checkers.veomni.examples import REGISTER
from omni_checkers.veomni.facts.generated import Generated
from omni_checkers.veomni.facts.registry import CONFIG, MODELING, Registration
from omni_kit.pysource.library import Library
from omni_kit.targets.veomni.model_dir import ModelDir, place_of, registered_in
from omni_kit.upstream.transformers.configs import model_types


class RegisteredAtImport(Rule):
    """Register an existing model_type when the package is imported.

    The import alone registers the key with MODELING_REGISTRY. The key is a model_type of transformers, or one whose
    config class the package registers with MODEL_CONFIG_REGISTRY.

    Why: VeOmni looks up the class by the `model_type` of config.json. With any other key it raises "Unknown Modeling
    name", although the package was imported.

    Fine when: the config class comes with the checkpoint as remote code.
    """

    id = "VEO101"
    name = "registered-at-import-under-a-real-model-type"
    target = "veomni"
    obligations = ("VEO-REG-01", "VEO-REG-06", "DIT-16")
    BAD = (
        {
            "__init__.py": """\
from veomni.models.loader import MODELING_REGISTRY


def setup():
    @MODELING_REGISTRY.register("olmoe")
    def register_olmoe_modeling(architecture):
        from .generated.patched_modeling_olmoe_gpu import OlmoeForCausalLM

        return OlmoeForCausalLM
"""
        },
        {"__init__.py": REGISTER.replace('"olmoe"', '"OlmoeForCausalLM"', 1)},
    )
    GOOD = ({"__init__.py": REGISTER},)

    def check(self, model_dir: ModelDir, registrations: list[Registration], transformers: Library) -> Findings:
        known = set(model_types(transformers))
        own = {item.key for item in registrations if item.registry == CONFIG}
        keys = {item.key for item in registrations if item.registry == MODELING}
        for key in model_dir.registered:
            if key not in keys and None not in keys:
                message = f"'{key}' is not registered by importing the package: the call is never reached"
                yield Finding(message, *_reached_from(model_dir, key))
        for item in registrations:
            if item.registry == MODELING and item.key is not None and item.key not in known | own:
                unknown = f"'{item.key}' is not a model_type of transformers {transformers.version}"
                message = f"{unknown}, and the package registers no config class for it"
                yield Finding(message, item.path, item.line)


class KeyIsPatchedModel(Rule):
    """Use a model_type of the patched upstream model as the registry key.

    Why: a config of that model_type gets another model's classes. Where the parameter names agree it loads and trains,
    with the wrong architecture.

    Fine when: the model is registered for a fork whose config only renames the model_type; state that in an ignore
    comment.
    """

    id = "VEO102"
    name = "registry-key-is-model-type-of-patched-source"
    target = "veomni"
    obligations = ("VEO-REG-01",)
    BAD = ({"__init__.py": REGISTER.replace('"olmoe"', '"mixtral"', 1)},)
    GOOD = ({"__init__.py": REGISTER.replace('"olmoe"', 'key="olmoe"', 1)},)

    def check(self, registrations: list[Registration], generated: list[Generated], transformers: Library) -> Findings:
        sources = {item.source_module for item in generated if item.source_module}
        folders = {module.rpartition(".")[0] for module in sources if module.startswith("transformers.models.")}
        if not folders:
            raise NotApplicable("no generated file was made from a model of transformers")
        types = model_types(transformers)
        own = {item.key for item in registrations if item.registry == CONFIG}
        names = {folder.rpartition(".")[2] for folder in folders}
        for item in registrations:
            if item.registry != MODELING or item.key not in types or item.key in own:
                continue
            if not any(file.parent.name in names for file in types[item.key]):
                message = (
                    f"'{item.key}' is registered, but the generated classes were made from {', '.join(sorted(sources))}"
                )
                yield Finding(message, item.path, item.line)


class ImportedByAggregate(Rule):
    """Import a model inside VeOmni in the `__init__.py` of its parent folder.

    The folder is `veomni/models/transformers` for language models, and `veomni/models/diffusers` for diffusion models.

    Why: nothing else imports the package, so it never registers, and VeOmni raises "Unknown Modeling name" for a model
    in its own tree.

    Fine when: another module of VeOmni imports the package.
    """

    id = "VEO103"
    name = "package-imported-by-aggregate"
    target = "veomni"
    obligations = ("VEO-REG-10", "DIT-16")
    fixable = True
    example_of = "qwen3_vl_moe"
    BAD = ({"../__init__.py": "from . import llama, qwen3_moe\n"},)
    GOOD = ({"../__init__.py": "from . import llama, qwen3_moe, qwen3_vl_moe\n"},)

    def check(self, model_dir: ModelDir) -> Findings:
        if model_dir.style != "in-tree":
            raise NotApplicable("a plugin is imported by its user")
        aggregate = model_dir.path.parent / "__init__.py"
        package = model_dir.import_name.rpartition(".")[0]
        if not aggregate.is_file():
            raise NotApplicable("the directory above is not a package")
        file = read_file(aggregate)
        evaluator = Evaluator(_Aggregate(aggregate, package, file.tree), Oracle([]))
        try:
            evaluator.run_module(Module(package, aggregate, True))
        except Raised as error:
            raise NotApplicable(f"{aggregate.name} cannot be followed: {error.text}") from error
        own = model_dir.import_name
        if not any(name == own or name.startswith(f"{own}.") for name in evaluator.imports):
            siblings = next((node for node in file.nodes(ast.ImportFrom) if node.level == 1 and not node.module), None)
            message = f"'{model_dir.path.name}' is not imported here, so it is never registered"
            edits = (_added(file, siblings, model_dir.path.name),) if siblings is not None else ()
            yield Finding(message, aggregate, siblings.lineno if siblings is not None else 1, edits=edits)


class KeyRegisteredOnce(Rule):
    """Register each key once in the whole checkout.

    Why: a second registration by decorator stops the import of VeOmni with "Cannot register duplicate". By assignment,
    the last import wins, and the order of a list decides which model trains.

    Fine when: never in a checkout; a separate plugin may replace VeOmni's registrations.
    """

    id = "VEO110"
    name = "registry-key-is-registered-once"
    target = "veomni"
    obligations = ("VEO-REG-01",)
    BAD = ({"__init__.py": REGISTER + '\n\nMODELING_REGISTRY["olmoe"] = register_olmoe_modeling\n'},)
    GOOD = ({"__init__.py": REGISTER},)

    def check(self, model_dir: ModelDir, registrations: list[Registration]) -> Findings:
        seen: dict[tuple[str, str], int] = {}
        for item in registrations:
            if item.key is None:
                continue
            if (item.registry, item.key) in seen:
                first = seen[item.registry, item.key]
                yield Finding(f"'{item.key}' is registered in line {first} already", item.path, item.line)
            seen.setdefault((item.registry, item.key), item.line)
        if model_dir.style == "in-tree":
            yield from _elsewhere(model_dir)


def _elsewhere(model_dir: ModelDir) -> Findings:
    """Return keys that another directory of the checkout registers, too."""
    for owner in sorted(model_dir.path.parent.iterdir()):
        theirs = registered_in(owner) if owner != model_dir.path else {}
        for key in model_dir.registered:
            if key in theirs:
                message = f"'{key}' is registered by {owner.name} too: the import order decides which one counts"
                yield Finding(message, *place_of(model_dir, key))


def _reached_from(model_dir: ModelDir, key: str) -> tuple[Path, int]:
    """Return the place of a call that is never reached; in an inner package, the file that does not import it."""
    file, line = place_of(model_dir, key)
    top = model_dir.path / "__init__.py"
    return (file, line) if file == top else (top, 1)


def _added(file: File, node: ast.ImportFrom, name: str) -> Edit:
    """Return the import statement with one more name, before the first that sorts after it."""
    later = next((alias for alias in node.names if alias.name > name), None)
    beside = later or node.names[-1]
    indent = file.text.splitlines()[beside.lineno - 1][: beside.col_offset]
    gap = f"\n{indent}" if not indent.strip() else " "
    if later is not None:
        return Edit(file.path, (later.lineno, later.col_offset), (later.lineno, later.col_offset), f"{name},{gap}")
    end = (beside.end_lineno or beside.lineno, beside.end_col_offset or 0)
    return Edit(file.path, end, end, f",{gap}{name}")


class _Aggregate(Program):
    """The aggregate alone: every package next to it counts as there, and is not looked into."""

    def __init__(self, file: Path, name: str, tree: ast.Module | None) -> None:
        super().__init__(file.parent, name, lambda path: tree if path == file else None)

    def module(self, name: str) -> Module | None:
        if not self.contains(name):
            return None
        return Module(name, self.root.joinpath(*name[len(self.name) :].split(".")[1:], "__init__.py"), True)
