"""Rules about parts that a model does not need: VEO207 and VEO208."""

import ast

from omni_checkers.engine.rule import Example, Finding, Findings, NotApplicable, Rule, Severity
from omni_checkers.symbolic import Class
from omni_checkers.veomni.facts.conversion import ConverterClass, Factory
from omni_checkers.veomni.facts.experts import Experts
from omni_checkers.veomni.facts.plan import METHOD
from omni_checkers.veomni.facts.registry import Returned
from omni_kit.layout.loading import converts_experts
from omni_kit.upstream.kinds import WITH_EXPERTS, Kind

_CONVERTER = """\
class Converter:
    def can_handle(self, name):
        return ".experts." in name

    def convert(self, name, tensor):
        return None

    def finalize(self):
        raise RuntimeError("nothing")


def create_converter(model):
    return Converter()
"""
_REGISTER = """\
from ...loader import MODELING_REGISTRY


@MODELING_REGISTRY.register("{key}")
def register_modeling(architecture):
{imports}    from .generated.patched_modeling_{key}_gpu import {name}

    if architecture not in (None, "{name}"):
        raise ValueError(f"{key} is not trained as {{architecture}}")
{attach}    return {name}
"""
_IMPORT = "    from .checkpoint_tensor_converter import create_converter\n"
_ATTACH = "    {name}._create_checkpoint_tensor_converter = staticmethod(create_converter)\n"
_FUSED = {"key": "gpt_oss", "name": "GptOssForCausalLM"}
_DENSE = {"key": "llama", "name": "LlamaForCausalLM"}


def _example(model: dict[str, str], converts: bool) -> Example:
    """Return a model that is returned with, or without, a converter."""
    imports, attach = (_IMPORT, _ATTACH.format(**model)) if converts else ("", "")
    register = _REGISTER.format(**model, imports=imports, attach=attach)
    return {"__init__.py": register} | ({"checkpoint_tensor_converter.py": _CONVERTER} if converts else {})


class ConverterIsNeeded(Rule):
    """Attach a converter only where transformers also converts, for every class that shares it.

    Why: experts that the checkpoint stores as the model does need no converter. One copied from another model drops
    keys or transforms correct tensors, and the experts are wrong or random after loading.

    Fine when: the vendor's checkpoints use another layout than transformers reads; state that in an ignore comment.
    """

    id = "VEO207"
    name = "no-converter-for-experts-that-lie-right"
    severity = Severity.warning
    target = "veomni"
    obligations = ("VEO-MOE-17", "VEO-MOE-14")
    failure_modes = ("expert-layout-mismatch",)
    example_of = "gpt_oss"
    BAD = (_example(_FUSED, converts=True),)
    GOOD = (_example(_FUSED, converts=False),)

    def check(self, returned: list[Returned], factories: list[Factory], experts: Experts) -> Findings:
        judged, idle, needed = False, dict[object, Returned](), set[object]()
        callees = {factory.returned.name: getattr(factory.callee, "node", factory.callee) for factory in factories}
        for path in {path.name: path for path in returned}.values():
            try:
                stacked = experts.of(path.value)
            except NotApplicable:
                needed.add(callees.get(path.name))
                continue
            judged = judged or bool(stacked.names)
            if stacked.names and path.name in callees and callees[path.name] not in needed:
                if stacked.model is None or converts_experts(stacked.model):
                    needed.add(callees[path.name])
                else:
                    idle.setdefault(callees[path.name], path)
        for callee, path in idle.items():
            if callee not in needed:
                message = f"transformers loads the experts of {path.name} without conversion: it needs no converter"
                yield Finding(message, *path.place)
        if not judged:
            raise NotApplicable("no returned class has stacked experts that can be read")


class NoExpertPartsWithoutExperts(Rule):
    """Remove converters and expert-parallel plans from models without experts.

    Why: they are left over from the copied model. Their imports break when that model changes, and a plan whose keys
    match nothing suggests that experts are sharded.

    Fine when: the plan shards something else, such as embeddings, and is not named "ep". The rule ignores converters
    that do not mention experts.
    """

    id = "VEO208"
    name = "no-expert-parts-without-experts"
    severity = Severity.warning
    target = "veomni"
    kinds = frozenset({Kind.llm, Kind.vlm, Kind.omni})
    obligations = ("VEO-OMNI-11", "VEO-REG-05", "VEO-REG-04")
    failure_modes = ("ep-plan-stale",)
    example_of = "llama"
    BAD = (_example(_DENSE, converts=True),)
    GOOD = (_example(_DENSE, converts=False),)

    def check(
        self,
        kinds: frozenset[Kind],
        returned: list[Returned],
        converter_classes: list[ConverterClass] | None = None,
    ) -> Findings:
        if not kinds or kinds & WITH_EXPERTS:
            raise NotApplicable("the model has experts, or its kind is unknown")
        for converter in filter(_speaks_of_experts, converter_classes or []):
            message = f"{converter.node.name} converts experts, but the model has none"
            yield Finding(message, converter.file.path, converter.node.lineno)
        for path in {path.name: path for path in returned}.values():
            if isinstance(path.value, Class) and path.attached(METHOD) is not None:
                yield Finding(f"{path.name} has a plan for experts, but the model has none", *path.place)


def _speaks_of_experts(converter: ConverterClass) -> bool:
    """Return whether a name or a text of its file does.

    One that renames, or repeats what is tied, says nothing of them.
    """
    prose = {id(node.value) for node in converter.file.nodes(ast.Expr) if isinstance(node, ast.Expr)}
    texts = (node.value for node in converter.file.nodes(ast.Constant) if id(node) not in prose)
    names = (getattr(node, "id", getattr(node, "attr", None)) for node in converter.file.nodes(ast.Name, ast.Attribute))
    return any(isinstance(text, str) and "expert" in text.lower() for text in (*texts, *names))
