"""Rules on what a pipeline loads: SGL103."""

import ast

from omni_checkers.engine.rule import Finding, Findings, NotApplicable, Rule
from omni_checkers.sglang_diffusion.facts.classes import PIPELINE, Classes
from omni_kit.targets.sglang_diffusion.pipeline_dir import PipelineDir
from omni_kit.upstream.diffusers.pipelines import Pipeline
from omni_kit.upstream.kinds import Kind

_PIPELINE = """from sglang.multimodal_gen.runtime.pipelines_core.composed_pipeline_base import ComposedPipelineBase


class ServedPipeline(ComposedPipelineBase):
    pipeline_name = "SanaPipeline"
    _required_config_modules = ["scheduler", "text_encoder", "tokenizer", "transformer", "vae"]


EntryClass = ServedPipeline
"""


class RequiredModulesAreThose(Rule):
    """The modules that a pipeline loads are those that diffusers' pipeline of its name cannot do without.

    Why: a module that is not named is not loaded, and a stage gets None in its place; one that model_index.json does
    not have ends the server when it starts.

    Fine when: the pipeline leaves a part to another server; then say so in a comment that silences the rule.
    """

    id = "SGL103"
    name = "required-modules-are-those"
    target = "sglang-diffusion"
    kinds = frozenset({Kind.pipeline})
    obligations = ("SGL-06", "SGL-39")
    BAD = (
        {"pipeline.py": _PIPELINE.replace('"tokenizer", ', "")},
        {"pipeline.py": _PIPELINE.replace('"vae"', '"vea"')},
    )
    GOOD = ({"pipeline.py": _PIPELINE},)

    def check(self, served: PipelineDir, classes: Classes, upstream: Pipeline) -> Findings:
        """See `Rule.check`."""
        found = next((one for one in classes.of(PIPELINE) if one.node.name == served.class_name), None)
        value = found.assigned("_required_config_modules") if found is not None else None
        if found is None or not isinstance(value, ast.List):
            raise NotApplicable("its required modules are no plain list")
        named = {one.value for one in value.elts if isinstance(one, ast.Constant)}
        known = {one.name: one.optional for one in upstream.components}
        path, line = found.file.path, value.lineno
        for name, optional in known.items():
            if name not in named and not optional:
                yield Finding(f"'{name}' is a part of {served.pipeline_name} and is not loaded", path, line)
        for name in sorted(map(str, named - set(known))):
            yield Finding(f"'{name}' is no part of {served.pipeline_name}: model_index.json has none", path, line)
