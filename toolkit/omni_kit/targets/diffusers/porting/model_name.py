"""The name of a model's class in diffusers: its kind, and the number of axes that it denoises along."""

import ast
import re

from omni_kit.upstream.repositories.reference import Reference
from omni_kit.upstream.repositories.timestep import STEP

_CONVOLUTION = re.compile(r"(?:^|\.)[Cc]onv(?:_?[Tt]ranspose)?([123])d$")
_BY_NUMBER = "conv_nd"  # an argument says along how many axes it goes
_SAID = re.compile(r"([123])[dD](?![a-z])")  # in what authors call the class
_DOWN = re.compile(r"^(down\w*|\w+_down|input_blocks|enc|encoders?(_blocks)?)$")
_UP = re.compile(r"^(up\w*|\w+_up|output_blocks|dec|decoders?(_blocks)?)$")
_LINES = re.compile(r"(^|_)(mels?|audio|wav\w*|spec|f0|pitch|motion|joints?|traj\w*|actions?|horizon|speakers?)(_|$)")
_PICTURES = re.compile(r"img|image|height|pixel|video")
_PICTURE = 2  # axes, where nothing says how many
_VOLUME = 3
_OTHERS = 2  # axes of latents: the batch, and channels


def model_name(reference: Reference, prefix: str, axes: int = 0) -> str:
    """Return the name of the class, as `TinyTransformer2DModel`, or `TinyUNet1DModel`.

    Args:
        axes: of latents, with those of the batch and of channels; 0 where no run has shown them. Of three they are
            a line's, of sound or of a plan, or the tokens of a picture.
    """
    latents = next((name for name in reference.forward if not STEP.match(name)), "")
    shown = (axes or len(axes_of(reference, latents))) - _OTHERS
    convolved, said = convolved_along(reference), _SAID.search(reference.class_name)
    if shown > 1:
        along = shown
    elif said is not None:
        along = int(said[1])
    else:
        volume = _VOLUME if is_volume(reference) else _PICTURE
        along = 1 if is_line(reference) else convolved if shown == 1 else max(convolved, volume)
    return f"{prefix}{'UNet' if _is_unet(reference) else 'Transformer'}{min(along, 3)}DModel"


def axes_of(reference: Reference, latents: str) -> list[str]:
    """Return the authors' names of the axes of latents, if forward unpacks their shape, or first rearranges them."""
    found = reference.cls.method("forward")
    nodes = [*ast.walk(found[1])] if found is not None else []
    for node in (one for one in nodes if isinstance(one, ast.Assign) and isinstance(one.targets[0], ast.Tuple)):
        whole = ast.unparse(node.value) in (f"{latents}.shape", f"{latents}.size()")
        targets = node.targets[0].elts if isinstance(node.targets[0], ast.Tuple) else []
        names = [getattr(one, "id", "_") for one in targets]
        if whole and len(names) > 1 and not any(isinstance(one, ast.Starred) for one in targets):
            return names
    changed = (one for one in nodes if isinstance(one, ast.Assign) and ast.unparse(one.targets[0]) == latents)
    first = min(changed, key=lambda one: one.lineno, default=None)
    match first.value if first is not None else None:
        case ast.Call(func=ast.Name(id="rearrange"), args=[ast.Name(id=name), ast.Constant(value=str(text))]) if (
            name == latents and "(" not in (axes := text.partition("->")[0])
        ):
            return axes.split()
    return []


def page_of(name: str, model: str, prefix: str) -> str:
    """Return the name of a model's page: `tiny_transformer2d`."""
    return f"{name}_{model.removeprefix(prefix).removesuffix('Model').lower()}"


def _is_unet(reference: Reference) -> bool:
    """Return whether authors call a class so, or it keeps parts of a way down and of one up, with convolutions."""
    if "unet" in reference.class_name.lower():
        return True
    own = {one.attr for one in ast.walk(reference.cls.node) if isinstance(one, ast.Attribute)
           and isinstance(one.ctx, ast.Store) and ast.unparse(one.value) == "self"}  # fmt: skip
    return any(map(_DOWN.match, own)) and any(map(_UP.match, own)) and bool(_convolutions(reference))


def is_line(reference: Reference) -> bool:
    """Return whether arguments are about sounds, motions or plans, and none is about pictures; a model that convolves
    along three axes has videos or volumes, whatever sounds it receives with them.
    """
    names = [*reference.arguments, *reference.forward]
    lines = any(map(_LINES.search, names)) and not any(map(_PICTURES.search, names))
    return lines and not is_volume(reference)


def is_volume(reference: Reference) -> bool:
    """Return whether a model convolves along three axes, and at most what it receives with latents along one."""
    return _convolutions(reference) - {1} == {_VOLUME}


def _convolutions(reference: Reference) -> set[int]:
    """Return the numbers of axes that the convolutions go along; 0 of those for which an argument says it."""
    nodes = (node for one in reference.closure.definitions for node in ast.walk(one.node))
    names = {ast.unparse(one.func) for one in nodes if isinstance(one, ast.Call)}
    found = {int(one[1]) for one in map(_CONVOLUTION.search, names) if one is not None}
    return found | ({0} if any(name.rpartition(".")[2] == _BY_NUMBER for name in names) else set())


def convolved_along(reference: Reference) -> int:
    """Return the number of axes of the convolutions, where all have the same; else that of pictures."""
    found = _convolutions(reference)
    return next(iter(found)) if len(found) == 1 and 0 not in found else _PICTURE
