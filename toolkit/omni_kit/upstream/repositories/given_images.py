"""Check whether the authors' sampling code starts from images instead of prompts."""

import ast
import re

from omni_kit.upstream.repositories.reference import Reference
from omni_kit.upstream.repositories.sources import source_at

_IMAGES = re.compile(r"^((input|cond|condition|ref|reference|source)_)?(images?|imgs?|pictures?)$")
_SAID = re.compile(r"^((negative|input|raw)_)?(prompts?|texts?|captions?|y|labels?|class_labels|classes)(_\d+)?$")


def given_images(reference: Reference, where: str) -> bool:
    """Return whether functions in the file of a sampler receive images, and none there a prompt or labels.

    Args:
        where: the sampler, as file:line.
    """
    if (source := source_at(reference, where)) is None:
        return False
    made = [one.args for one in ast.walk(source.tree) if isinstance(one, ast.FunctionDef)]
    named = [one.arg for args in made for one in (*args.posonlyargs, *args.args, *args.kwonlyargs)]
    return any(map(_IMAGES.match, named)) and not any(map(_SAID.match, named))
