"""The toy that a class of the authors' takes, found by running it."""

import json
import tempfile
from pathlib import Path
from typing import Any

from omni_kit.targets.references.repositories import RepositoryBuilder
from omni_kit.toys.batches.denoiser import DenoiserBatchBuilder
from omni_kit.toys.batches.denoiser.arguments import TARGET, answered, as_arguments, tensors_in
from omni_kit.toys.batches.denoiser.described import described
from omni_kit.toys.batches.denoiser.inputs import needed_arguments
from omni_kit.toys.batches.denoiser.samples import samples_of
from omni_kit.toys.batches.denoiser.sizes import ARGUMENTS
from omni_kit.toys.size import of_toy_size

_FIRST = "0."
_LONGEST = 60.0  # seconds of the processor: somebody waits for a plan, and a comparison looks for longer


def find(request: dict[str, Any]) -> dict[str, Any]:
    """Return a toy's values, the shapes of the first sample by the authors' names of forward's arguments, that of the
    model's answer, those of these arguments that it needs in spite of a default, and the arguments as data with the
    number of tensors that it answers.

    Args:
        request: `toy`, the content of a toy_config.json; `reference`, the class as "PATH::Class".

    Raises:
        BadInput: the class takes neither these values nor variants of them, or no inputs; or the model is larger than
            a toy.
    """
    builder, batches = RepositoryBuilder(_LONGEST), DenoiserBatchBuilder()
    builder.open({"reference": request["reference"]})
    with tempfile.TemporaryDirectory() as place, builder.importing_files():
        file = Path(place, "toy_config.json")
        file.write_text(json.dumps(request["toy"]), encoding="utf-8")
        with of_toy_size(file.name):
            model = builder.make_toy(str(file), batches)
        inputs = batches.batch(model, lambda tensors: tensors)
        needed = needed_arguments(model, inputs)
    first = {name.removeprefix(_FIRST): list(one.shape) for name, one in inputs.items() if name.startswith(_FIRST)}
    values = {name: one for name, one in getattr(model, ARGUMENTS).items() if not name.startswith("_")}
    given = as_arguments(samples_of(inputs)[0])
    said = {name: described(one) for name, one in given.items()}
    whole = answered(model, given)
    one = whole[0] if isinstance(whole, tuple) and whole else whole
    count = 0 if isinstance(one, list) else len(tensors_in(whole))
    return {"values": values, "shapes": first, "answer": first.get(TARGET, []), "needed": needed, "inputs": said,
            "answers": count}  # fmt: skip
