"""Rules about the output of converters: VEO205 and VEO206."""

import re
from collections.abc import Iterator
from pathlib import Path

from omni_checkers.engine.rule import Finding, Findings, NotApplicable, Rule
from omni_checkers.symbolic import Call, Class, Function, Program
from omni_checkers.veomni.examples import CONVERTER, REGISTER
from omni_checkers.veomni.facts.conversion import Factory, Rehearsal
from omni_checkers.veomni.facts.experts import Experts
from omni_checkers.veomni.facts.trial import Case, Trial
from omni_kit.plurals import counted
from omni_kit.pysource.signatures import decorators
from omni_kit.upstream.kinds import WITH_EXPERTS

_INDEX = "_convert_fqn_to_index_mapping"


class IndexMappingBesideConverter(Rule):
    """Define `_convert_fqn_to_index_mapping` as a staticmethod on classes whose converter merges keys.

    Why: the export writes the keys that the original checkpoint's index names. Without the mapping the index names the
    split keys, which no parameter has, and the exported model lacks the stacked experts.

    Fine when: nobody exports the model to the hub's layout.
    """

    id = "VEO205"
    name = "index-mapping-beside-merging-converter"
    target = "veomni"
    kinds = WITH_EXPERTS
    obligations = ("VEO-MOE-24",)
    BAD = ({"__init__.py": re.sub(rf".*{_INDEX}.*\n", "", REGISTER)},)
    GOOD = ({"__init__.py": REGISTER},)

    def check(self, factories: list[Factory], experts: Experts) -> Findings:
        judged = 0
        for factory in factories:
            item = factory.returned
            if not isinstance(item.value, Class) or not _merges(factory, experts):
                continue
            judged += 1
            value = item.attached(_INDEX)
            if value is None:
                message = f"{item.name} has a converter that merges keys but no {_INDEX}: its experts are not exported"
                yield Finding(message, *item.place)
            elif isinstance(value, Function) and "staticmethod" not in decorators(value.node):
                yield Finding(f"{_INDEX} of {item.name} is a plain function: wrap it in staticmethod", *item.place)
        if not judged:
            raise NotApplicable("no attached converter merges keys")


class ConverterMakesWhatRecipeMakes(Rule):
    """Convert a checkpoint exactly as transformers does, element by element.

    The rule runs the converter symbolically on small labelled tensors: under the keys of transformers' recipe, in a
    shuffled order, and then on a checkpoint that is already stacked.

    Why: keys that the converter skips leave experts randomly initialised. A wrong order of gate and up, of experts, or
    of dimensions loads without an error and computes something else.

    Fine when: the checkpoints differ from the recipe on purpose; state that in an ignore comment.
    """

    id = "VEO206"
    name = "converter-makes-what-recipe-makes"
    target = "veomni"
    kinds = WITH_EXPERTS
    obligations = ("VEO-MOE-18", "VEO-MOE-12", "VEO-MOE-13", "VEO-MOE-15", "VEO-MOE-16", "VEO-MOE-22", "VEO-MOE-23")
    failure_modes = ("expert-layout-mismatch",)
    BAD = ({"checkpoint_tensor_converter.py": CONVERTER.replace('("gate", "up")', '("up", "gate")')},)
    GOOD = ({"checkpoint_tensor_converter.py": CONVERTER},)

    def check(self, program: Program, rehearsals: list[Rehearsal]) -> Findings:
        reasons, judged, said = [], 0, set()
        for rehearsal in rehearsals:
            if str(rehearsal.factory.callee) in said:
                continue
            try:
                found = list(_complaints(rehearsal, program))
            except NotApplicable as why:
                reasons.append(str(why))
                continue
            judged += 1
            path, line = _converter_place(rehearsal)
            for message in found:
                said.add(str(rehearsal.factory.callee))
                yield Finding(message, path, line)
        if not judged:
            raise NotApplicable(reasons[0])


def _complaints(rehearsal: Rehearsal, program: Program) -> Iterator[str]:
    """Yield the faults of the tensors that a converter makes."""
    trial = rehearsal.run(program, [pair for case in rehearsal.cases for pair in case.disk])
    if trial.refused:
        keys, first = counted(trial.refused, "key"), trial.refused[0]
        yield f"{rehearsal.name}: the converter does not take {keys} of a checkpoint, such as '{first}'"
        return
    if trial.wrong:
        yield f"{rehearsal.name}: {trial.wrong}"
        return
    for case in rehearsal.cases:
        if wrong := _wrong(case, trial):
            yield f"{rehearsal.name}: {wrong}"
    wanted = {case.parameter for case in rehearsal.cases}
    for name in dict.fromkeys(str(name) for name, _ in trial.emitted):
        if name not in wanted:
            yield f"{rehearsal.name}: the converter returns '{name}', which is not a parameter of the experts"
    if trial.complaint:
        yield f"{rehearsal.name}: finalize raises after a complete checkpoint: {trial.complaint}"
    again = rehearsal.run(program, [(case.parameter, case.ready) for case in rehearsal.cases])
    for case in rehearsal.cases if not again.wrong else ():
        if case.parameter not in again.refused and dict(again.emitted).get(case.parameter) != case.ready:
            yield f"{rehearsal.name}: {case.parameter} that is stacked already changes"


def _wrong(case: Case, trial: Trial) -> str:
    made = [tensor for name, tensor in trial.emitted if name == case.parameter]
    if len(made) != 1:
        return f"the converter returns {case.parameter} {len(made)} times for a complete checkpoint"
    if made[0].shape != case.wanted.shape:
        return (
            f"{case.parameter} has the shape {list(made[0].shape)} where transformers makes {list(case.wanted.shape)}"
        )
    if made[0] != case.wanted:
        places = sum(one != two for one, two in zip(made[0].data, case.wanted.data, strict=True))
        first = next(two for one, two in zip(made[0].data, case.wanted.data, strict=True) if one != two)
        return f"{case.parameter} differs from transformers' in {places} of {len(made[0].data)} elements, first {first}"
    return ""


def _merges(factory: Factory, experts: Experts) -> bool:
    try:
        return bool(experts.of(factory.returned.value).split)
    except NotApplicable:
        return False


def _converter_place(rehearsal: Rehearsal) -> tuple[Path, int]:
    """Return the factory, or the class that is its own factory."""
    callee = rehearsal.factory.callee
    while isinstance(callee, Call) and callee.args:
        callee = callee.args[0]
    node = getattr(callee, "node", None)
    if isinstance(callee, (Function, Class)) and node is not None:
        return callee.path if isinstance(callee, Function) else callee.module.path, node.lineno
    return rehearsal.factory.returned.place
