"""Source of an integration, recovered from a file that records it."""

from pathlib import Path

from omni_kit.errors import BadInput
from omni_kit.resources import resource_dir
from omni_kit.upstream.places import read_json
from omni_kit.upstream.repositories.published import SIGNED
from omni_kit.upstream.repositories.reference import BETWEEN, Reference, find_reference

_EXAMPLES = "reference_models"
CONDITIONS = "_conditions"  # what else a pipeline is given -> whether there is another one to guide against
NEGATIVE = "negative_"  # before the name of a condition: the one to guide against
PROMPT_AXIS = "_prompt_axis"  # the axis that a pipeline adds to an embedded prompt before the model gets it
FRAME_AXIS = "_frame_axis"  # the axis of a single frame that a pipeline adds to latents before the model gets them
LATENTS = "_latents"  # the shape of the latents of which a pipeline makes tokens, if it does
JOINED = "_joined"  # what a pipeline joins with latents: the axis, the order, and the shapes
MIXED = "_mixed"  # what a pipeline mixes with latents: known values, and where they are
NULL = "_null_label"  # the key under which it says the class label of no class
STATED = "_inputs"  # argument of forward -> what a person says that it is
EXAMPLE = "_example"  # arguments of forward that the integration's own tests pass, and the shape of its answer
REPLACED = "_replaced"  # argument of a toy -> what toy_config.json states, where the toy has another value
SHAPES = "_shapes"  # argument of forward -> the shape that the integration's own tests pass


def recorded_reference(file: Path) -> Reference:
    """Return the class that a config says it is of.

    A relative path is looked for from the working directory, from the folders above the file, and among the worked
    examples that travel with this package.

    Raises:
        BadInput: it says none, or what it says is not there.
    """
    given = read_json(file).get(SIGNED)
    if not isinstance(given, str):
        raise BadInput(f"{file} does not name its authors' class", f'add "{SIGNED}": "PATH::Class"')
    place, between, name = given.partition(BETWEEN)
    if not between:
        return find_reference(given)
    wanted = Path(place).expanduser()
    places = [wanted, *(above / wanted for above in file.resolve().parents), resource_dir(_EXAMPLES).parent / wanted]
    found = next((one for one in places if one.exists()), None)
    if found is None:
        raise BadInput(
            f"{place}, which {file.name} names, does not exist", "run it from the original directory, or fix the path"
        )
    return find_reference(f"{found.resolve()}{BETWEEN}{name}")


STEPS = 4
"""Steps that a small pipeline takes where it is compared."""
EVERY = 24
"""Steps of a small pipeline that goes all steps of its training: authors' betas of fewer may be above 1."""
COUNT = "_steps"  # how many steps a small pipeline takes, where that is another number
