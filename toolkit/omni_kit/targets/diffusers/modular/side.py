"""The candidate's side: a modular pipeline with a standard pipeline's components, watched at the same places."""

import importlib
import inspect
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import diffusers
import torch
from torch import nn

from omni_kit.errors import BadInput
from omni_kit.targets.diffusers.modular.faults import SWAPPED, faults_of, made, swapped
from omni_kit.targets.references.pipelines import PipelineBuilder
from omni_kit.targets.references.stages import noting
from omni_kit.targets.sides import StageFault
from omni_kit.toys.batches.pipeline import Scenario
from omni_kit.toys.tensors import Tensors
from omni_kit.upstream.diffusers.guidance import guidance_of
from omni_kit.upstream.diffusers.guiders import COMPONENT
from omni_kit.upstream.diffusers.package import package_root


class ModularBuilder(PipelineBuilder):
    """Loads components with diffusers' own loader, and runs blocks with them; its model is the denoiser."""

    def __init__(self) -> None:
        super().__init__()
        self._modular: Any = None
        self._mistake = ""

    def open(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Imports the package.

        Raises:
            BadInput: it has no pipeline of that name.
        """
        found = super().open(options)
        folder, name = Path(options["path"]), options["class_name"]
        module = importlib.import_module(f"{_package(folder)}.modular_pipeline")
        if not hasattr(module, name):
            raise BadInput(f"{module.__name__} has no {name}")
        self._class = getattr(module, name)
        self._blocks = _blocks(importlib.import_module(_package(folder)), self._class.default_blocks_name)
        return found

    def load(self, checkpoint: Path, dtype: str = "float32") -> nn.Module:
        """Return all components, and the modular pipeline with them; answers its denoiser."""
        model = super().load(checkpoint, dtype)
        self._modular = modular_of(self._class(self._blocks()), self._pipeline)
        return model

    @torch.no_grad()
    def _called(self, model: Any, scenario: Scenario) -> Tensors:
        guidance = guidance_of(self._read)
        given = self._given(self._pipeline, scenario)
        given = swapped(given) if self._mistake == SWAPPED else given
        asked = {name: value for name, value in given.items() if name in self._modular.blocks.input_names}
        guide(self._modular, {**_defaults(self._pipeline), **given}, guidance.scale)
        with noting(type(model), type(self._pipeline.scheduler)) as noted:
            state = self._modular(**asked)
        picture = torch.as_tensor(state.get(last_output(self._modular))).float()
        alone = guidance.together and any(name.startswith(COMPONENT) for name in self._modular.component_names)
        return noted.named(scenario.name, guidance.together, guidance.negative_first and not alone, picture)

    def faults(self, inputs: Tensors) -> Sequence[StageFault]:
        """Return the faults that the blocks support."""
        return faults_of(self._modular, self._pipeline)

    @contextmanager
    def mistaken(self, kind: str) -> Iterator[None]:
        """Make one while it is entered."""
        self._mistake = kind
        try:
            with made(self._modular, self._pipeline, kind):
                yield
        finally:
            self._mistake = ""


def _package(folder: Path) -> str:
    """Import path of a package: in a checkout of diffusers, next to those of the installed one."""
    inside = folder.parent.name == "modular_pipelines" and package_root(folder) is not None
    if not inside:
        sys.path.insert(0, str(folder.parent))
        return folder.name
    home = importlib.import_module("diffusers.modular_pipelines")
    if str(folder.parent) not in home.__path__:
        home.__path__.append(str(folder.parent))
    return f"{home.__name__}.{folder.name}"


def _blocks(package: Any, name: str) -> Any:
    """Return the blocks that a pipeline runs by default.

    Raises:
        BadInput: its package exports none of that name.
    """
    if not hasattr(package, name):
        raise BadInput(f"{package.__name__} exports no {name}", "name its blocks by default_blocks_name")
    return getattr(package, name)


def modular_of(modular: Any, standard: diffusers.DiffusionPipeline) -> Any:
    """Return a modular pipeline with the components and the settings of a standard one."""
    parts = {name: part for name, part in standard.components.items() if name in modular.component_names}
    settings = {name: value for name, value in standard.config.items() if name in modular._config_specs}
    modular.update_components(**parts, **settings)
    modular.set_progress_bar_config(disable=True)
    return modular


def guide(modular: Any, given: Mapping[str, Any], scale: str) -> None:
    """The scales that a standard pipeline is called with, for the guiders of a modular one."""
    for name in modular.component_names:
        if name.startswith(COMPONENT) and scale in given:
            own = given.get(scale + name.removeprefix(COMPONENT))
            value = own if own is not None else given[scale]
            modular.update_components(**{name: getattr(modular, name).new(guidance_scale=value)})


def _defaults(standard: Any) -> dict[str, Any]:
    found = inspect.signature(type(standard).__call__).parameters
    return {name: one.default for name, one in found.items() if one.default is not one.empty}


def last_output(modular: Any) -> str:
    """Return the name of what the last block answers.

    Raises:
        BadInput: it answers nothing.
    """
    names = list(modular.blocks.sub_blocks.values())[-1].intermediate_output_names
    if not names:
        raise BadInput(f"the last block of {type(modular).__name__} declares no output", "declare its outputs")
    return str(names[0])
