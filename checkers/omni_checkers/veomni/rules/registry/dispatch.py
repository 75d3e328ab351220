"""Rules about the return value of a register function: VEO104, VEO105, VEO107."""

from collections.abc import Iterator

from omni_checkers.engine.rule import Finding, Findings, NotApplicable, Rule, Severity
from omni_checkers.symbolic import Class, Function, Opaque, Program
from omni_checkers.veomni.examples import REGISTER
from omni_checkers.veomni.facts.generated import Generated, architectures
from omni_checkers.veomni.facts.registry import MODELING, Registration, dispatch, imported_modules

_GENERIC_FIRST = (
    REGISTER.rpartition("    return ")[0]
    + """\
    if "Olmoe" in architecture:
        return OlmoeForCausalLM
    return OlmoeModel
"""
)


class ArchitectureIsReturned(Rule):
    """Return the class of each architecture that a checkpoint may name, or raise.

    The rule evaluates the register function symbolically, with every model class that the generated file exports for
    its config, and with every class that it returns.

    Why: VeOmni passes `architectures[0]` of config.json on unchanged. Another class loads the checkpoint into a model
    with another head: it drops the checkpoint's head and initialises its own at random, with only INFO logs.

    Fine when: nobody trains that head; then raise an error that names the architecture.
    """

    id = "VEO104"
    name = "register-function-returns-named-architecture"
    target = "veomni"
    obligations = ("VEO-REG-02", "VEO-REG-11", "VEO-REG-16")
    BAD = ({"__init__.py": _GENERIC_FIRST},)
    GOOD = ({"__init__.py": REGISTER},)

    def check(self, program: Program, registrations: list[Registration], generated: list[Generated]) -> Findings:
        judged = 0
        for registration in _modeling(registrations):
            for name in sorted(architectures(generated, registration.key) | _returnable(program, registration)):
                judged += 1
                for path in {str(path.value): path for path in dispatch(program, registration, name)}.values():
                    if path.outcome.raised is None and isinstance(path.value, Class) and path.name != name:
                        yield Finding(f"a checkpoint of {name} is loaded as {path.name}", *path.place)
                        break
        if not judged:
            raise NotApplicable("no generated file exports a model class for a registered config")


def _returnable(program: Program, registration: Registration) -> set[str]:
    """Return the classes of the directory that a register function gives for some architecture."""
    if not isinstance(registration.function, Function):
        return set()
    paths = dispatch(program, registration, Opaque("<architecture>"))
    return {path.name for path in paths if path.outcome.raised is None and isinstance(path.value, Class)}


class NoArchitectureIsAccepted(Rule):
    """Accept a config without architectures in the register function.

    Why: hand-written configs and configs saved from an object lack `architectures`. The function then receives None,
    and a substring test raises "argument of type 'NoneType' is not iterable".

    Fine when: every config comes from a published checkpoint.
    """

    id = "VEO105"
    name = "register-function-accepts-no-architecture"
    severity = Severity.warning
    target = "veomni"
    obligations = ("VEO-REG-02",)
    BAD = ({"__init__.py": _GENERIC_FIRST},)
    GOOD = ({"__init__.py": REGISTER},)

    def check(self, program: Program, registrations: list[Registration]) -> Findings:
        for registration in _modeling(registrations):
            for path in dispatch(program, registration, None):
                raised = path.outcome.raised or ""
                if raised.startswith(("TypeError", "AttributeError", "KeyError")):
                    message = f"without an architecture, the function of '{registration.key}' raises {raised}"
                    yield Finding(message, *path.place)
                    break


class ModelingIsImportedLate(Rule):
    """Do not import the generated modeling file when the package is imported.

    Why: `import veomni` imports every package. Eager imports of modeling code slow down every start, and choose the
    device's file before the device is known.

    Fine when: the package is a plugin for one model on one kind of device.
    """

    id = "VEO107"
    name = "generated-modeling-imported-inside-register-function"
    severity = Severity.info
    target = "veomni"
    obligations = ("VEO-REG-06",)
    BAD = ({"__init__.py": "from .generated import patched_modeling_olmoe_gpu\n" + REGISTER},)
    GOOD = ({"__init__.py": REGISTER},)

    def check(self, program: Program, generated: list[Generated]) -> Findings:
        modules = {item.source.module: item for item in generated}
        for name, line in imported_modules(program).items():
            if name in modules:
                message = f"{modules[name].file.path.name} is imported together with the package"
                yield Finding(message, program.root / "__init__.py", line)


def _modeling(registrations: list[Registration]) -> Iterator[Registration]:
    """Registrations of functions that can be followed."""
    found = [item for item in registrations if item.registry == MODELING and isinstance(item.function, Function)]
    if not found:
        raise NotApplicable("no register function can be followed")
    yield from found
