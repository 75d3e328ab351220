"""Applies each patch of a config to its place in the source: which definition it means, and what goes there."""

import ast
from dataclasses import dataclass, field, replace
from typing import Literal

from omni_kit.patchgen import targets
from omni_kit.patchgen.diagnostics import Diagnostic, error
from omni_kit.patchgen.fragment import Fragment, NoSource, fragment_of
from omni_kit.patchgen.header import Record, banner, code_hash
from omni_kit.patchgen.init import modified_init
from omni_kit.patchgen.loader import LoadedConfig
from omni_kit.patchgen.locate import Libraries
from omni_kit.patchgen.rename import Renaming, rename
from omni_kit.patchgen.scopes import scopes_of
from omni_kit.patchgen.source import Definition, SourceModule
from omni_kit.patchgen.spans import Edit, last_line, shift
from omni_kit.patchgen.spec import Patch, PatchType

Status = Literal["applied", "injected", "missing-target", "ambiguous-target", "shadowed", "excluded", "no-source"]
_DESCRIPTORS = ("@property", "@staticmethod", "@classmethod")


@dataclass
class Applied:
    """The outcome of one patch.

    `definition` is the upstream code that it replaces (None for an injected method), `owner` the class of a method,
    `fragment` the replacement as it stands in the output (None for an external one).
    """

    patch: Patch
    status: Status
    definition: Definition | None = None
    owner: Definition | None = None
    fragment: Fragment | None = None
    renaming: Renaming | None = None
    upstream_hash: str = "none"

    @property
    def done(self) -> bool:
        """Return whether the patch is in the output."""
        return self.status in ("applied", "injected")

    @property
    def kept_decorators(self) -> list[str]:
        """Upstream's decorators that stay over an overridden method, and act on the patch."""
        if self.definition is None or self.patch.patch_type is not PatchType.METHOD_OVERRIDE:
            return []
        return [f"@{ast.unparse(decorator)}" for decorator in self.definition.node.decorator_list]

    @property
    def owner_path(self) -> str:
        """The dotted path of the method's class; empty for anything else."""
        return self.owner.path if self.owner else ""

    @property
    def name(self) -> str:
        """The last name of the target, without "setter" or "deleter"."""
        parts = self.patch.target.split(".")
        return parts[-2] if len(parts) > 2 and parts[-1] in ("setter", "deleter") else parts[-1]

    @property
    def record(self) -> Record:
        """The patch's line in the header of the generated file."""
        patch = self.patch
        text = self.fragment.block() if self.fragment else patch.replacement_source or ""
        return Record(patch.kind, patch.target, patch.description or "", self.upstream_hash, code_hash(text))


@dataclass
class Patcher:
    """Applies patches one by one and collects the edits.

    `diagnostics` hold what keeps a patch from being applied; what is doubtful about those applied is for the checks.
    """

    loaded: LoadedConfig
    source: SourceModule
    libraries: Libraries
    diagnostics: list[Diagnostic] = field(default_factory=list)
    _edits: list[Edit] = field(default_factory=list)
    _touched: dict[str, list[str]] = field(default_factory=dict)
    _opened: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._shadowed, found = targets.shadowed(self.loaded.config)
        self.diagnostics += found

    def apply(self, patch: Patch) -> Applied:
        """Find the target and the replacement, and record the edit."""
        if id(patch) in self._shadowed:
            return Applied(patch, "shadowed")
        found = targets.find(patch, self.source)
        if found.status not in ("applied", "injected"):
            self.diagnostics.append(targets.unfit(patch, found.status, self.source))
            return Applied(patch, found.status)
        if patch.target.partition(".")[0] in self.loaded.config.exclude:
            message = f"{patch.target} is both patched and excluded; remove one"
            self.diagnostics.append(error("excluded-target", message, patch.origin, [patch.target]))
            return Applied(patch, "excluded")
        upstream = code_hash(self.source.code_of(found.definition)) if found.definition else "none"
        applied = Applied(patch, found.status, found.definition, found.owner, upstream_hash=upstream)
        return self._external(applied) if patch.replacement is None else self._written(applied)

    def edits(self) -> list[Edit]:
        """Return all edits, with a banner over each class that was changed."""
        banners = []
        for path, methods in self._touched.items():
            definition = self.source.get(path)
            assert definition is not None
            at = self.source.line_start(definition.first_line)
            text = banner(f"[MODIFIED CLASS] {path}", f"Methods patched: {', '.join(methods)}")
            banners.append(Edit(at, at, shift(text, 0, definition.node.col_offset)))
        return [*banners, *self._edits]

    def _written(self, applied: Applied) -> Applied:
        patch = applied.patch
        try:
            original = fragment_of(patch.replacement, self.loaded.registrations, self.libraries)
        except NoSource as why:
            self.diagnostics.append(error("no-source", f"{patch.target}: {why}", patch.origin, [patch.target]))
            return replace(applied, status="no-source")
        renaming = rename(original, patch.name_map)
        applied = replace(applied, renaming=renaming)
        if patch.patch_type is PatchType.INIT_MODIFICATION:
            return self._init(applied, renaming.fragment)
        is_method = patch.patch_type is PatchType.METHOD_OVERRIDE
        fragment = renaming.fragment.renamed(applied.name, inside=not is_method)
        if is_method:
            return self._method(applied, fragment)
        return self._whole(applied, fragment, original.name)

    def _whole(self, applied: Applied, fragment: Fragment, name: str) -> Applied:
        definition, patch = applied.definition, applied.patch
        assert definition is not None
        kind = "CLASS" if definition.is_class else "FUNCTION"
        old = f"Original class replaced with: {name}" if definition.is_class else ""
        title = self._banner(f"[PATCHED {kind}] {patch.target}", old, patch, fragment.module)
        self._replace(definition, title + fragment.block())
        return replace(applied, fragment=fragment)

    def _method(self, applied: Applied, fragment: Fragment) -> Applied:
        kept = self.source.decorators_of(applied.definition) if applied.definition else ""
        upstream = {line.strip() for line in kept.splitlines()}
        own = tuple(d for d in fragment.decorators if not (d in _DESCRIPTORS and d in upstream))
        fragment = replace(fragment, decorators=own)
        if applied.definition is not None:
            column = applied.definition.node.col_offset
            self._replace(applied.definition, fragment.block(_moved(kept, column)))
        else:
            self._inject(applied, fragment.block())
        self._touch(applied)
        return replace(applied, fragment=fragment)

    def _init(self, applied: Applied, fragment: Fragment) -> Applied:
        definition, owner = applied.definition, applied.owner
        assert definition is not None
        assert owner is not None
        try:
            text = modified_init(self.source, definition, owner, fragment)
        except NoSource as why:
            self.diagnostics.append(error("bad-init", f"{applied.patch.target}: {why}", applied.patch.origin))
            return replace(applied, status="no-source")
        self._edits.append(self._span(definition, shift(text, 0, definition.node.col_offset)))
        self._touch(applied, "__init__")
        return replace(applied, fragment=fragment)

    def _external(self, applied: Applied) -> Applied:
        patch, definition = applied.patch, applied.definition
        module, _, name = (patch.replacement_source or "").rpartition(".")
        if not module or patch.patch_type is PatchType.INIT_MODIFICATION:
            message = f"{patch.target}: an external patch needs module and name, and cannot modify an __init__"
            self.diagnostics.append(error("no-source", message, patch.origin, [patch.target]))
            return replace(applied, status="no-source")
        line = f"from {module} import {name} as {applied.name}\n"
        if patch.patch_type is PatchType.METHOD_OVERRIDE:
            text = f"# Import from: {patch.replacement_source}\n" + line + self._redecorated(applied)
            self._touch(applied)
            if definition is None:
                self._inject(applied, text)
                return applied
        else:
            kind = "CLASS" if patch.patch_type is PatchType.CLASS_REPLACEMENT else "FUNCTION"
            # An import that nothing in the module uses would be taken for a leftover and removed.
            kept = line if applied.name in scopes_of(self.source.text).uses else f"{line.rstrip()}  # noqa: F401\n"
            text = self._banner(f"[PATCHED {kind}] {patch.target}", "", patch, module) + kept
        assert definition is not None
        self._replace(definition, text)
        return applied

    def _redecorated(self, applied: Applied) -> str:
        """Return upstream's decorators around an imported method, which has no def to stand over."""
        if applied.definition is None:
            return ""
        text = applied.name
        for decorator in reversed(applied.definition.node.decorator_list):
            text = f"{self.source.of(decorator)}({text})"
        return f"{applied.name} = {text}\n" if text != applied.name else ""

    def _banner(self, title: str, old: str, patch: Patch, module: str) -> str:
        reason = f"Reason: {' '.join(patch.description.split())}" if patch.description else ""
        return banner(title, old, reason, f"Source: {module}")

    def _replace(self, definition: Definition, text: str) -> None:
        self._edits.append(self._span(definition, shift(text, 0, definition.node.col_offset)))

    def _span(self, definition: Definition, text: str) -> Edit:
        start = self.source.line_start(definition.first_line)
        return Edit(start, self.source.line_start(last_line(self.source, definition.node) + 1), text)

    def _inject(self, applied: Applied, text: str) -> None:
        owner = applied.owner
        assert owner is not None
        assert isinstance(owner.node, ast.ClassDef)
        first = owner.node.body[0]
        start = self.source.start_of(first)
        head = self.source.text[self.source.line_start(first.lineno) : start]
        indent = first.col_offset if head.isspace() or not head else owner.node.col_offset + 4
        if owner.path not in self._opened:
            self._opened.add(owner.path)
            if len(owner.node.body) == 1 and _is_empty(first):
                self._edits.append(Edit(start, self.source.end_of(first), ""))
            elif head.strip():
                self._edits.append(Edit(start, start, "\n" + " " * indent))
        at = self.source.line_start(owner.last_line + 1)
        before = "" if self.source.text[:at].endswith("\n") else "\n"
        self._edits.append(Edit(at, at, f"{before}\n{shift(text, 0, indent)}"))

    def _touch(self, applied: Applied, name: str = "") -> None:
        assert applied.owner is not None
        self._touched.setdefault(applied.owner.path, []).append(
            name or applied.patch.target[len(applied.owner.path) + 1 :]
        )


def _is_empty(node: ast.stmt) -> bool:
    is_ellipsis = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and node.value.value is ...
    return is_ellipsis or isinstance(node, ast.Pass)


def _moved(decorators: str, column: int) -> str:
    """Decorators at the margin. Alone they are no statement, so they are moved with one to decorate."""
    stand_in = "def _(): ...\n"
    return shift(f"{decorators}{' ' * column}{stand_in}", column, 0).removesuffix(stand_in) if decorators else ""
