"""Calls of the model in a loop: those of one place, with the guidance that combines two outputs."""

import ast
import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from omni_kit.pysource.eval import Unsupported
from omni_kit.pysource.signatures import passed
from omni_kit.upstream.repositories.sampler_step.batches import is_real, of_one, once
from omni_kit.upstream.repositories.sampler_step.flow import DenoiserCall, binds, parallel, reads
from omni_kit.upstream.repositories.sampler_step.update_rule import Formula, Replaced, Share

_ANSWER = "model_output"
_SAME = frozenset({"to", "float", "double", "type_as", "contiguous"})


@dataclass
class Asks:
    """Finds them.

    Attributes:
        model, scale: what the loop's function calls its model, and the scale of guidance; empty if it has none.
        order: the arguments of the model, as it is called without names.
        latents, time: those that hold latents and the step.
        repeated: variables that stand for something at the place that was come to, and what.
        found: all, by number.
    """

    model: str
    scale: str
    order: Sequence[str]
    latents: str
    time: str
    repeated: Mapping[str, ast.expr]
    found: list[DenoiserCall] = field(default_factory=list)

    def marked(self, body: Sequence[ast.stmt]) -> list[ast.stmt]:
        """Return a block with one statement for each place at which the model is asked.

        Raises:
            Unsupported: what becomes of the answers is not the usual guidance.
        """
        told: list[ast.stmt] = []
        rest = list(body)
        while rest:
            node = rest.pop(0)
            if isinstance(node, ast.If):
                known = self.repeated
                told.append(ast.If(node.test, self.marked(node.body), self._other(known, node.orelse)))
                self.repeated = {name: one for name, one in known.items() if name not in binds(node)}
            elif calls := list(self._calls(node)):
                told += self._asked(node, calls, rest)
            else:
                told.append(node)
                self._remember(node)
        return told

    def _other(self, known: Mapping[str, ast.expr], body: Sequence[ast.stmt]) -> list[ast.stmt]:
        self.repeated = known
        return self.marked(body)

    def _remember(self, node: ast.stmt) -> None:
        self.repeated = {name: one for name, one in self.repeated.items() if name not in binds(node)}
        target = node.targets[0] if isinstance(node, ast.Assign) else None
        if isinstance(node, ast.Assign) and isinstance(target, ast.Name) and target.id not in reads(node.value):
            self.repeated |= {target.id: node.value}

    def _calls(self, node: ast.AST) -> Iterator[ast.Call]:
        for one in ast.walk(node):
            if isinstance(one, ast.Call) and _owner(one.func) == self.model and len(one.args) + len(one.keywords) > 1:
                yield one

    def _given(self, call: ast.Call) -> Mapping[str, ast.expr]:
        return passed(call, self.order)

    def _asked(self, node: ast.stmt, calls: list[ast.Call], rest: list[ast.stmt]) -> list[ast.stmt]:
        """Return the statements that the calls of one place become; those that follow are taken from `rest`."""
        given = self._given(calls[0])
        if self.latents not in given or self.time not in given:
            raise Unsupported(f"calls its model without {self.latents} or {self.time} in line {node.lineno}")
        sample, twice = once(given[self.latents])
        place = DenoiserCall()
        place.number, place.sample, place.answer = len(self.found), sample, _ANSWER
        place.time = of_one(once(given[self.time])[0], self.repeated) or ast.Constant(1.0)
        place.real = is_real(given[self.time], self.repeated)
        self.found.append(place)
        answers: list[str] = []
        block, after = [self._named(node, answers, twice)], [*rest]
        while self._again(after, sample):
            block.append(self._named(after.pop(0), answers, twice))
        rest[:] = after
        return [place, *self._guided(place, [one for one in block if one is not None], answers, rest)]

    def _again(self, rest: Sequence[ast.stmt], sample: ast.expr) -> bool:
        """Return whether the next statement asks with the same latents."""
        found = list(self._calls(rest[0])) if rest and not isinstance(rest[0], ast.If) else []
        return bool(found) and ast.dump(once(self._given(found[0])[self.latents])[0]) == ast.dump(sample)

    def _named(self, node: ast.stmt, answers: list[str], twice: bool) -> ast.stmt | None:
        """Return a statement in which each answer has a name; None if giving it one is all that it does."""
        count = 2 if twice else 1
        targets = node.targets[0] if isinstance(node, ast.Assign) else None
        value = _bare(node.value) if isinstance(node, ast.Assign) else None
        if twice and isinstance(targets, ast.Tuple) and len(targets.elts) == count and _is_halved(value):
            answers += [one.id for one in targets.elts if isinstance(one, ast.Name)]
            return None
        if isinstance(targets, ast.Name) and any(value is one for one in self._calls(node)):
            answers.append(targets.id)
            return None
        return self._hoisted(node, answers)

    def _hoisted(self, node: ast.stmt, answers: list[str]) -> ast.stmt:
        names = {}
        for place, call in enumerate(self._calls(node)):
            whole = next(one for one in ast.walk(node) if isinstance(one, ast.expr) and _bare(one) is call)
            names[id(whole)] = f"{_ANSWER}_{len(answers) + place}"
        answers += names.values()
        return Replaced(names).visit(node)  # type: ignore[no-any-return]

    def _guided(
        self, place: DenoiserCall, block: list[ast.stmt], answers: list[str], rest: list[ast.stmt]
    ) -> list[ast.stmt]:
        if len(answers) == 1 and not _is_split(rest, answers[0]):
            place.answer = answers[0]
            return block
        forms: dict[str, Any] = {}
        if len(answers) == 1:  # both in one, which a statement divides
            divided = next(one for one in rest if answers[0] in reads(one))
            rest.remove(divided)
            answers = [one.id for one in divided.targets[0].elts]  # type: ignore[attr-defined]
        forms |= {answers[0]: Share(1.0, 0.0), answers[1]: Share(0.0, 1.0)}
        return self._combined(place, forms, block, rest)

    def _combined(
        self, place: DenoiserCall, forms: dict[str, Any], block: list[ast.stmt], rest: list[ast.stmt]
    ) -> list[ast.stmt]:
        """Find the statement that combines two outputs."""
        formula, done = Formula(self.scale, forms), []
        while block or rest:
            node = (block or rest).pop(0)
            value = getattr(node, "value", None)
            if value is None or not reads(node) & forms.keys():
                done.append(node)
                continue
            several = {target.id: formula.of(one) for target, one in parallel(node)}
            if several and None not in several.values():
                forms |= several
                continue
            form = formula.of(value)
            if form is not None and isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                if formula.is_guidance(form):
                    place.answer = node.targets[0].id
                    return [*done, *block]
                forms[node.targets[0].id] = form
                continue
            changed = formula.replaced(copy.deepcopy(node), place.answer)
            if reads(changed) & forms.keys():
                raise Unsupported(f"guides differently from one + scale * (other - one): {ast.unparse(node)}")
            return [*done, changed, *block]
        raise Unsupported("does not combine its model's two outputs")


def _owner(node: ast.expr) -> str:
    """Return the name of the callee: a variable, or the owner of `forward`."""
    if isinstance(node, ast.Attribute) and node.attr == "forward":
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _bare(node: ast.expr) -> ast.expr:
    """A call without what only takes its answer out, or gives it another type."""
    while True:
        if (
            isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and _is_whole(node.slice.value)
        ) or (isinstance(node, ast.Attribute) and node.attr == "sample"):
            node = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _SAME:
            node = node.func.value
        else:
            return node


def _is_whole(key: object) -> bool:
    """Return whether an entry of what a model returns is its prediction: the first of a tuple, or one of a mapping."""
    return key == 0 or isinstance(key, str)


def _is_halved(node: ast.expr | None) -> bool:
    name = node.func.attr if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else ""
    return name == "chunk"


def _is_split(rest: Sequence[ast.stmt], name: str) -> bool:
    first = next((one for one in rest if name in reads(one)), None)
    return isinstance(first, ast.Assign) and isinstance(first.targets[0], ast.Tuple) and _is_halved(first.value)


def bound_once(body: Sequence[ast.stmt]) -> dict[str, ast.expr]:
    """Return variables that a block assigns once, itself, and what."""
    found: dict[str, list[ast.expr]] = {}
    for node in body:
        for name in binds(node):
            plain = isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
            found.setdefault(name, []).extend([node.value] if plain else [ast.Constant(None)] * 2)  # type: ignore[attr-defined]
    return {name: values[0] for name, values in found.items() if len(values) == 1}
