"""Behaviour of an integration on absent devices: VeOmni's constants that name one, assumed to be true."""

import importlib.util
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from torch import nn

Register = Callable[[str | None], Any]
_STRANGER = "SomebodysForCausalLM"
_HEADS = ("MODEL_FOR_", "_MAPPING_NAMES")  # how transformers calls its tables of classes that do a task


def registered(model: nn.Module) -> dict[str, Register]:
    """Return the functions that the package of a model has registered, by model_type."""
    from veomni.models.loader import MODELING_REGISTRY

    place = type(model).__module__
    known = {key: MODELING_REGISTRY[key] for key in MODELING_REGISTRY}
    return {
        key: one for key, one in known.items() if inspect.isfunction(one) and place.startswith(f"{one.__module__}.")
    }


def branches_of(functions: Mapping[str, Register]) -> list[str]:
    """Return the constants of VeOmni that say which device is there, of those that the functions know and that are
    false.
    """
    from veomni.utils import device

    constants = [name for name, value in vars(device).items() if name.isupper() and value is False]
    return [name for name in constants if any(name in _globals(one) for one in functions.values())]


@contextmanager
def assumed(functions: Mapping[str, Register], constant: str) -> Iterator[None]:
    """The functions take the constant for true while this is entered."""
    places = [_globals(one) for one in functions.values() if constant in _globals(one)]
    for place in places:
        place[constant] = True
    try:
        yield
    finally:
        for place in places:
            place[constant] = False


def lacking(functions: Mapping[str, Register], constant: str, architecture: str | None) -> str:
    """Return the package that this machine would need for a branch; empty if it needs none."""
    try:
        with assumed(functions, constant):
            for one in functions.values():
                one(architecture)
    except ImportError as error:
        name = str(error.name or "").partition(".")[0]
        return name if name and importlib.util.find_spec(name) is None else ""
    except Exception:  # judged elsewhere
        return ""
    return ""


def registry_faults(model: Any) -> tuple[list[str], list[str]]:
    """Call the registered functions for every class with a task, and for none, on each branch, and return their faults.

    Returns:
        The branches that could not be tried, each with the reason; and what is wrong.
    """
    functions = registered(model)
    untried, wrong = [], [said for key, one in functions.items() for said in _misnamed(key, one)]
    for constant in branches_of(functions):
        if package := lacking(functions, constant, architecture_of(model)):
            untried.append(f"{constant} (needs {package})")
            continue
        wrong += [f"with {constant}, {said}" for said in _otherwise(functions, constant)]
    return untried, list(dict.fromkeys(wrong))


def known_tasks(model: Any) -> list[str]:
    """Return the classes of transformers that do a task with the type of a model, and that its package registers."""
    found = [(name, one) for key, one in registered(model).items() for name in _classes(key)]
    return list(dict.fromkeys(name for name, one in found if getattr(_outcome(one, name), "__name__", "") == name))


def _misnamed(key: str, register: Register) -> Iterator[str]:
    """Yield requested classes that the function knows and does not return."""
    for architecture in _classes(key):
        try:
            given = register(architecture)
        except Exception as error:
            yield f"'{key}' for {architecture}: {type(error).__name__}: {error}"
            continue
        if not (inspect.isclass(given) and issubclass(given, nn.Module)):
            yield f"'{key}' gives {given!r} for {architecture}, which is not a model class"
        elif given.__name__ != architecture and _knows(register, architecture):
            yield f"'{key}' gives {given.__name__} for {architecture}, which it knows"
    given = _outcome(register, None)
    tasks = [name for name in _classes(key) if _knows(register, name)]
    if inspect.isclass(given) and tasks and given.__name__ not in _classes(key):
        yield f"'{key}' gives {given.__name__} for a config without architectures: it does no task, and has no loss"
    given = _outcome(register, _STRANGER)
    if inspect.isclass(given) and tasks and given.__name__ not in _classes(key):
        yield f"'{key}' gives {given.__name__} for {_STRANGER}, which it does not have: its head is left out silently"


def _otherwise(functions: Mapping[str, Register], constant: str) -> Iterator[str]:
    """Yield the results of a branch that differ from the branch that this machine takes."""
    for key, register in functions.items():
        for architecture in (*_classes(key), None):
            here = _outcome(register, architecture)
            with assumed(functions, constant):
                there = _outcome(register, architecture)
            if isinstance(here, str) or isinstance(there, str):
                if str(there) != str(here):
                    yield f"'{key}' gives {_named(there)} for {architecture}, and {_named(here)} without"
            elif there.__name__ != here.__name__:
                yield f"'{key}' gives {there.__name__} for {architecture}, and {here.__name__} without"
            elif lost := _hooks(here) - _hooks(there):
                yield f"{there.__name__} has no '{min(lost)}', which it has without"


def _outcome(register: Register, architecture: str | None) -> Any:
    try:
        return register(architecture)
    except Exception as error:
        return type(error).__name__


def _named(outcome: Any) -> str:
    return outcome if isinstance(outcome, str) else str(getattr(outcome, "__name__", outcome))


def _knows(register: Register, name: str) -> bool:
    """Return whether a function's own code has that name."""
    code = getattr(register, "__code__", None)
    return code is not None and name in (*code.co_varnames, *code.co_names)


def _hooks(given: type) -> set[str]:
    """Return a class's own attributes beyond any model of transformers: those made for VeOmni."""
    from transformers import GenerationMixin, PreTrainedModel

    theirs = {*dir(PreTrainedModel), *dir(GenerationMixin)}
    own = {name for one in given.__mro__ if one.__module__ == given.__module__ for name in vars(one)}
    return {name for name in own - theirs if not name.startswith("__")}


def _classes(key: str) -> Sequence[str]:
    """Return the classes of transformers that do a task with a model_type."""
    from transformers.models.auto import modeling_auto

    start, end = _HEADS
    tables = [table for name, table in vars(modeling_auto).items() if name.startswith(start) and name.endswith(end)]
    named = [table[key] for table in tables if key in table]
    flat = [one for found in named for one in (found if isinstance(found, (tuple, list)) else [found])]
    return list(dict.fromkeys(flat))


def architecture_of(model: Any) -> str:
    """Return the class name in a model's config."""
    return next(iter(getattr(model.config, "architectures", None) or []), type(model).__name__)


def _globals(function: Register) -> dict[str, Any]:
    found: dict[str, Any] = getattr(function, "__globals__", {})
    return found
