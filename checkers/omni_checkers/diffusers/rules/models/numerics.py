"""Rules about numbers, devices and imports: DFU131 to DFU134."""

import ast
from collections.abc import Iterator

from omni_checkers.diffusers.examples import LUMEN, PIPELINE, TRANSFORMER, changed
from omni_checkers.diffusers.facts.imports import foreign_imports
from omni_checkers.diffusers.facts.processors import processors_of
from omni_checkers.engine.files import walked
from omni_checkers.engine.places import at
from omni_checkers.engine.rule import Finding, Findings, Rule
from omni_kit.pysource.classes import ClassRef
from omni_kit.pysource.library import Library
from omni_kit.pysource.nodes import last_name, methods
from omni_kit.pysource.signatures import defaults, signature
from omni_kit.pysource.source import SourceFile

_LOW = frozenset({"torch.bfloat16", "torch.float16", "torch.half"})
_LOW_METHODS = frozenset({"bfloat16", "half"})
_DOUBLE = frozenset({"torch.float64", "torch.double"})
_Comprehension = ast.DictComp | ast.ListComp | ast.SetComp | ast.GeneratorExp
_COS = "torch.outer(ids.float(), "


class DtypesComeFromInputs(Rule):
    """Cast only to the dtype of an input or of the model, or to float32.

    The rule reports bfloat16 and float16 in casts and constructors, and float64 without a check of the device. It
    ignores comparisons with a dtype.

    Why: with another precision than the author's, matrix products raise or lose precision silently. MPS and NPU do not
    support float64.

    Fine when: the numbers stay on the CPU, as precomputed position tables do.
    """

    id = "DFU131"
    name = "dtypes-come-from-inputs"
    target = "diffusers"
    obligations = ("DIF-40",)
    failure_modes = ("diffusers-capability-flags",)
    BAD = (
        changed(TRANSFORMER, ("self.norm(hidden_states), rot", "self.norm(hidden_states).to(torch.bfloat16), rot")),
        changed(TRANSFORMER, (_COS, "torch.outer(ids.to(torch.float64), ")),
    )  # fmt: skip
    GOOD = ({TRANSFORMER: LUMEN[TRANSFORMER]},)

    def check(self, classes: list[ClassRef], sources: list[SourceFile]) -> Findings:
        for source, function in _running(classes, sources):
            chosen = _chosen(function)
            for node in walked(function):
                name = source.origin(node) if isinstance(node, ast.Attribute) else ""
                if name in _LOW and id(node) not in chosen and function.name != "__init__":
                    yield at(source, node, f"{name} is hard-coded: take the dtype of the input or of the model")
                elif name in _DOUBLE and id(node) not in chosen:
                    yield at(source, node, f"{name} on every device: some do not support it")
                elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and id(node) not in chosen:
                    if node.func.attr in _LOW_METHODS:
                        yield at(source, node, f".{node.func.attr}() casts to a hard-coded dtype")
                    elif node.func.attr == "double":
                        yield at(source, node, ".double() on every device: some do not support float64")


def _running(classes: list[ClassRef], sources: list[SourceFile]) -> Iterator[tuple[SourceFile, ast.FunctionDef]]:
    """Yield the functions that run in a model: methods of modules and processors, and functions next to them."""
    holders = {cls.source.path for cls in classes if cls.derives("Module")}
    named = {one.node for cls in classes for one in processors_of(cls)}
    for cls in classes:
        if cls.derives("Module") or cls.node in named:
            for function in methods(cls.node):
                yield cls.source, function
    for source in sources:
        if source.path in holders:
            used = {
                last_name(node.func)
                for cls in classes
                if cls.source is source and cls.derives("Module")
                for node in walked(cls.node)
                if isinstance(node, ast.Call)
            }
            yield from ((source, function) for name, function in source.functions.items() if name in used)


def _chosen(function: ast.FunctionDef) -> set[int]:
    """Return nodes inside comparisons, and under conditions that say which of two dtypes it is; and defaults."""
    found: set[int] = set()
    for node in walked(function):
        if isinstance(node, (ast.Compare, ast.IfExp)):
            found |= {id(inner) for inner in walked(node)}
        elif isinstance(node, ast.If):
            found |= {id(inner) for item in [*node.body, *node.orelse] for inner in walked(item)}
    return found | {id(inner) for default in defaults(signature(function)).values() for inner in walked(default)}


class DevicesComeFromInputs(Rule):
    """Take the device from inputs or from the pipeline's components, not from a literal.

    Why: a literal "cuda" fails on every other device, and on a second GPU it puts tensors and model on different
    devices.

    Fine when: a kernel exists only for this device and a condition checks for the device first.
    """

    id = "DFU132"
    name = "devices-come-from-inputs"
    target = "diffusers"
    obligations = ("DIF-40",)
    failure_modes = ("diffusers-capability-flags",)
    BAD = (
        changed(TRANSFORMER, ("device=ids.device", 'device="cuda"')),
        changed(PIPELINE, ("device = self._execution_device", 'device = torch.device("cuda:0")')),
    )
    GOOD = ({TRANSFORMER: LUMEN[TRANSFORMER], PIPELINE: LUMEN[PIPELINE]},)

    def check(self, sources: list[SourceFile]) -> Findings:
        for source in sources:
            if "cuda" not in source.text:
                continue
            functions = (node for node in walked(source.tree) if isinstance(node, ast.FunctionDef))
            for node in {id(item): item for function in functions for item in _accelerators(source, function)}.values():
                yield at(source, node, "the accelerator is hard-coded: take the device of the input or of the pipeline")


def _accelerators(source: SourceFile, function: ast.FunctionDef) -> Iterator[ast.AST]:
    for node in walked(function):
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute) and node.func.attr == "cuda" and not _library(source, node.func):
                yield node
            autocast = last_name(node.func) == "autocast"
            for given in [*node.args, *(word.value for word in node.keywords)]:
                moves = source.origin(node.func) == "torch.device" or last_name(node.func) in ("to", "Generator")
                if _cuda(given) and (moves or autocast) and not (autocast and _off(node)):
                    yield given
            yield from (word.value for word in node.keywords if word.arg == "device" and _cuda(word.value))
        elif isinstance(node, (ast.Assign, ast.AnnAssign)) and _cuda(node.value) and node.value is not None:
            yield node.value
    yield from filter(_cuda, defaults(signature(function)).values())


def _library(source: SourceFile, node: ast.Attribute) -> bool:
    return source.origin(node).startswith("torch.")


def _off(call: ast.Call) -> bool:
    """`autocast("cuda", enabled=False)`: nothing is moved or cast."""
    return any(word.arg == "enabled" and getattr(word.value, "value", True) is False for word in call.keywords)


def _cuda(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.partition(":")[0] == "cuda"


class ForeignImportsAreGuarded(Rule):
    """Import packages that diffusers does not require under a condition, or where they are used.

    Why: `import diffusers` is lazy, so the ModuleNotFoundError appears only when someone uses the class, and the tests
    of a plain installation fail. `reshape`, `permute` and `unflatten` replace einops.

    Fine when: your own package declares the dependency.
    """

    id = "DFU133"
    name = "foreign-imports-are-guarded"
    target = "diffusers"
    obligations = ("DIF-36",)
    failure_modes = ("diffusers-capability-flags",)
    BAD = (changed(TRANSFORMER, ("import torch\n", "import torch\nfrom einops import rearrange\n")),)
    GOOD = ({TRANSFORMER: LUMEN[TRANSFORMER], PIPELINE: LUMEN[PIPELINE]},)

    def check(self, sources: list[SourceFile], library: Library) -> Findings:
        for source in sources:
            for node, name in foreign_imports(source, library):
                yield at(source, node, f"{name} is imported unconditionally, but diffusers does not require it")


class LocalsAreReadOutside(Rule):
    """Do not call `locals()` in a comprehension or a generator.

    Why: before Python 3.12 a comprehension has its own scope. `locals()` then contains only the loop variable, and a
    callback that requests `latents` raises a KeyError.

    Fine when: you need the comprehension's own variables.
    """

    id = "DFU134"
    name = "locals-are-read-outside"
    target = "diffusers"
    BAD = (
        changed(
            PIPELINE,
            ("given = {}\n                    for name in callback_on_step_end_tensor_inputs:\n"
             "                        given[name] = locals()[name]",
             "given = {name: locals()[name] for name in callback_on_step_end_tensor_inputs}"),
        ),
    )  # fmt: skip
    GOOD = ({PIPELINE: LUMEN[PIPELINE]},)

    def check(self, sources: list[SourceFile]) -> Findings:
        for source in sources:
            if "locals()" not in source.text:
                continue
            for node in walked(source.tree):
                if isinstance(node, _Comprehension):
                    yield from _inside(source, node)


def _inside(
    source: SourceFile, node: ast.DictComp | ast.ListComp | ast.SetComp | ast.GeneratorExp
) -> Iterator[Finding]:
    outer = {id(item) for item in walked(node.generators[0].iter)}  # that is computed outside
    for item in walked(node):
        if id(item) not in outer and isinstance(item, ast.Call) and getattr(item.func, "id", "") == "locals":
            yield at(source, item, "before Python 3.12, locals() in a comprehension contains only its own variable")
