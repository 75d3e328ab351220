"""Differences between variants of one pipeline: config switches of its components that its code reads."""

import ast
import inspect
from collections.abc import Iterator, Mapping
from typing import Any

from omni_kit.pysource.reads import attributes_read
from omni_kit.toys.pipelines.fitting import Changed
from omni_kit.upstream.diffusers.pipelines import SCHEDULER, Pipeline

_CHANCE = "stochastic"  # draws noise at each step from a generator that nobody hands over: no two runs are alike


def switched(read: Pipeline, pipeline: Any) -> Iterator[tuple[str, Changed]]:
    """Return difference -> the components' arguments that cause it: distilled and guided checkpoints differ so.

    Of the denoiser, switches that the pipeline's own file asks for; of the scheduler, those that its class asks for.
    """
    denoiser = read.denoiser.name
    asked = attributes_read(read.cls.source.tree, "config")
    for name, value in _switches(getattr(pipeline, denoiser).config, asked):
        yield f"{name}={value}", {denoiser: {name: value}}
    scheduler = getattr(pipeline, SCHEDULER)
    tree = ast.parse(inspect.getsource(inspect.getmodule(type(scheduler)) or type(scheduler)))
    for name, value in _switches(scheduler.config, attributes_read(tree, "config")):
        yield f"{name}={value}", {SCHEDULER: {name: value}}


def _switches(config: Mapping[str, Any], asked: frozenset[str]) -> Iterator[tuple[str, bool]]:
    for name, value in sorted(config.items()):
        if isinstance(value, bool) and name in asked and _CHANCE not in name:
            yield name, not value
