"""State that all tests of a process share: a file that changes it makes later tests fail, or pass, without a cause."""

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from operator import is_
from pathlib import Path
from types import FunctionType
from typing import Any

# Libraries whose functions others replace: kernels, loss functions, what compiles.
_LIBRARIES = {"torch", "transformers", "diffusers"}
_HERE = Path(__file__).resolve().parents[1]  # with the environment's libraries, wherever a clone lies
_CLASSES = {"torch.nn.modules.module": "Module", "transformers.modeling_utils": "PreTrainedModel", "torch": "Tensor"}
# Variables that pytest, torch when it compiles first, and makers of toys set themselves; none changes a result.
_OWN = {"PYTEST_CURRENT_TEST", "PYTEST_VERSION", "TORCHINDUCTOR_CACHE_DIR", "TRANSFORMERS_VERBOSITY"}

State = Mapping[str, Mapping[str, Any]]


def state() -> State:
    """Return what is shared, by kind and name: places, variables, modules, settings of torch, libraries' names."""
    found: dict[str, Mapping[str, Any]] = {
        "place": {"os.getcwd()": os.getcwd(), "sys.path": tuple(sys.path), "sys.meta_path": tuple(sys.meta_path)},
        "variable": {name: value for name, value in os.environ.items() if name not in _OWN},
        "module": dict(sys.modules),
        "setting of torch": _settings(sys.modules.get("torch")),
    }
    for name, module in found["module"].items():
        if name.partition(".")[0] in _LIBRARIES:
            found[name] = names = dict(vars(module))
            types = [*map(type, names.values())]
            if types.count(dict) > ("__builtins__" in names) or any(issubclass(one, dict) for one in {*types} - {dict}):
                for key, value in names.items():
                    if issubclass(type(value), dict) and key != "__builtins__":
                        found[f"{name}.{key}"] = dict(dict.items(value))
            if name in _CLASSES and (one := names.get(_CLASSES[name])) is not None:
                found[f"{name}.{_CLASSES[name]}"] = dict(vars(one))
    return found


def forget_temporary(before: State) -> None:
    """Remove modules of temporary files, and of worked examples, that were not there before: another test may make a
    file of the same name.
    """
    for name in sys.modules.keys() - before["module"].keys():
        file = Path(str(getattr(sys.modules[name], "__file__", None) or ""))
        temporary = file.is_relative_to(tempfile.gettempdir()) and not file.is_relative_to(_HERE)
        if temporary or file.is_relative_to(_HERE / "reference_models"):
            del sys.modules[name]


def changes(before: State, after: State) -> Iterator[str]:
    """Yield, in words, what was replaced; what was first imported or registered in between is no change."""
    for kind, names in before.items():
        now = after.get(kind, {})
        if kind in {"place", "variable", "setting of torch"}:
            for name in names.keys() | (now.keys() if kind == "variable" else ()):
                if (old := names.get(name)) != (new := now.get(name)):
                    yield f"{kind} {name}: {old!r} became {new!r}"
            continue
        if all(map(is_, names.values(), now.values())):
            continue  # the same, in the same order
        for name, old in names.items():
            if (
                name in now
                and now[name] is not old
                and _counts(kind, old, now[name])
                and not _own(kind, name, now[name])
            ):
                yield f"{kind} {name} is another one"


def _counts(kind: str, old: object, new: object) -> bool:
    """Whether both are modules, or functions or classes by their own type: proxies answer for what they stand for, and
    import it.
    """
    return kind == "module" or all(issubclass(type(one), FunctionType | type) for one in (old, new))


def _own(kind: str, name: str, new: object) -> bool:
    """Whether a library replaced its own objects: torch when its compiler is first imported, transformers itself, and
    omni-kit's kernels, which are registered again for each model; or a class is registered by its own name.
    """
    if kind == "module":
        return name.partition(".")[0] in _LIBRARIES or name.startswith("omni_kit_")
    module = str(getattr(new, "__module__", None))
    return module.partition(".")[0] == kind.partition(".")[0] or name.startswith(f"{module}.")


def _settings(torch: Any) -> dict[str, Any]:
    if not hasattr(torch, "compile"):
        return {}
    return {
        "threads": torch.get_num_threads(),
        "default type": torch.get_default_dtype(),
        "default device": torch.get_default_device(),
        "gradients": torch.is_grad_enabled(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "precision of products": torch.get_float32_matmul_precision(),
        "functions that see every operation": torch.overrides._get_current_function_mode_stack(),
    }
