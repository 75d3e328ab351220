"""Rules about a model's arguments and outputs: DFU103 and DFU126."""

import ast
from collections.abc import Iterator

from omni_checkers.diffusers.examples import LUMEN, TRANSFORMER, changed
from omni_checkers.engine.files import walked
from omni_checkers.engine.places import at
from omni_checkers.engine.rule import Findings, Rule
from omni_kit.pysource.classes import ClassRef
from omni_kit.pysource.nodes import calls, constant
from omni_kit.pysource.signatures import decorators, defaults, parameters, signature

_ASKED = "return_dict"
_LINEAR = "self.time_in = nn.Linear(1, dim)"
_ANSWER = "return (self.proj_out(hidden_states),)"
_SWITCH = "encoder_hidden_states, return_dict: bool = True)"


class ArgumentsAreNotReplaced(Rule):
    """Build parts from the config's values, not from constants.

    The rule reports an argument of a registered `__init__` that nothing reads, when a part receives a constant under
    the same name.

    Why: checkpoints with the default value work. A checkpoint with another value has weights of other shapes, or the
    model computes with the wrong number although its config.json is right.

    Fine when: the argument exists only for old configs.
    """

    id = "DFU103"
    name = "arguments-are-not-replaced"
    target = "diffusers"
    obligations = ("DIF-39",)
    BAD = (
        changed(
            TRANSFORMER,
            ("num_layers: int = 2)", "num_layers: int = 2, bias: bool = True)"),
            (_LINEAR, "self.time_in = nn.Linear(1, dim, bias=True)"),
        ),
    )
    GOOD = (
        {TRANSFORMER: LUMEN[TRANSFORMER]},
        changed(
            TRANSFORMER,
            ("num_layers: int = 2)", "num_layers: int = 2, bias: bool = True)"),
            (_LINEAR, "self.time_in = nn.Linear(1, dim, bias=bias)"),
        ),
    )

    def check(self, classes: list[ClassRef]) -> Findings:
        for cls in classes:
            init = cls.defines("__init__")
            if init is None or "register_to_config" not in decorators(init):
                continue
            read = {one.id for one in walked(init) if isinstance(one, ast.Name)}
            read |= {one.attr for one in walked(cls.node) if isinstance(one, ast.Attribute)}
            unread = set(parameters(init)) - read
            for call in calls(init) if unread else ():
                for word in call.keywords:
                    if word.arg in unread and isinstance(word.value, ast.Constant) and word.value.value is not None:
                        what = f"'{word.arg}' of the config is not read; the constant {word.value.value!r} replaces it"
                        yield at(cls.source, word.value, what)


class AnswersAsItIsAsked(Rule):
    """Return a ModelOutput by default and a tuple when `return_dict=False`.

    `return_dict` defaults to True, and the output class contains the same tensor as the tuple.

    Why: callers write `model(...).sample` or `model(...)[0]`. On a bare tensor, `[0]` returns the first sample of the
    batch without an error.

    Fine when: only the model's own pipeline calls it.
    """

    id = "DFU126"
    name = "answers-as-it-is-asked"
    target = "diffusers"
    obligations = ("DIF-26",)
    BAD = (
        changed(TRANSFORMER, (_SWITCH, _SWITCH.replace("True", "False"))),
        changed(
            TRANSFORMER,
            (_ANSWER, "output = self.proj_out(hidden_states)\n        if not return_dict:\n"
                      "            return (output,)\n        return output"),
        ),
    )  # fmt: skip
    GOOD = ({TRANSFORMER: LUMEN[TRANSFORMER]},)

    def check(self, classes: list[ClassRef]) -> Findings:
        for cls in classes:
            forward = cls.defines("forward")
            if forward is not None and _ASKED in parameters(forward):
                for node, what in (*_defaults(forward), *_bare(forward)):
                    yield at(cls.source, node, what)


def _defaults(forward: ast.FunctionDef) -> Iterator[tuple[ast.AST, str]]:
    default = defaults(signature(forward)).get(_ASKED)
    if constant(default) is False and default is not None:
        yield default, f"{_ASKED} is False by default: callers read .sample of the result"


def _bare(forward: ast.FunctionDef) -> Iterator[tuple[ast.AST, str]]:
    returned = [one for one in walked(forward) if isinstance(one, ast.Return)]
    tuples = [one.value for one in returned if isinstance(one.value, ast.Tuple) and one.value.elts]
    firsts = {ast.unparse(one.elts[0]) for one in tuples}
    for one in returned:
        if isinstance(one.value, ast.Name) and one.value.id in firsts:
            yield one, f"{one.value.id} is returned bare, and in a tuple without {_ASKED}: wrap it in an output"
