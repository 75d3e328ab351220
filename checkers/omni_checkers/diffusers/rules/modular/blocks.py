"""Rules about blocks of modular pipelines: DFU401 to DFU405."""

import ast

from omni_checkers.diffusers.examples import BLOCKS, LUMEN, changed
from omni_checkers.diffusers.facts.blocks import asked_for, attributes, is_leaf, named, pipeline_names, state_of, stored
from omni_checkers.engine.files import walked
from omni_checkers.engine.places import at
from omni_checkers.engine.rule import Findings, Rule, Severity
from omni_kit.pysource.classes import ClassRef
from omni_kit.pysource.nodes import calls, methods
from omni_kit.pysource.source import SourceFile, dotted
from omni_kit.upstream.diffusers.classes import is_component

_BASE = "DiffusionPipeline"
_STORED = "        block_state.timesteps = components.scheduler.timesteps\n"
_LOOPED = (
    _STORED
    + """\
        for t in block_state.timesteps:
            block_state.sigmas = components.scheduler.step(block_state.sigmas, t, block_state.sigmas)[0]
"""
)
_SIGMAS = ', InputParam("sigmas")'
_SPEC = 'return [ComponentSpec("scheduler", FlowMatchEulerDiscreteScheduler)]'
_OUTPUT = 'return [OutputParam("timesteps", type_hint=torch.Tensor)]'


class BlocksReadWhatTheyDeclare(Rule):
    """Declare in `inputs` every value that a block reads from its state and does not set.

    Why: `get_block_state` returns only declared inputs. The block raises AttributeError in every pipeline in which no
    other block declares the name.

    Fine when: code computes the inputs; the rule skips such blocks.
    """

    id = "DFU401"
    name = "blocks-read-what-they-declare"
    target = "diffusers"
    obligations = ("DIF-41",)
    BAD = (changed(BLOCKS, (_SIGMAS, "")),)
    GOOD = ({BLOCKS: LUMEN[BLOCKS]},)

    def check(self, blocks: list[ClassRef]) -> Findings:
        for cls in filter(is_leaf, blocks):
            call, inputs, own = cls.defines("__call__"), named(cls, "inputs", "InputParam"), stored(cls)
            state = state_of(call) if call is not None else ""
            if call is None or inputs is None or own is None or not state:
                continue
            for node in attributes(call, state):
                if isinstance(node.ctx, ast.Load) and node.attr not in inputs | own and not node.attr.startswith("__"):
                    yield at(cls.source, node, f"{cls.node.name} reads '{node.attr}', which is not in its inputs")


class BlocksMakeWhatTheyDeclare(Rule):
    """Set every declared intermediate output, or declare it as an input.

    Why: `set_block_state` raises for a missing output, but only when the block runs.

    Fine when: another block of the same loop sets it.
    """

    id = "DFU402"
    name = "blocks-make-what-they-declare"
    target = "diffusers"
    obligations = ("DIF-41",)
    BAD = (changed(BLOCKS, (_OUTPUT, 'return [OutputParam("timesteps"), OutputParam("num_timesteps")]')),)
    GOOD = ({BLOCKS: LUMEN[BLOCKS]},)

    def check(self, blocks: list[ClassRef]) -> Findings:
        for cls in filter(is_leaf, blocks):
            outputs, inputs = named(cls, "intermediate_outputs", "OutputParam"), named(cls, "inputs", "InputParam")
            own, call = stored(cls), cls.defines("__call__")
            if outputs is None or inputs is None or own is None or call is None or not state_of(call):
                continue
            for name in sorted(outputs - own - inputs):
                yield at(cls.source, cls.node, f"{cls.node.name} declares the output '{name}' and never sets it")


class BlocksNeedWhatTheyDeclare(Rule):
    """List every component that a block uses in `expected_components`.

    Why: `init_pipeline` loads only expected components. A component that no block lists is missing, and the first
    request raises AttributeError.

    Fine when: the annotated pipeline class has it as a property, or the block checks with `hasattr`.
    """

    id = "DFU403"
    name = "blocks-need-what-they-declare"
    target = "diffusers"
    obligations = ("DIF-41", "DIF-44")
    BAD = (changed(BLOCKS, (_SPEC, "return []")),)
    GOOD = ({BLOCKS: LUMEN[BLOCKS]},)

    def check(self, blocks: list[ClassRef], classes: list[ClassRef]) -> Findings:
        for cls in filter(is_leaf, blocks):
            call = cls.defines("__call__")
            expected = named(cls, "expected_components", "ComponentSpec")
            configs = named(cls, "expected_configs", "ConfigSpec")
            if call is None or expected is None or configs is None or len(call.args.args) < 2:
                continue
            holder = call.args.args[1]
            known, asked = pipeline_names(cls, call, holder, classes), asked_for(call, holder.arg)
            for node in attributes(call, holder.arg) if known is not None else ():
                there = (known or set()) | expected | configs | asked
                if node.attr not in there and not node.attr.startswith("_"):
                    yield at(cls.source, node, f"{cls.node.name} uses '{node.attr}', which it does not expect")


class BlocksStandAlone(Rule):
    """Copy code from standard pipelines into blocks instead of importing it.

    Why: a change of the standard pipeline silently changes the modular one, and the import loads an unneeded pipeline.

    Fine when: both share it on purpose: a mixin, or the class of a component.
    """

    id = "DFU404"
    name = "blocks-stand-alone"
    target = "diffusers"
    obligations = ("DIF-44",)
    BAD = (
        changed(
            BLOCKS,
            ("import torch\n", "import torch\nfrom diffusers.pipelines.flux.pipeline_flux import calculate_shift\n"),
        ),
    )
    GOOD = ({BLOCKS: LUMEN[BLOCKS]},)

    def check(self, blocks: list[ClassRef], sources: list[SourceFile]) -> Findings:
        holders = {cls.source.path for cls in blocks}
        for source in sources:
            if source.path not in holders:
                continue
            for node in source.tree.body:
                if isinstance(node, ast.ImportFrom):
                    for alias in node.names:
                        imported = source.imports.get(alias.asname or alias.name)
                        taken = imported is not None and imported.module.startswith("diffusers.pipelines")
                        if taken and not _shared(source, alias.asname or alias.name):
                            yield at(source, node, f"'{alias.name}' is imported from a standard pipeline: copy it")


class LoopsAreLoopBlocks(Rule):
    """Write a loop over scheduler steps as LoopSequentialPipelineBlocks of separate blocks.

    Why: users replace one block of the loop to change guidance or the step. With a single block they have to rewrite
    the whole loop.

    Fine when: an iteration cannot be split because it ends early or assigns the loop's counter, or the block is itself
    part of a loop.
    """

    id = "DFU405"
    name = "loops-are-loop-blocks"
    target = "diffusers"
    severity = Severity.warning
    obligations = ("DIF-41", "DIF-44")
    BAD = (changed(BLOCKS, (_STORED, _LOOPED)),)
    GOOD = ({BLOCKS: LUMEN[BLOCKS]},)

    def check(self, blocks: list[ClassRef]) -> Findings:
        for cls in filter(is_leaf, blocks):
            call = cls.defines("__call__")
            if call is None or not state_of(call):
                continue
            loops = (node for one in methods(cls.node) for node in walked(one) if isinstance(node, ast.For))
            loop = min((node for node in loops if _steps(node)), key=lambda node: node.lineno, default=None)
            if loop is not None and not _indivisible(loop):
                yield at(cls.source, loop, f"{cls.node.name} runs the loop over steps in one block: split it")


def _steps(loop: ast.For) -> bool:
    return any((dotted(call.func) or "").endswith(".scheduler.step") for call in calls(loop, "step"))


def _indivisible(loop: ast.For) -> bool:
    """Return whether a round of a loop ends in its middle, or assigns what the loop counts by."""
    counted = {node.id for node in ast.walk(loop.target) if isinstance(node, ast.Name)}
    inner = [node for one in loop.body for node in walked(one)]
    stored = {node.id for node in inner if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    begins = 1 if _leaves(loop.body[0]) else 0
    return bool(counted & stored) or any(_leaves(one) for one in loop.body[begins:])


def _leaves(node: ast.stmt) -> bool:
    if isinstance(node, ast.Continue | ast.Break | ast.Return):
        return True
    inner = [] if isinstance(node, ast.For | ast.While | ast.FunctionDef) else ast.iter_child_nodes(node)
    return any(_leaves(one) for one in inner if isinstance(one, ast.stmt))


def _shared(source: SourceFile, name: str) -> bool:
    """Return whether a class is a component's, or no pipeline and is next to the base of all pipelines."""
    found = source.resolve_class(name)
    if found is None:
        return False
    beside = "DiffusionPipeline" in found[0].classes and not ClassRef(*found).derives("DiffusionPipeline")
    return beside or is_component(ClassRef(*found))
