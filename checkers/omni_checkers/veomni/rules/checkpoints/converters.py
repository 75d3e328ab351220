"""Rules about checkpoint converters: VEO201 and VEO202."""

import ast
from collections.abc import Iterator
from pathlib import Path

from omni_checkers.engine.files import File
from omni_checkers.engine.rule import Edit, Finding, Findings, NotApplicable, Rule
from omni_checkers.symbolic import Class, Function, Program
from omni_checkers.veomni.examples import CONVERTER, REGISTER
from omni_checkers.veomni.facts.buffers import unchecked_buffers
from omni_checkers.veomni.facts.conversion import FACTORY, ConverterClass, Factory, Rehearsal
from omni_checkers.veomni.facts.experts import Experts
from omni_checkers.veomni.facts.registry import Returned
from omni_kit.upstream.kinds import WITH_EXPERTS

_STATIC = "staticmethod(create_olmoe_checkpoint_tensor_converter)"
_RAISES = """\
        if self.parts:
            raise RuntimeError(f"incomplete: {sorted(self.parts)}")
"""


class ConverterOnEveryClass(Rule):
    """Attach the checkpoint converter to every class that the registry can return, as a staticmethod.

    Why: VeOmni reads the converter from the class that it builds. A class without one leaves the stacked experts
    randomly initialised, with only INFO logs. A plain function instead of a staticmethod binds to the model and raises
    TypeError.

    Fine when: the class has no routed experts.
    """

    id = "VEO201"
    name = "converter-attached-to-every-returned-class"
    target = "veomni"
    kinds = WITH_EXPERTS
    obligations = (
        "VEO-MOE-24",
        "VEO-MOE-19",
    )
    fixable = True
    failure_modes = ("nonstrict-load",)
    BAD = (
        {"__init__.py": REGISTER.replace("in (OlmoeForCausalLM, OlmoeModel):", "in (OlmoeForCausalLM,):")},
        {"__init__.py": REGISTER.replace(_STATIC, _STATIC.removeprefix("staticmethod(").removesuffix(")"))},
    )
    GOOD = ({"__init__.py": REGISTER},)

    def check(
        self,
        returned: list[Returned],
        factories: list[Factory],
        converter_classes: list[ConverterClass],
        experts: Experts,
        files: dict[Path, File],
    ) -> Findings:
        carrying = {id(factory.returned): factory for factory in factories}
        for item in returned:
            factory = carrying.get(id(item))
            if factory is None and _needs_converter(item, experts):
                converter = converter_classes[0].node.name
                message = f"{item.name} is returned without {FACTORY}: {converter} never sees its checkpoint"
                yield Finding(message, *item.place)
            elif factory is not None and isinstance(factory.callee, Function) and not factory.static:
                attached = item.evaluator.attributes.get((item.value, FACTORY))
                path, line = (attached.module.path, attached.line) if attached else item.place
                message = f"{FACTORY} of {item.name} is a plain function: wrap it in staticmethod"
                yield Finding(message, path, line, edits=tuple(_wrapped(files.get(path), line)))


class FinalizeRaises(Rule):
    """Raise in a converter's `finalize` when collected tensors are left over.

    A condition that leads to a raise must check every attribute in which `convert` collects tensors, except those whose
    tensors `finalize` returns.

    Why: if a shard or an expert is missing, the converter drops the collected tensors, and the experts of that layer
    stay randomly initialised without an error.

    Fine when: the converter emits a tensor for every tensor that it receives.
    """

    id = "VEO202"
    name = "finalize-raises-on-incomplete-buffers"
    target = "veomni"
    kinds = WITH_EXPERTS
    obligations = ("VEO-MOE-21",)
    BAD = ({"checkpoint_tensor_converter.py": CONVERTER.replace(_RAISES, "")},)
    GOOD = ({"checkpoint_tensor_converter.py": CONVERTER},)

    def check(
        self,
        converter_classes: list[ConverterClass],
        program: Program,
        rehearsals: list[Rehearsal] | None = None,
    ) -> Findings:
        silent = dict(found for rehearsal in rehearsals or () if (found := _silent(rehearsal, program)))
        buffering = 0
        for converter in converter_classes:
            name, finalize = converter.node.name, converter.methods.get("finalize")
            left, kept = unchecked_buffers(converter)
            buffering += bool(kept)
            line = finalize.lineno if finalize is not None else converter.node.lineno
            if finalize is None and kept:
                yield Finding(f"{name} collects {_names(kept)} but has no finalize", converter.file.path, line)
            elif name in silent and silent[name] and kept:
                message = f"finalize of {name} does not raise when '{silent[name]}' is missing from the checkpoint"
                yield Finding(message, converter.file.path, line)
            elif left and name not in silent:
                message = f"finalize of {name} never raises when {_names(left)} still contains tensors"
                yield Finding(message, converter.file.path, line)
        if not buffering:
            raise NotApplicable("no converter keeps tensors between calls")


def _silent(rehearsal: Rehearsal, program: Program) -> tuple[str, str] | None:
    """(converter class, a key that may be missing unnoticed, or nothing); None if it cannot be followed.

    One expert of each source is left out in turn, then all experts of a source.
    """
    name = ""
    for case in rehearsal.cases:
        for part in case.parts:
            for lost in (part[:1], part):
                try:
                    trial = rehearsal.run(program, [pair for pair in case.disk if pair[0] not in lost])
                except NotApplicable:
                    return None
                if trial.wrong:
                    return None
                name = trial.converter
                if not trial.complaint and not trial.refused and len(case.parts) * len(part) > len(lost):
                    return name, lost[0]
    return (name, "") if name else None


def _needs_converter(item: Returned, experts: Experts) -> bool:
    """Return whether loading a returned class goes wrong without a converter.

    Assumed of a class that cannot be read.
    """
    try:
        stacked = experts.of(item.value)
    except NotApplicable:
        return isinstance(item.value, Class)
    return bool(stacked.parameter if isinstance(item.value, Class) else stacked.split)


def _wrapped(file: File | None, line: int) -> Iterator[Edit]:
    """`X.attribute = f`, or setattr(X, "attribute", f), on this line with f in a staticmethod."""
    for node in file.nodes(ast.Assign) if file is not None else ():
        if node.lineno == line and file is not None:
            yield from Edit.around(file.path, node.value, "staticmethod(", ")")
    for call in file.nodes(ast.Call) if file is not None else ():
        named = isinstance(call.func, ast.Name) and call.func.id == "setattr" and len(call.args) == 3
        if named and call.lineno == line and file is not None:
            yield from Edit.around(file.path, call.args[2], "staticmethod(", ")")


def _names(attributes: list[str]) -> str:
    return ", ".join(f"self.{name}" for name in attributes)
