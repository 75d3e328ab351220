"""The patch DSL: the content of a `*_patch_gen_config.py` about one modeling file.

It answers to the published interface of `patchgen.patch_spec`, so that configs written for it run unmodified. Nothing
is applied here: a config only records; the generator reads the replacement's text from the file where it was written.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeVar, overload

_T = TypeVar("_T")


class PatchType(Enum):
    """The effect of a patch on its target."""

    CLASS_REPLACEMENT = "class_replacement"
    METHOD_OVERRIDE = "method_override"
    FUNCTION_REPLACEMENT = "function_replacement"
    ADDITIONAL_IMPORT = "additional_import"
    INIT_MODIFICATION = "init_modification"


@dataclass(frozen=True)
class Origin:
    """The line of a config file that registered something."""

    path: str
    line: int


@dataclass
class Patch:
    """One change of one upstream definition.

    `replacement` is the live object when the config holds it, and None when `replacement_source` names an external
    one ("package.module.Name"). `inject` says that a method is meant to be new.
    """

    patch_type: PatchType
    target: str
    replacement: Any
    source_module: str | None = None
    description: str | None = None
    replacement_source: str | None = None
    name_map: dict[str, str] | None = None
    inject: bool = False
    origin: Origin | None = None

    @property
    def kind(self) -> str:
        """The patch type as a word, such as "method_override"."""
        return self.patch_type.value


@dataclass
class ImportSpec:
    """`from module import names`, `from module import *` without names, or `import module [as alias]`."""

    module: str
    names: list[str] | None = None
    alias: str | None = None
    is_from_import: bool = True
    origin: Origin | None = None


@dataclass
class PositionedHelper:
    """A function or class to copy to module level, next to the definition `target`."""

    target: str
    helper: Any
    placement: str = "after"
    origin: Origin | None = None


@dataclass
class PatchConfig:
    """All patches of one upstream module, and the file that they make.

    `strict` turns warnings into errors and asks for `inject=True` where a method is new.
    `transformers_version` is a version or a specifier ("5.9.0", ">=5.9,<5.12") that the source must satisfy.
    `optional` keeps a source module that is not installed from being an error.
    """

    source_module: str
    target_file: str = "patched_modeling.py"
    description: str = ""
    patches: list[Patch] = field(default_factory=list)
    additional_imports: list[ImportSpec] = field(default_factory=list)
    post_import_blocks: list[str] = field(default_factory=list)
    helpers: list[Any] = field(default_factory=list)
    positioned_helpers: list[PositionedHelper] = field(default_factory=list)
    drop_imported_names: set[str] = field(default_factory=set)
    exclude: list[str] = field(default_factory=list)
    transformers_version: str | None = None
    strict: bool = False
    optional: bool = False
    origin: Origin | None = field(default=None, repr=False)
    block_origins: dict[str, Origin] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        self.origin = self.origin or _caller()

    def replace_class(
        self,
        target_class: str,
        replacement: Any = None,
        name_map: dict[str, str] | None = None,
        description: str | None = None,
    ) -> Any:
        """Put another class instead of `target_class`; upstream's decorators go, the replacement's stay."""
        return self._register(PatchType.CLASS_REPLACEMENT, target_class, replacement, name_map, description)

    def override_method(
        self,
        target_method: str,
        replacement: Any = None,
        name_map: dict[str, str] | None = None,
        description: str | None = None,
        inject: bool = False,
    ) -> Any:
        """Replace "Class.method" and keep upstream's decorators; a method that upstream lacks is added and reported.

        "Class.prop" is the getter, "Class.prop.setter" and "Class.prop.deleter" the others; "Outer.Inner.method" works.
        """
        return self._register(
            PatchType.METHOD_OVERRIDE, target_method, replacement, name_map, description, inject=inject
        )

    def replace_function(
        self,
        target_func: str,
        replacement: Any = None,
        name_map: dict[str, str] | None = None,
        description: str | None = None,
    ) -> Any:
        """Replace a module-level function; upstream's decorators go, the replacement's stay."""
        return self._register(PatchType.FUNCTION_REPLACEMENT, target_func, replacement, name_map, description)

    def modify_init(self, target_class: str, replacement: Any = None, description: str | None = None) -> Any:
        """Wrap `target_class.__init__`: the function takes (original_init, self, ...) and calls the upstream one."""
        return self._register(PatchType.INIT_MODIFICATION, target_class, replacement, None, description)

    def adopt_init_modifications(self, other: "PatchConfig") -> None:
        """Take over the `modify_init` patches of another config.

        It is part of the published interface: configs of one device adopt those of another.
        """
        self.patches.extend(p for p in other.patches if p.patch_type is PatchType.INIT_MODIFICATION)

    def add_import(
        self, module: str, names: list[str] | None = None, alias: str | None = None, is_from_import: bool = True
    ) -> None:
        """Add an import to the generated file; see `ImportSpec` for the forms that it takes."""
        self.additional_imports.append(ImportSpec(module, names, alias, is_from_import, _caller()))

    @overload
    def add_helper(self, func: None = None) -> Callable[[_T], _T]:
        """Return the decorator, for `@config.add_helper()`."""

    @overload
    def add_helper(self, func: _T) -> _T:
        """Return the function or class itself, which is left as it is."""

    def add_helper(self, func: Any = None) -> Any:
        """Copy a function or class to module level, behind the imports."""
        if func is None:
            return self.add_helper
        _caller()
        self.helpers.append(func)
        return func

    def add_helper_after(self, target: str, helper: Any = None) -> Any:
        """Copy a function or class to module level, right behind the top-level definition `target`."""
        origin = _caller()

        def register(obj: _T) -> _T:
            self.positioned_helpers.append(PositionedHelper(target, obj, origin=origin))
            return obj

        return register if helper is None else register(helper)

    def add_post_import_block(self, block: str) -> None:
        """Add source text to module level, behind the imports."""
        if (origin := _caller()) is not None:
            self.block_origins[block] = origin
        self.post_import_blocks.append(block)

    def drop_import_names(self, *names: str) -> None:
        """Leave these names out of upstream's imports, guarded ones included."""
        self.drop_imported_names.update(names)

    def exclude_from_output(self, *names: str) -> None:
        """Leave these top-level definitions out, and out of a literal `__all__`."""
        self.exclude.extend(names)

    def get_patches_for_target(self, target: str) -> list[Patch]:
        """Return the patches of a definition and of what is inside it, in the order of their registration."""
        return [p for p in self.patches if p.target == target or p.target.startswith(f"{target}.")]

    def get_class_replacements(self) -> dict[str, Patch]:
        """Return the patches that replace a class, by target."""
        return self._by_target(PatchType.CLASS_REPLACEMENT)

    def get_method_overrides(self) -> dict[str, Patch]:
        """Return the patches that replace or add a method, by target."""
        return self._by_target(PatchType.METHOD_OVERRIDE)

    def get_function_replacements(self) -> dict[str, Patch]:
        """Return the patches that replace a function, by target."""
        return self._by_target(PatchType.FUNCTION_REPLACEMENT)

    def get_init_modifications(self) -> dict[str, Patch]:
        """Return the patches that wrap an `__init__`, by target."""
        return self._by_target(PatchType.INIT_MODIFICATION)

    def _by_target(self, patch_type: PatchType) -> dict[str, Patch]:
        return {p.target: p for p in self.patches if p.patch_type is patch_type}

    def _register(
        self,
        patch_type: PatchType,
        target: str,
        replacement: Any,
        name_map: dict[str, str] | None,
        description: str | None,
        inject: bool = False,
    ) -> Any:
        origin = _caller()

        def register(obj: _T) -> _T:
            self.patches.append(
                Patch(
                    patch_type,
                    target,
                    obj,
                    source_module=getattr(obj, "__module__", None),
                    description=description or _describe(patch_type, target, obj),
                    name_map=name_map,
                    inject=inject,
                    origin=origin,
                )
            )
            return obj

        if replacement is None:
            return register
        register(replacement)
        return None


def create_patch_from_external(
    target: str,
    replacement_module: str,
    replacement_name: str,
    patch_type: PatchType = PatchType.CLASS_REPLACEMENT,
    description: str | None = None,
) -> Patch:
    """Return a patch whose replacement is imported by the generated file; append it to `config.patches`."""
    return Patch(
        patch_type,
        target,
        None,
        source_module=replacement_module,
        description=description or f"Use {replacement_name} of {replacement_module}",
        replacement_source=f"{replacement_module}.{replacement_name}",
        origin=_caller(),
    )


def _describe(patch_type: PatchType, target: str, replacement: Any) -> str:
    name = getattr(replacement, "__name__", "the replacement")
    if patch_type is PatchType.METHOD_OVERRIDE:
        return f"Override {target}"
    if patch_type is PatchType.INIT_MODIFICATION:
        return f"Modify {target}.__init__"
    return f"Replace {target} with {name}"


_registrations: set[Origin] | None = None


@contextmanager
def recording() -> Iterator[set[Origin]]:
    """Collect the lines that register patches and helpers: decorators on them are no part of the replacement."""
    global _registrations
    before, _registrations = _registrations, set()
    try:
        yield _registrations
    finally:
        _registrations = before


_position: Origin | None = None


@contextmanager
def positioned(origin: Origin | None) -> Iterator[None]:
    """Say which line registers, where a config is read and no line of it runs."""
    global _position
    before, _position = _position, origin
    try:
        yield
    finally:
        _position = before


def _caller() -> Origin | None:
    """Return the line that registers, which is remembered as one that does."""
    origin = _position or _running_line()
    if origin is not None and _registrations is not None:
        _registrations.add(origin)
    return origin


def _running_line() -> Origin | None:
    """Return the innermost module-level line on the stack outside this file, so that wrappers and aliases lead home
    too.
    """
    frame = sys._getframe(1)
    while frame is not None and (frame.f_code.co_name != "<module>" or frame.f_code.co_filename == __file__):
        frame = frame.f_back  # type: ignore[assignment]
    return Origin(frame.f_code.co_filename, frame.f_lineno) if frame is not None else None


patch_spec = sys.modules[__name__]  # `import patchgen.patch_spec` and `import patchgen` both lead here
