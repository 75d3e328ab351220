"""Components that fit each other: found by asking the pipeline, and reading what does not fit in its error.

In the denoiser's toy no two widths are alike. So a width that an error names leads to the argument that it came from.
"""

import ast
import inspect
import math
import re
import textwrap
import traceback
from collections.abc import Callable, Iterator, Mapping
from types import CodeType
from typing import Any

import torch

from omni_kit.errors import BadInput, MissingRequirement
from omni_kit.pysource.eval import OpenDomain, evaluate
from omni_kit.pysource.reads import literal
from omni_kit.pysource.source import dotted
from omni_kit.toys.configs.axes import IS_AXES
from omni_kit.toys.configs.denoiser import HEAD_DIM, INNER
from omni_kit.toys.configs.latents import channel_names
from omni_kit.toys.pipelines import parts
from omni_kit.toys.pipelines.missing import missing_package
from omni_kit.toys.width_errors import ADDED, EXPANDED, LENGTHS, WIDTHS
from omni_kit.upstream.diffusers.pipelines import SCHEDULER, Pipeline
from omni_kit.upstream.diffusers.signatures import arguments
from omni_kit.upstream.profile import Component

# Part -> arguments of its constructor.
Changed = Mapping[str, Mapping[str, Any]]
_TRIES = 24
GIVE_ONE = "pass a small pipeline of that class to parity: --checkpoint DIR"
# Errors of torch about widths: what came, and what the weights want.
_WIDTHS = (
    *WIDTHS,
    ADDED,
    re.compile(r"size of tensor a \((?P<wants>\d+)\) must match the size of tensor b \((?P<came>\d+)\)"),
    re.compile(r"Expected size (?P<came>\d+) but got size (?P<wants>\d+)"),
)
_COUNTED = re.compile(r"should have (?P<wants>\d+) .*channels")  # written down in the pipeline's own code
_ADDED_UP = re.compile(r"expects \d+ but received .*= (?P<came>\d+)")  # latents, their mask, and what it leaves
_NO_ARGUMENT = re.compile(r"Scheduler\.(?P<method>\w+)\(\) got an unexpected keyword argument '(?P<argument>\w+)'")
_UNEXPECTED = re.compile(r"unexpected keyword argument '(?P<argument>\w+)'")
_FEWER_AXES = re.compile(r"not enough values to unpack \(expected 3, got (?P<came>2)\)")
_OF_FRAMES = 2  # the width of a head that turns with frames
_OF_CHANNELS = re.compile(r"\.config\.latents_(mean|std)\b")
_UNEVEN = 2  # how much axes differ that share a head unevenly
_TOKENS_HALVED = 4  # a picture halved along both sides
_OF_TEXT = ("tokenizer", "text_encoder")
_BEYOND = re.compile(r"index \d+ is out of bounds for dimension \d+ with size (?P<size>\d+)")
_OF_LAYER = re.compile(r"hidden_states\w*\[")
_LENGTH = 64  # of a text whose encoder is not known
_LARGE = 64  # along each side of a table of positions
_PIXELS = 2**16  # of a small picture or film
_DEEP, _DEEPEST = 4, 5  # levels of an autoencoder as they are published, and the most that a small picture leaves
_MANY = 2**14  # numbers of a denoiser's input that are many for a small one
_AUTOENCODERS, _DENOISERS, _SCHEDULERS = "/models/autoencoders/", "/models/transformers/", "/schedulers/"
_MODELS = "/diffusers/models/"
_CALLED = re.compile(r"self\.(?P<what>[a-z]+)_\w*\(")
_ATTACHED = 142  # the width of what such a part reads, which no other width of a toy is
_IS_ROPE = re.compile(r"rope|rotary")
_THREE_AXES = 24  # the width of a head that three axes share evenly, each in pairs
_IS_NO_WIDTH = re.compile(r"head|layer|patch|axes|depth|num_|theta")
_IS_LENGTH = re.compile(r"text_(seq_)?len(gth)?(_\w+)?$")
_CHANNELS_OF_LATENTS = "num_channels_latents"
_PATCHES = (1, 4, 2, 8, 16)  # latents that lie in one patch


def toy_pipeline(read: Pipeline, ask: Callable[[Any], object], changed: Changed | None = None) -> Any:
    """Return a small pipeline of a class, with random weights and every part that the class needs.

    Args:
        read: what diffusers says of the class.
        ask: calls the pipeline once.
        changed: arguments of parts that are to be others than by default.

    Raises:
        BadInput: a part cannot be made small, or the parts cannot be made to fit; what to give instead.
        MissingRequirement: the pipeline's own code needs a package that is not installed.
    """
    torch.manual_seed(0)
    last = ""
    parts.class_of(read)  # its package may add classes to transformers
    try:
        made = _Parts(read, changed or {})
        for _ in range(_TRIES):
            pipeline = made.pipeline()
            try:
                made.ask(ask, pipeline)
            except Exception as error:  # whatever it raises says what does not fit, or ends the search
                _refuse_missing(read, error)
                last = parts.told(error)
                if _lacks_part(error) and not made.complete:  # it calls what its class says it can do without
                    made = _Parts(read, changed or {}, complete=True, deep=made.deep)
                elif _reads_deeper(error) and not made.deep:  # it reads hidden states of layers that are not there
                    made = _Parts(read, changed or {}, complete=made.complete, deep=True)
                else:
                    made.fit(error)
                continue
            return pipeline
    except ImportError as error:
        _refuse_missing(read, error)
        raise
    except BadInput as error:
        raise BadInput(f"no small {read.cls.node.name} can be made: {error.message}", GIVE_ONE) from error
    raise BadInput(
        f"no small {read.cls.node.name} can be made: after {_TRIES} tries its parts do not fit: {last}", GIVE_ONE
    )


class _Parts:
    """The parts of a pipeline; those around the denoiser are made once, and it is fitted to them."""

    def __init__(self, read: Pipeline, changed: Changed, *, complete: bool = False, deep: bool = False) -> None:
        self.complete, self.deep = complete, deep
        self._read = read
        self._denoiser = read.denoiser
        self._asked = changed
        self._changed: dict[str, Any] = dict(changed.get(self._denoiser.name, {}))
        self._fitted: dict[str, dict[str, Any]] = {}  # arguments of parts between encoders and denoiser
        self._levels = parts.LEVELS
        self._latents = _written_channels(read)  # channels of latents, where they are not the class's own
        self._measures: dict[str, list[float]] = {}  # of each channel of latents, where the pipeline reads them
        self._channels = channel_names(parts.denoiser_config(self._denoiser))
        self._others = dict(self._made())
        self._multiples = list(_PATCHES)
        self._said = ""  # by the first error that names no width

    def _made(self) -> Iterator[tuple[str, Any]]:
        needed = [one for one in self._read.components if self._needs(one) and one.name != self._denoiser.name]
        encoders = {one.name: parts.encoder(one, deep=self.deep) for one in needed if one.role == "encoder"}
        yield from encoders.items()
        for one in needed:
            if one.role == "tokenizer" or one.name.startswith("tokenizer"):  # a processor reads text by its tokenizer
                reader = encoders.get(one.name.replace("tokenizer", "text_encoder"))
                length = parts.positions_of(reader) if reader is not None else _LENGTH
                marks = parts.marks_of([reader], [self._read.cls.source.text]) if reader is not None else {}
                yield one.name, parts.tokenizer(length, marks, around=parts.around_text(one.class_name))
            elif one.role == "autoencoder":
                asked = {**self._measures, **self._asked.get(one.name, {})}
                yield one.name, parts.autoencoder(one, asked, levels=self._levels, latents=self._latents)
            elif one.name == SCHEDULER:
                yield one.name, parts.scheduler(one, self._asked.get(one.name, {}))
            elif one.role == "processor":
                seen = (sizes for model in encoders.values() if (sizes := parts.seen_by(model)))
                code = [parts.code_of(one), self._read.cls.source.text]
                marks = parts.marks_of([*encoders.values()], code) if encoders else {}
                yield one.name, parts.processor(one, parts.tokenizer(_LENGTH, marks), next(seen, None))
            elif one.role == "guider":
                yield one.name, parts.guider(one)
            elif one.role != "encoder":
                self._fitted[one.name] = parts.between_config(one)

    def _needs(self, component: Component) -> bool:
        """Return whether a small pipeline has this part: what draws pictures.

        If it is complete, also all that reads text.
        """
        draws = not component.optional or component.role == "autoencoder"
        return draws or (self.complete and component.name.startswith(_OF_TEXT))

    def pipeline(self) -> Any:
        """Return the pipeline, with a denoiser of the sizes known so far.

        Raises:
            BadInput: its parts do not let themselves be put together.
        """
        try:
            denoiser = parts.denoiser(self._denoiser, self._changed)
            made = parts.class_of(self._read)(**self._given(), **{self._denoiser.name: denoiser})
        except Exception as error:  # whatever their constructors raise
            _refuse_missing(self._read, error)
            raise BadInput(f"it cannot be put together: {parts.told(error)}") from error
        made.set_progress_bar_config(disable=True)
        return made

    def ask(self, ask: Callable[[Any], object], pipeline: Any) -> None:
        """Call a pipeline as `ask` does, if its autoencoder and its denoiser see small pictures and films alone.

        Some pipelines bring every picture to a size of their own, and with an autoencoder of two levels a denoiser
        would attend to each of its pixels for many minutes. Then the autoencoder gets as many levels as published
        ones have, and one more where the denoiser still attends to many places.
        """
        most = _PIXELS if self._levels < _DEEP else _MANY - 1

        def measure(_: Any, args: tuple[Any, ...], named: Mapping[str, Any]) -> None:
            shapes = [one.shape for one in (*args, *named.values()) if isinstance(one, torch.Tensor)]
            if shapes and math.prod(sorted(shapes[0][1:])[-2:]) > most:  # what else they count is less than a side
                raise _TooLarge

        encoders = [getattr(one, "encoder", None) for one in self._others.values() if _is_autoencoder(one)]
        watched = [getattr(pipeline, self._denoiser.name), *(encoders if self._levels < _DEEP else ())]
        found = [one for one in watched if isinstance(one, torch.nn.Module)] if self._levels < _DEEPEST else []
        guards = [one.register_forward_pre_hook(measure, with_kwargs=True) for one in found]
        try:
            ask(pipeline)
        finally:
            for guard in guards:
                guard.remove()

    def _given(self) -> Mapping[str, Any]:
        others = (one for one in self._read.components if one.name != self._denoiser.name)
        absent = {one.name: None for one in others if not self._needs(one)}
        unknown = {one.name: None for one in arguments(self._read.cls).values() if one.required}
        between = (one for one in self._read.components if one.name in self._fitted)
        made = {one.name: parts.between(one, self._fitted[one.name]) for one in between}
        unknown.pop(self._denoiser.name, None)
        return {**unknown, **absent, **self._others, **made}

    def fit(self, error: Exception) -> None:
        """Changes what an error says does not fit.

        Raises:
            BadInput: it names no width of the denoiser's, and every number of latents in a patch was tried.
        """
        said = " ".join(str(error).split())
        if isinstance(error, _TooLarge):
            self._levels = max(_DEEP, self._levels + 1)
            self._others = dict(self._made())
            return
        if (match := _COUNTED.search(said)) and self._count(int(match["wants"])):
            return
        if isinstance(error, UnboundLocalError) and self._choose():
            return
        if "NoneType" in said and self._measure(error):
            return
        if _passed_through(error, _AUTOENCODERS) and self._multiples:
            self._take_latents(self._multiples.pop(0))
            return
        config = {**parts.denoiser_config(self._denoiser), **self._changed}
        if _passed_through(error, _SCHEDULERS) and (self._answer(config, said) or self._one_stage(error)):
            return
        if match := ADDED.search(said):
            came, wants = int(match[1]), int(match[2])
            turned = _in_rope(error)
            tokens = turned or {came, wants}.isdisjoint(one for one in config.values() if isinstance(one, int))
            if tokens and self._halve_more(came, wants):
                return
            if turned and abs(came - wants) <= _UNEVEN and self._widen_heads(config):
                return
        if _lacks_part(error) and self._attach(config, error):
            return
        if _FEWER_AXES.search(said) and self._add_axis(config):
            return
        if (match := _ADDED_UP.search(said)) and self._add_up(config, int(match["came"])):
            return
        if (match := _NO_ARGUMENT.search(said)) and self._take_scheduler(match["method"], match["argument"]):
            return
        if (match := _UNEXPECTED.search(said)) and self._switch_on(config, match["argument"]):
            return
        for pattern in _WIDTHS:
            if (match := pattern.search(said)) and self._fill_table(config, int(match["wants"]), int(match["came"])):
                return
        if (beyond := _BEYOND.search(said)) and self._enlarge(config, int(beyond["size"])):
            return
        if (table := EXPANDED.search(said)) and int(table["came"]) > int(table["wants"]) and self._restore(config):
            return
        widths = [match for pattern in _WIDTHS if (match := pattern.search(said))]
        for fit in (self._condition, self._change):
            if any(fit(config, int(match["wants"]), int(match["came"])) for match in widths):
                return
        for pattern in _WIDTHS:
            if (match := pattern.search(said)) and self._patch(config, int(match["wants"]), int(match["came"])):
                return
        for pattern in _WIDTHS:
            if (match := pattern.search(said)) and self._take_more(config, int(match["wants"]), int(match["came"])):
                return
        for pattern in _WIDTHS if _passed_through(error, _MODELS) else ():
            if (match := pattern.search(said)) and self._lengthen(config, int(match["came"]) - int(match["wants"])):
                return
        if self._switch_off(config, error):
            return
        self._said = self._said or parts.told(error)
        if not self._multiples:
            self._deepen()
            return
        self._take_latents(self._multiples.pop(0))  # images are packed before anything else sees their latents

    def _take_latents(self, multiple: int) -> None:
        """The denoiser takes the autoencoder's latents, so many of them in a patch, and answers in the same measure."""
        toy, channels = parts.denoiser_config(self._denoiser), parts.latent_channels(self._others)
        going_in, out = channel_names(toy)
        self._changed[going_in] = channels * multiple
        if isinstance(toy.get(out), int):
            self._changed[out] = max(1, toy[out] * channels * multiple // toy[going_in])

    def _deepen(self) -> None:
        """Halve pictures as often as published autoencoders do, and fit the denoiser again.

        Raises:
            BadInput: the autoencoder does so already.
        """
        if self._levels != parts.LEVELS:
            raise BadInput(f"it fails with {self._said}")
        self._levels, self._multiples, self._said = _DEEP, list(_PATCHES), ""
        self._others, self._changed = dict(self._made()), dict(self._asked.get(self._denoiser.name, {}))

    def _count(self, wants: int) -> bool:
        """Return whether the pipeline names another number of channels: its latents and its denoiser have that from
        now on.
        """
        fits = parts.latent_channels(self._others) != wants
        self._latents = wants
        self._others = dict(self._made())
        self._changed |= dict.fromkeys(self._channels, wants)
        return fits and parts.latent_channels(self._others) == wants

    def _measure(self, error: Exception) -> bool:
        """Return whether the pipeline reads statistics of channels that the autoencoder does not have: it has them
        now.
        """
        read = _OF_CHANNELS.search(traceback.extract_tb(error.__traceback__)[-1].line or "")
        fits = read is not None and not self._measures
        if fits:
            channels = range(parts.latent_channels(self._others))
            self._measures = {
                "latents_mean": [0.1 * number for number in channels],
                "latents_std": [1 + 0.1 * number for number in channels],
            }
            self._others = dict(self._made())
        return fits

    def _choose(self) -> bool:
        """Return whether an argument of the denoiser's is one of several words for the pipeline: then it is the
        first.
        """
        config = {**parts.denoiser_config(self._denoiser), **self._changed}
        for node in ast.walk(self._read.cls.source.tree):
            if isinstance(node, ast.Compare) and isinstance(word := node.comparators[0], ast.Constant):
                name = (dotted(node.left) or "").rpartition(".")[2]
                if name in config and config[name] is None and isinstance(word.value, str):
                    self._changed[name] = word.value
                    return True
        return False

    def _add_up(self, config: Mapping[str, Any], came: int) -> bool:
        """Return whether the denoiser takes other channels than the pipeline adds up: it takes those, and predicts
        latents.
        """
        going_in, out = channel_names(config)
        if config[going_in] == came:
            return False
        self._changed[going_in] = came
        if isinstance(config.get(out), int):
            self._changed[out] = parts.latent_channels(self._others)
        return True

    def _add_axis(self, config: Mapping[str, Any]) -> bool:
        """Return whether the denoiser has two axes, and films come: then frames are a third one, in front of them."""
        pairs = {name: value for name, value in config.items() if isinstance(value, list | tuple) and len(value) == 2}
        patches = {name: [1, *value] for name, value in pairs.items() if name == "patch_size"}
        axes = {
            name: [_OF_FRAMES, one - _OF_FRAMES, other] for name, (one, other) in pairs.items() if IS_AXES.search(name)
        }
        if fits := bool(patches and axes):
            self._changed |= patches | axes
        return fits

    def _one_stage(self, error: Exception) -> bool:
        """Return whether the scheduler divides its steps into stages, of which the call names none: then there is
        one.
        """
        changed = {name: 1 for name, value in self._others[SCHEDULER].config.items() if name == "stages" and value != 1}
        if changed and isinstance(error, KeyError):
            component = next(one for one in self._read.components if one.name == SCHEDULER)
            self._others[SCHEDULER] = parts.scheduler(component, {**self._asked.get(SCHEDULER, {}), **changed})
            return True
        return False

    def _answer(self, config: Mapping[str, Any], said: str) -> bool:
        """Return whether the scheduler takes fewer channels than the denoiser predicts: the rest is a learned variance.

        The autoencoder's latents are tried first: pipelines tell a variance by comparing with their channels.
        """
        going_in, out = channel_names(config)
        channels = parts.latent_channels(self._others)
        match = ADDED.search(said)
        if match is None or out not in config or LENGTHS.search(said):
            return False
        fewer, predicted = sorted((int(match[1]), int(match[2])))
        is_predicted = predicted == (config[out] if isinstance(config[out], int) else config[going_in])
        if is_predicted and fewer % channels == 0 and config[going_in] > fewer:
            self._changed[out] = fewer  # what it takes beyond latents, it does not predict
            return True
        if not isinstance(config[out], int):
            return False
        if going_in not in self._changed and config[going_in] != channels:
            self._take_latents(1)
            return True
        wanted, answered = int(match[1]), int(match[2])
        right = wanted * max(1, config[out] // answered)  # a part of what it predicts is its answer
        fits = bool(config[out] != right)
        if fits:
            self._changed[out] = right
        return fits

    def _take_scheduler(self, method: str, argument: str) -> bool:
        """Return whether a pipeline passes its scheduler an argument that another class takes, unlike the declared
        one.
        """
        found = parts.scheduler_with(method, argument)
        if found is None or SCHEDULER not in self._others:
            return False
        self._others[SCHEDULER] = found(**self._asked.get(SCHEDULER, {}))
        return True

    def _switch_on(self, config: Mapping[str, Any], argument: str) -> bool:
        """Return whether a switch of the denoiser's that is off is named for what it was passed: then it is on."""
        names = [name for name, value in config.items() if value is False and name.startswith(f"{argument}_")]
        self._changed |= dict.fromkeys(names, True)
        return bool(names)

    def _switch_off(self, config: Mapping[str, Any], error: Exception) -> bool:
        """Return whether the denoiser fails beneath a switch of its own that is on: then it is off."""
        frames = [one for one in traceback.walk_tb(error.__traceback__) if _MODELS in one[0].f_code.co_filename]
        above = {name for frame, line in frames[-1:] for name in _asked_above(frame.f_code, line)}
        names = [name for name in sorted(above) if config.get(name) is True and name not in self._changed]
        self._changed |= dict.fromkeys(names, False)
        return bool(names)

    def _condition(self, config: Mapping[str, Any], wants: int, came: int) -> bool:
        """Return whether a switch of the denoiser's that is off widens its input by as much as came: then it is on."""
        switch = widening(parts.constructor_code(self._denoiser), config, wants, came)
        self._changed |= {switch: True} if switch else {}
        return bool(switch)

    def _attach(self, config: Mapping[str, Any], error: Exception) -> bool:
        """Return whether the denoiser calls a part of its own that is only there for a width: then it has one."""
        frame = traceback.extract_tb(error.__traceback__)[-1]
        called = _CALLED.search(frame.line or "") if _passed_through(error, _DENOISERS) else None
        absent = [name for name, value in config.items() if value is None and name.endswith("_dim")]
        names = [name for name in absent if called is not None and name.startswith(f"{called['what']}_")]
        self._changed |= dict.fromkeys(names, _ATTACHED)
        return bool(names)

    def _halve_more(self, came: int, wants: int) -> bool:
        """Return whether pictures have so many more tokens than positions, as the autoencoder halves them less than
        real ones.

        Some pipelines write down by how much theirs does.
        """
        more = math.log(came / wants, _TOKENS_HALVED) if came > wants else 0.0
        fits = more.is_integer() and more > 0 and self._levels == parts.LEVELS
        if fits:
            self._levels += int(more)
            self._others = dict(self._made())
        return fits

    def _widen_heads(self, config: Mapping[str, Any]) -> bool:
        """Return whether heads have the width that toys have: then three axes share them evenly from now on."""
        names = [name for name, value in config.items() if value == HEAD_DIM and "head_dim" in name]
        names = [name for name in names if name not in self._changed]
        whole = (
            [name for name, value in config.items() if value == INNER and name not in self._changed] if names else []
        )
        self._changed |= dict.fromkeys(names, _THREE_AXES)
        self._changed |= dict.fromkeys(whole, INNER // HEAD_DIM * _THREE_AXES)
        return True

    def _fill_table(self, config: Mapping[str, Any], wants: int, came: int) -> bool:
        """Return whether one length of a text is that of a table, or one position shorter: then it is as long as the
        text.
        """
        for name, value in config.items():
            if _IS_LENGTH.search(name) and value in (wants, wants - 1) and name not in self._changed:
                self._changed[name] = came - (wants - value)
                return True
        return False

    def _take_more(self, config: Mapping[str, Any], wants: int, came: int) -> bool:
        """Return whether more comes than the latents that the denoiser was fitted to: it takes that, and predicts
        these.
        """
        going_in, out = channel_names(config)
        more = config.get(going_in) == wants and going_in in self._changed and came > wants and out in config
        if more:
            self._changed |= {going_in: came, out: wants}
        return more

    def _patch(self, config: Mapping[str, Any], wants: int, came: int) -> bool:
        """Return whether as many channels came as the denoiser takes, and a patch of the autoencoder's latents is
        wanted.
        """
        channels = parts.latent_channels(self._others)
        fits = came == config.get(channel_names(config)[0]) and wants in (channels * one for one in self._multiples)
        if fits:
            self._multiples.remove(wants // channels)
            self._take_latents(wants // channels)
        return fits

    def _enlarge(self, config: Mapping[str, Any], size: int) -> bool:
        """Return whether there is a table of positions of that size, or with so many a side: then it is larger now."""
        names = [name for name, value in config.items() if "max" in name and isinstance(value, int)]
        names = [name for name in names if config[name] in (size, math.isqrt(size)) and name not in self._changed]
        self._changed |= {name: _LARGE**2 if config[name] == size else _LARGE for name in names}
        return bool(names)

    def _restore(self, config: Mapping[str, Any]) -> bool:
        """Return whether a toy has a smaller limit than the class has by default: then all have their own again."""
        own = parts.denoiser_defaults(self._denoiser)
        limits = {name: own[name] for name in config if "max" in name and name in own and name not in self._changed}
        limits = {name: value for name, value in limits.items() if value is not None and value != config[name]}
        self._changed |= limits
        return bool(limits)

    def _lengthen(self, config: Mapping[str, Any], more: int) -> bool:
        """Return whether the denoiser counts the tokens of a text, and takes so many more now: texts are padded to
        more.
        """
        names = [name for name, value in config.items() if _IS_LENGTH.search(name) and isinstance(value, int)]
        names = [name for name in names if name not in self._changed] if more > 0 else []
        self._changed |= {name: config[name] + more for name in names}
        return bool(names)

    def _change(self, config: Mapping[str, Any], wants: int, came: int) -> bool:
        """Return whether there is a width of that size that was not changed before."""
        for values in self._fitted.values():
            if names := [name for name, value in values.items() if value == wants]:
                values |= dict.fromkeys(names, came)
                return True
        listed = {name: value for name, value in config.items() if isinstance(value, list) and wants in value}
        for name, value in listed.items():  # a width for each of several texts
            if not _IS_NO_WIDTH.search(name):
                self._changed[name] = [came if one == wants else one for one in value]
                return True
        names = [name for name, value in config.items() if value == wants and not _IS_NO_WIDTH.search(name)]
        names = [name for name in names if self._changed.get(name, _ATTACHED) == _ATTACHED]
        names = [name for name in names if not isinstance(config[name], bool)]
        for name in names:
            self._changed[name] = came
        going_in, out = channel_names(config)
        answered = config.get(out)
        if going_in in names and isinstance(answered, int) and out not in names and (answered * came) % wants == 0:
            self._changed[out] = answered * came // wants
        return bool(names)


def widening(code: str, config: Mapping[str, Any], wants: int, came: int) -> str:
    """Return the switch by which a constructor chooses between two widths, that of `wants` while it is off; empty if
    there is none. Both may be those of a patch.
    """
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.IfExp) and config.get(switch := dotted(node.test) or "") is False:
            wide, narrow = (evaluate(one, OpenDomain(config)) for one in (node.body, node.orelse))
            numbers = isinstance(wide, int) and isinstance(narrow, int) and wide != narrow
            if numbers and wide * wants == narrow * came:
                return switch
    return ""


def _written_channels(read: Pipeline) -> int | None:
    """Return the number of channels of latents that a pipeline's call writes down; None if it reads them from a
    part.
    """
    found = read.cls.method("__call__")
    assigned = (node for node in ast.walk(found[1]) if isinstance(node, ast.Assign)) if found is not None else ()
    named = (literal(node.value) for node in assigned if dotted(node.targets[0]) == _CHANNELS_OF_LATENTS)
    return next((value for value in named if isinstance(value, int)), None)


class _TooLarge(Exception):
    """An autoencoder encodes more pixels than a small picture or film has."""


def _asked_above(code: CodeType, line: int) -> Iterator[str]:
    """Yield the attributes of its own that a function asks for in front of a line: `if self.x:`."""
    for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(code)))):
        first = code.co_firstlineno - 1
        if isinstance(node, ast.If) and node.body[0].lineno <= line - first <= (node.body[-1].end_lineno or 0):
            yield (dotted(node.test) or "").removeprefix("self.")


def _is_autoencoder(part: Any) -> bool:
    return type(part).__module__.startswith("diffusers.models.autoencoders.")


def _refuse_missing(read: Pipeline, error: Exception) -> None:
    """Raise MissingRequirement where an error comes from an import that diffusers left out."""
    if package := missing_package(error):
        what = f"{read.cls.node.name} calls {package}, which is not installed, so no small one can run"
        raise MissingRequirement(what, f"pip install {package}") from error


def _reads_deeper(error: Exception) -> bool:
    """Return whether a pipeline reads the hidden states of a layer that a small encoder does not have."""
    frames = traceback.extract_tb(error.__traceback__)
    return isinstance(error, IndexError) and bool(frames) and bool(_OF_LAYER.search(frames[-1].line or ""))


def _lacks_part(error: Exception) -> bool:
    """Return whether a pipeline called a part that it does not have."""
    return isinstance(error, TypeError | AttributeError) and "NoneType" in str(error)


def _in_rope(error: Exception) -> bool:
    """Return whether it was raised where positions turn queries and keys."""
    return any(_IS_ROPE.search(frame.name) for frame in traceback.extract_tb(error.__traceback__)[-2:])


def _passed_through(error: Exception, folder: str) -> bool:
    """Return whether it was raised by code of that folder, or by what that called."""
    return any(folder in frame.filename for frame in traceback.extract_tb(error.__traceback__))
