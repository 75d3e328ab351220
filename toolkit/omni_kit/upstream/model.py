"""Model that a checkpoint is checked against: a class of a library with a config, whichever library it is."""

from collections.abc import Mapping
from typing import Any, Protocol

from omni_kit.pysource.library import Library
from omni_kit.pysource.source import SourceFile
from omni_kit.upstream.skeleton import Skeleton
from omni_kit.upstream.transformers.recipes.book import Recipe


class Model(Protocol):
    """One upstream model: of transformers, or of diffusers."""

    @property
    def library(self) -> Library:
        """The library that defines it."""

    @property
    def name(self) -> str:
        """Identifier of the model: its model_type, or its class."""

    @property
    def class_name(self) -> str:
        """The class that its weights are loaded into."""

    @property
    def source(self) -> SourceFile:
        """The file that defines the class."""

    @property
    def given(self) -> Mapping[str, Any]:
        """Values of its config."""

    @property
    def skeleton(self) -> Skeleton:
        """Names and shapes of its parameters."""

    @property
    def recipe(self) -> Recipe | None:
        """Transformations of a checkpoint during loading; None if it is loaded unchanged."""
