"""Real libraries and toy checkpoints that every room is tested on."""

import ctypes
import gc
import json
import os
import resource
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import _lru_cache_wrapper
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import Any, NoReturn

import pytest

from omni_kit.isolation import groups, requests, servers, worker
from omni_kit.parity.processes.workers import Sides
from omni_kit.pysource import source
from omni_kit.pysource.library import Library, find_library
from omni_kit.upstream.transformers.configs import ModelConfig, config_class
from omni_kit.upstream.transformers.models import UpstreamModel, upstream_model

from .state import changes, forget_temporary, state

# Toys are too small to be shared by threads, which only wait for each other where tests run side by side.
os.environ.setdefault("OMP_NUM_THREADS", "1")
servers._MOST = 11  # more kinds of processes than one command has, and each takes seconds to start
source._FEW = 40_000_000  # blocks of memory; `bounded_memory` gives it back
gc.set_threshold(50_000, 20, 50)  # millions of objects of libraries stay: looking through them takes a part of the time

# Small sizes that all differ; each config takes those that it has.
SIZES: dict[str, Any] = {
    "hidden_size": 64, "intermediate_size": 40, "num_hidden_layers": 3, "vocab_size": 97, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "moe_intermediate_size": 24, "num_experts": 6, "num_local_experts": 6,
    "num_experts_per_tok": 2, "first_k_dense_replace": 1, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip

_MACHINE = os.sysconf("SC_PHYS_PAGES") * resource.getpagesize()
_MOST = min(max(_MACHINE // 5, 3 << 30), 9 << 29)  # bytes of a worker: to forget, and to read again, takes many seconds

Checkpoints = Callable[[str], Path]
Models = Callable[..., UpstreamModel]


_bound = _MOST


@pytest.fixture(autouse=True, scope="module")
def state_as_before() -> Iterator[None]:
    """Fail a file that leaves changed what other files of its process use."""
    before = state()
    yield
    forget_temporary(before)
    assert not (found := [*changes(before, state())]), "\n".join(["this file leaves the process changed:", *found])


@pytest.fixture(autouse=True)
def bounded_memory() -> Iterator[None]:
    """End what omni-kit keeps of the files that tests have made, once that is much, and give the memory back."""
    global _bound
    yield
    if _resident() > _bound:
        gc.unfreeze()
        for one in gc.get_objects():
            if type(one) is _lru_cache_wrapper and str(one.__module__).startswith("omni_"):
                one.cache_clear()
        gc.collect()
        if hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
            libc.malloc_trim(0)  # else pages stay of which a few bytes are used
        _bound = max(_MOST, _resident() + _MOST // 2)


def _resident() -> int:
    file = Path("/proc/self/statm")
    return int(file.read_text().split()[1]) * resource.getpagesize() if file.is_file() else 0


@pytest.fixture(scope="session")
def library() -> Library:
    """The installed transformers."""
    return find_library("transformers")


@pytest.fixture(scope="session")
def model(library: Library) -> Models:
    """The upstream model of a model_type, with config values over its defaults."""

    def make(model_type: str, **values: Any) -> UpstreamModel:
        return upstream_model(library, ModelConfig(config_class(library, model_type), values, "config.json"))

    return make


@pytest.fixture(scope="session")
def toy_model() -> Callable[[str], Any]:
    """A toy of a model_type, built by transformers itself."""

    def make(model_type: str) -> Any:
        from transformers import AutoConfig, AutoModelForCausalLM

        default = AutoConfig.for_model(model_type)
        config = AutoConfig.for_model(model_type, **{k: v for k, v in SIZES.items() if hasattr(default, k)})
        return AutoModelForCausalLM.from_config(config)

    return make


@pytest.fixture(scope="session")
def checkpoint(toy_model: Callable[[str], Any], tmp_path_factory: pytest.TempPathFactory) -> Checkpoints:
    """A toy checkpoint in hub layout, sharded with an index, by transformers' own save_pretrained."""
    made: dict[str, Path] = {}

    def make(model_type: str) -> Path:
        if model_type not in made:
            place = tmp_path_factory.mktemp("checkpoints") / model_type
            toy_model(model_type).save_pretrained(place, max_shard_size="60KB")
            made[model_type] = place
        return made[model_type]

    return make


@pytest.fixture(scope="session")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sides]:
    """One reference and one candidate process for all tests that do not end them."""
    with Sides(tmp_path_factory.mktemp("sides"), timeout=120) as running:
        yield running


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--no-torch", action="store_true", help="Skip tests that import torch or start a worker.")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Side by side, begin with the long files, so that no worker is left with one at the end."""
    if hasattr(config, "workerinput"):
        from .side_by_side import turn

        items.sort(key=turn)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    """Return the scheduler of whole files."""
    from .side_by_side import FromBothEnds

    return FromBothEnds(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--no-torch"):
        sys.meta_path.insert(0, _NoTorch())
        for module, name in ((worker, "start"), (requests, "start_server"), (groups, "run_group")):
            setattr(module, name, _needs_torch)


def _needs_torch(*_: object, **__: object) -> NoReturn:
    pytest.skip("needs torch", allow_module_level=True)


class _NoTorch(MetaPathFinder):
    """Skips the test, or the module of tests, that imports torch."""

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        """Skip for torch; leave every other module to the finders behind."""
        if fullname == "torch":
            _needs_torch()


def sampled(cases: Iterable[Any], *sample: Any) -> list[Any]:
    """Return the cases of a parametrized test, of which those outside of the sample belong to the sweep."""
    return [case if case in sample else _swept(case) for case in cases]


def first(count: int, cases: Iterable[Any]) -> list[Any]:
    """Return the cases of a parametrized test, of which those behind the first ones belong to the sweep."""
    return [case if number < count else _swept(case) for number, case in enumerate(cases)]


def _swept(case: Any) -> Any:
    """A case of the sweep; a tuple has a value for each argument of the test."""
    return pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.sweep)


def run_cli(*arguments: str) -> tuple[int, dict[str, Any]]:
    """Runs the CLI in JSON mode; returns the exit code and the one object on stdout."""
    import contextlib
    import io

    from omni_kit.cli import main

    stdout = io.StringIO()
    with contextlib.redirect_stdout(stdout):
        code = main([*arguments, "--format", "json"])
    return code, json.loads(stdout.getvalue())
