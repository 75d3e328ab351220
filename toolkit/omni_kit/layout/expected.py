"""The layout that a hub checkpoint will have, when none is at hand: the recipe, read backwards from the parameters."""

from dataclasses import replace
from pathlib import Path

from omni_kit.errors import BadInput
from omni_kit.layout.checkpoint import Checkpoint
from omni_kit.layout.findings import LayoutFinding
from omni_kit.layout.headers import TensorInfo
from omni_kit.layout.verdict import LayoutVerdict, judge
from omni_kit.upstream.model import Model
from omni_kit.upstream.transformers.recipes.expression import whole
from omni_kit.upstream.transformers.recipes.rope import with_heads
from omni_kit.upstream.transformers.recipes.running import to_hub


def expect(model: Model) -> LayoutVerdict:
    """Return the verdict on the checkpoint layout that the library declares for a model, marked as declared.

    Raises:
        BadInput: the recipe cannot be reversed.
    """
    verdict = judge(expected_checkpoint(model), model)
    message = f"no checkpoint given; layout as declared by {model.library.name} {model.library.version}"
    accounting = replace(verdict.accounting, proof="") if verdict.accounting is not None else None
    findings = (LayoutFinding("no-checkpoint", "info", message), *verdict.findings)
    return replace(verdict, accounting=accounting, findings=findings)


def expected_checkpoint(model: Model) -> Checkpoint:
    """Return names and shapes of the tensors that loading would turn into the model's parameters.

    Raises:
        BadInput: the recipe cannot be reversed.
    """
    skeleton, recipe = model.skeleton, with_heads(model)
    shapes = {p.name: p.shape for p in skeleton.parameters if p.certain and p.name not in skeleton.tied}
    held = {name: whole(name, [1 if size is None else size for size in shape or ()]) for name, shape in shapes.items()}
    try:
        tensors = to_hub(recipe, held, shapes)
    except BadInput as error:
        reason = f"{error.message}: the recipe of {model.class_name} cannot be reversed"
        raise BadInput(reason, "pass a checkpoint") from error
    file = Path(model.class_name)
    infos = {name: TensorInfo("", tensor.shape, file, 0, 0) for name, tensor in tensors.items()}
    return Checkpoint(file, infos, (file,))
