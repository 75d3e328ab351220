"""Rules about loading a checkpoint: VEO203 and VEO204."""

import ast
from collections.abc import Iterator
from pathlib import Path

from omni_checkers.engine.files import File
from omni_checkers.engine.rule import Edit, Finding, Findings, NotApplicable, Rule, Severity
from omni_checkers.symbolic import Class, Evaluator, Exhausted, Oracle, Outcome, Program, Raised, Value, explore
from omni_checkers.veomni.examples import CONVERTER, REGISTER
from omni_checkers.veomni.facts.configs import ModelRecord, nested_text_configs
from omni_checkers.veomni.facts.conversion import Factory
from omni_checkers.veomni.facts.experts import Experts
from omni_checkers.veomni.facts.generated import Generated
from omni_checkers.veomni.facts.registry import Returned
from omni_kit.upstream.kinds import WITH_EXPERTS
from omni_kit.upstream.transformers.configs import ConfigClass

_CONVERTER = """\
from veomni.models.checkpoint_tensor_loading import ConvertedCheckpointTensor


class Converter:
    def __init__(self, config):
        experts, hidden, inner = config.num_experts, config.hidden_size, config.moe_intermediate_size
        self.shapes = {"gate_up_proj": (experts, 2 * inner, hidden), "down_proj": (experts, hidden, inner)}

    def can_handle(self, name):
        return name.endswith((".experts.gate_up_proj", ".experts.down_proj"))

    def convert(self, name, tensor):
        if tuple(tensor.shape) != self.shapes[name.rpartition(".")[2]]:
            tensor = tensor.transpose(1, 2).contiguous()
        return ConvertedCheckpointTensor(name, tensor)


"""
_FACTORY = """\
def create_qwen3_vl_moe_checkpoint_tensor_converter(model):
    return Converter({})
"""
_PLAIN = """\
from veomni.models.loader import MODELING_REGISTRY


@MODELING_REGISTRY.register("olmoe")
def register_olmoe_modeling(architecture):
    from .generated.patched_modeling_olmoe_gpu import OlmoeForCausalLM, OlmoeModel

    return {"OlmoeForCausalLM": OlmoeForCausalLM, "OlmoeModel": OlmoeModel}[architecture or "OlmoeForCausalLM"]
"""


class TextConfigResolved(Rule):
    """Find the text config in every config that the converter factory can receive.

    For a nested text config the factory receives either the whole config or the text config: `getattr(model.config,
    "text_config", model.config)` supports both.

    Why: the other config raises AttributeError while the checkpoint loads.

    Fine when: the model's config has no nested text config; the rule then does not apply.
    """

    id = "VEO203"
    name = "text-config-resolved-defensively"
    severity = Severity.warning
    target = "veomni"
    kinds = WITH_EXPERTS
    obligations = ("VEO-MOE-20",)
    fixable = True
    example_of = "qwen3_vl_moe"
    BAD = (
        {"checkpoint_tensor_converter.py": _CONVERTER + _FACTORY.format("model.config.text_config")},
        {"checkpoint_tensor_converter.py": _CONVERTER + _FACTORY.format("model.config")},
    )
    GOOD = (
        {
            "checkpoint_tensor_converter.py": _CONVERTER
            + _FACTORY.format('getattr(model.config, "text_config", model.config)')
        },
    )

    def check(
        self, program: Program, factories: list[Factory], generated: list[Generated], files: dict[Path, File]
    ) -> Findings:
        by_path = {item.file.path: item for item in generated}
        seen: set[tuple[str, str]] = set()
        for factory in factories:
            value = factory.returned.value
            if not isinstance(value, Class) or value.module.path not in by_path:
                continue
            config = by_path[value.module.path].config_class(value.name)
            cases: list[tuple[ConfigClass, Severity]] = [(config, Severity.error)] if config else []
            cases += [(inner, Severity.warning) for inner in nested_text_configs(config)] if config else []
            for case, severity in cases:
                key = str(factory.callee), case.name
                if key in seen:
                    continue
                seen.add(key)
                outcome = _failure(factory, program, case)
                if outcome is not None:
                    what = value.name if severity is Severity.error else f"a model that is built from {case.name} alone"
                    message = f"the factory fails for {what}: {outcome.raised}"
                    path = outcome.module.path if outcome.module else value.module.path
                    edits = tuple(_defensive(files.get(path), outcome.line))
                    yield Finding(message, path, outcome.line or 1, severity=severity, edits=edits)


class ConverterWhereNeeded(Rule):
    """Give a model whose checkpoints store split experts a converter.

    transformers declares for each class how it merges checkpoints into stacked experts. VeOmni's loader does not run
    that recipe, so the model needs a converter that does.

    Why: the split keys are "unexpected" and the stacked parameters "missing" and randomly initialised, with only INFO
    logs. Training starts with a loss of 11 to 17 instead of 2 to 3.

    Fine when: every checkpoint of the model already has stacked experts.
    """

    id = "VEO204"
    name = "converter-where-recipe-merges-experts"
    target = "veomni"
    kinds = WITH_EXPERTS
    obligations = ("VEO-MOE-11", "VEO-MOE-13", "VEO-MOE-15")
    failure_modes = ("expert-layout-mismatch",)
    BAD = ({"__init__.py": _PLAIN},)
    GOOD = ({"__init__.py": REGISTER, "checkpoint_tensor_converter.py": CONVERTER},)

    def check(self, returned: list[Returned], factories: list[Factory], experts: Experts) -> Findings:
        if factories:
            raise NotApplicable("a converter is attached")
        looked = 0
        for item in {str(item.value): item for item in returned}.values():
            try:
                stacked = experts.of(item.value)
            except NotApplicable:
                continue
            looked += bool(stacked.parameter)
            if stacked.split:
                lies = f"its checkpoints may hold {stacked.split}"
                yield Finding(
                    f"{item.name} has stacked {stacked.parameter}, {lies}: no converter is attached", *item.place
                )
        if not looked:
            raise NotApplicable("no returned class has stacked experts")


def _defensive(file: File | None, line: int) -> Iterator[Edit]:
    """`config.text_config` on this line as a getattr that falls back to the config itself."""
    for node in file.nodes(ast.Attribute) if file is not None else ():
        if node.lineno == line and node.attr == "text_config" and file is not None:
            config = file.segment(node.value)
            yield Edit.of(file.path, node, f'getattr({config}, "text_config", {config})')


def _failure(factory: Factory, program: Program, config: ConfigClass) -> Outcome | None:
    """Return the failure of calling the factory with a model of this config, if it fails on every path."""
    failures = []
    try:
        for outcome in explore(lambda oracle: _called(factory.callee, program, oracle, config)):
            if outcome.raised is None or not outcome.raised.startswith("AttributeError"):
                return None
            failures.append(outcome)
    except (Exhausted, RecursionError):
        return None
    return failures[0] if failures else None


def _called(callee: Value, program: Program, oracle: Oracle, config: ConfigClass) -> Outcome:
    evaluator = Evaluator(program, oracle)
    try:
        return evaluator.call_function(callee, [ModelRecord(config)], {})
    except Raised as error:
        return Outcome(raised=error.text, line=error.line or 0, module=error.module)
