"""Facts that the checks of one result share, computed once."""

import ast
from functools import cached_property

from omni_kit.patchgen.apply import Applied
from omni_kit.patchgen.generate import Generated
from omni_kit.patchgen.locate import Libraries
from omni_kit.patchgen.scopes import Scopes, scopes_of
from omni_kit.patchgen.source import SourceModule
from omni_kit.patchgen.spec import Origin, PatchConfig


class Facts:
    """A result with its scopes and tree.

    Raises:
        SyntaxError: the result is not Python.
    """

    def __init__(self, made: Generated, libraries: Libraries) -> None:
        self.made, self.libraries = made, libraries
        self.scopes: Scopes = scopes_of(made.text)

    @property
    def config(self) -> PatchConfig:
        """The config that was run."""
        return self.made.loaded.config

    @property
    def source(self) -> SourceModule:
        """The upstream module."""
        return self.made.source

    @property
    def excluded(self) -> set[str]:
        """The definitions that the config leaves out."""
        return set(self.config.exclude)

    @property
    def applied(self) -> list[Applied]:
        """The patches that are in the output."""
        return [a for a in self.made.applied if a.done]

    @cached_property
    def upstream_scopes(self) -> Scopes:
        """The names that upstream's module binds and uses."""
        return scopes_of(self.source.text)

    @property
    def generated(self) -> SourceModule:
        """The result, parsed and indexed."""
        return self.made.module

    @property
    def tree(self) -> ast.Module:
        """The syntax tree of the result."""
        return self.generated.tree

    @cached_property
    def patched_at(self) -> dict[str, Applied]:
        """The patch at each path of the result: "C" for a class, "C.m" for a method, accessors as the plain name."""
        places: dict[str, Applied] = {}
        for applied in self.applied:
            target = applied.patch.target
            if applied.owner is not None and not (applied.definition and applied.definition.is_class):
                target = f"{applied.owner.path}.{_method_name(applied)}"
            places[target] = applied
        return places

    def patch_around(self, place: str) -> Applied | None:
        """Return the patch whose text is at `place` ("C.m"), if any."""
        parts = place.split(".")
        paths = (".".join(parts[:count]) for count in range(len(parts), 0, -1))
        return next((self.patched_at[path] for path in paths if path in self.patched_at), None)

    def origin_of(self, place: str) -> Origin | None:
        """Return the line of the config behind a place ("C.m") of the result: its patch's, or else the config's own."""
        around = self.patch_around(place)
        return around.patch.origin if around else self.config.origin


def _method_name(applied: Applied) -> str:
    return "__init__" if applied.patch.kind == "init_modification" else applied.name
