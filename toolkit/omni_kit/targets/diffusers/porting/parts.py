"""The pieces of the file that is written: the authors' definitions, with the names that they have there."""

import re
import textwrap
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import libcst as cst

from omni_kit.errors import Refusal
from omni_kit.targets.diffusers.porting.devices import compiled_at
from omni_kit.targets.diffusers.porting.syntax import chain, names_used
from omni_kit.targets.diffusers.porting.visiting import visited, walk
from omni_kit.upstream.repositories.closure import Closure
from omni_kit.upstream.repositories.names import Defined, keeps_names, unpacked
from omni_kit.upstream.repositories.repository import Repository

# How what torch has is written here, longest first.
_USUAL = (("torch.nn.functional.", "F."), ("torch.nn.", "nn."), ("torch.", "torch."))
_UNUSUAL = "torch.nn.attention.flex_attention."  # no attribute of torch.nn.attention until something imports it
_Small = cst.BaseSmallStatement | cst.RemovalSentinel
_IMPORTS = {"F": "import torch.nn.functional as F", "nn": "import torch.nn as nn", "torch": "import torch"}


@dataclass
class Part:
    """One definition on its way into the file.

    Attributes:
        definition: what the authors wrote.
        name: what it is called in the file.
        node: its syntax.
        before: what stands in front of it that the authors did not have.
    """

    definition: Defined
    name: str
    node: cst.BaseStatement
    before: list[cst.BaseStatement] = field(default_factory=list)

    @property
    def cls(self) -> cst.ClassDef | None:
        """Its syntax, where it is a class."""
        return self.node if isinstance(self.node, cst.ClassDef) else None


@dataclass
class Parts:
    """All that goes into the file.

    Attributes:
        parts: in the order of the file; the model's own class last.
        imports: the lines that import what they use.
    """

    parts: list[Part]
    imports: list[str]

    def of(self, one: Defined) -> Part | None:
        """Return the part that a definition became."""
        return next((part for part in self.parts if part.definition == one), None)

    @property
    def root(self) -> Part:
        """The model's own class."""
        return self.parts[-1]


def collect(closure: Closure, prefix: str, model: str, imported: Collection[str] = ()) -> Parts:
    """Return the authors' definitions with the names of the file, and the imports that they need.

    Args:
        prefix: what classes are called after.
        model: the name of the model's own class.
        imported: names that the file may import, and that nothing in it may have.

    Raises:
        Refusal: a definition is of a form that cannot be extracted from its file, or an extension in C++ or CUDA.
    """
    built = (_built(one, imported) for one in closure.definitions for imported in closure.foreign[one].values())
    if compiled := next(filter(None, [*map(compiled_at, closure.definitions), *built]), ""):
        needs = f"{closure.definitions[-1].name} needs C++ or CUDA code compiled at {compiled}"
        hint = "write what it computes with PyTorch in a copy of the authors' files, and pass the class there"
        raise Refusal(f"{needs}: only Python is ported", hint)
    names = _final_names(closure, prefix, model, imported)
    imports: dict[str, None] = {}
    parts = []
    for one in closure.definitions:
        written = {name: names[other] for name, other in closure.uses[one].items()}
        for name, imported in closure.foreign[one].items():
            written[name], line = _usual(one, name, imported)
            imports[line] = None
        inlined = {name.partition(".")[0] for name in closure.uses[one]} & one.source.inner_imports.keys()
        node = visited(_parsed(one), WithoutImports(inlined), _Written({**written, one.name: names[one]}))
        parts.append(Part(one, names[one], node))
    return Parts(parts, list(imports))


def without_unreached(parts: Parts) -> None:
    """Leave out what the model does not come to any more: what decorators or checkpoints of the authors needed."""
    wanted, reached = [parts.root], list[Part]()
    while wanted:
        reached.append(wanted.pop())
        used = {name for one in (*reached[-1].before, reached[-1].node) for name in names_used(one)}
        wanted += [one for one in parts.parts if one not in reached and one not in wanted and used & _bound_by(one)]
    parts.parts = [one for one in parts.parts if one in reached or not _bound_by(one)]


def _bound_by(part: Part) -> set[str]:
    """Return the names that a part binds for the file, below conditions, too."""
    found: set[str] = set()
    rest: list[cst.CSTNode] = [*part.before, part.node]
    while rest:
        node = rest.pop()
        if isinstance(node, cst.FunctionDef | cst.ClassDef):
            found.add(node.name.value)
        elif isinstance(node, cst.Import | cst.ImportFrom) and not isinstance(node.names, cst.ImportStar):
            found |= {(one.evaluated_alias or one.evaluated_name).partition(".")[0] for one in node.names}
        elif isinstance(node, cst.Assign):
            found |= {name.value for one in node.targets for name in walk(one.target) if isinstance(name, cst.Name)}
        elif isinstance(node, cst.AnnAssign | cst.AugAssign):
            found |= {name.value for name in walk(node.target) if isinstance(name, cst.Name)}
        elif not isinstance(node, cst.BaseExpression):
            rest += node.children
    return found


def _built(one: Defined, imported: str) -> str:
    """Return where a project of the repository compiles what a definition imports; empty for anything else."""
    library, module = one.source.library, imported.partition(".")[0]
    return library.extensions.get(module, "") if isinstance(library, Repository) else ""


def _final_names(closure: Closure, prefix: str, model: str, imported: Collection[str]) -> dict[Defined, str]:
    found: dict[Defined, str] = {closure.definitions[-1]: model}
    for one in closure.definitions[:-1]:
        is_class = type(one.node).__name__ == "ClassDef"
        if keeps_names(one.node):
            found[one] = one.name
            continue
        wanted = one.name if not is_class or one.name.lower().startswith(prefix.lower()) else prefix + one.name
        if wanted in imported or wanted in found.values():  # two files of the authors have one name
            stem = one.source.path.stem
            wanted = f"{prefix}{stem.title().replace('_', '')}{one.name}" if is_class else f"{stem}_{one.name}"
        number = 2
        while wanted in found.values():
            wanted, number = f"{re.sub(r'_?[0-9]+$', '', wanted)}_{number}", number + 1
        found[one] = wanted
    for one in found:
        _checked_apart(one, found)
    return found


def _checked_apart(one: Defined, names: Mapping[Defined, str]) -> None:
    """Check that no other definition has a name that an assignment to several at once binds.

    Raises:
        Refusal: one has.
    """
    bound = unpacked(one.node)
    for other, name in names.items():
        if other != one and (shared := {*bound} & {name, *unpacked(other.node)}):
            what = f"{min(shared)} is bound at {one.source.where(one.node)} and {other.source.where(other.node)}"
            raise Refusal(f"{what}: one file cannot have both", "rename one of them in a copy of the authors' files")


def _usual(one: Defined, name: str, absolute: str) -> tuple[str, str]:
    """Return the spelling of an import in the file, and the line that imports it."""
    for whole, short in _USUAL:
        if absolute.startswith(whole) and not absolute.startswith(_UNUSUAL):
            written = short + absolute.removeprefix(whole)
            return written, _IMPORTS[written.partition(".")[0]]
    if absolute in ("torch.nn", "torch.nn.functional", "torch"):
        written = {"torch.nn": "nn", "torch.nn.functional": "F", "torch": "torch"}[absolute]
        return written, _IMPORTS[written]
    head = name.partition(".")[0]
    imported = one.source.imports.get(head)
    if imported is not None and imported.name is None:
        known = f" as {head}" if head != imported.module.partition(".")[0] else ""
        return name, f"import {imported.module}{known}"
    # The absolute name, not the import of the file: that may go by another file of the authors', or by a star.
    return name, _importing(head, absolute.removesuffix(name.removeprefix(head)))


def _importing(name: str, absolute: str) -> str:
    """Return the line that imports an absolute name under another."""
    module, _, last = absolute.rpartition(".")
    alias = "" if last == name else f" as {name}"
    return f"from {module} import {last}{alias}" if module else f"import {absolute}{alias}"


def _parsed(one: Defined) -> cst.BaseStatement:
    """Return the syntax of a definition, with the comments that stand right above it."""
    lines = one.source.lines
    decorators = getattr(one.node, "decorator_list", [])
    first = min([one.node.lineno, *(node.lineno for node in decorators)]) - 1
    while first and lines[first - 1].lstrip().startswith("#") and one.node.col_offset == _indent(lines[first - 1]):
        first -= 1
    text = textwrap.dedent("\n".join(lines[first : one.node.end_lineno]))
    try:
        module = cst.parse_module(text + "\n")
    except cst.ParserSyntaxError as error:
        raise Refusal(f"{one.source.where(one.node)} cannot be extracted from its file: {error.message}") from error
    node = module.body[0]
    if module.header and hasattr(node, "leading_lines"):
        node = node.with_changes(leading_lines=[*module.header, *node.leading_lines])
    return node


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


class WithoutImports(cst.CSTTransformer):
    """Leaves out what functions import and the file itself has."""

    def __init__(self, names: Collection[str]) -> None:
        self.names = names

    def leave_Import(self, original_node: cst.Import, updated_node: cst.Import) -> _Small:  # noqa: N802
        """`import a.b as c`."""
        return self._kept(updated_node, updated_node.names)

    def leave_ImportFrom(self, original_node: cst.ImportFrom, updated_node: cst.ImportFrom) -> _Small:  # noqa: N802
        """`from a import b as c`."""
        return updated_node if isinstance(updated_node.names, cst.ImportStar) else self._kept(
            updated_node, updated_node.names
        )  # fmt: skip

    def leave_IndentedBlock(  # noqa: N802
        self, original_node: cst.IndentedBlock, updated_node: cst.IndentedBlock
    ) -> cst.IndentedBlock:
        """A block has a statement."""
        return updated_node if updated_node.body else updated_node.with_changes(body=[cst.parse_statement("pass")])

    def _kept(self, node: cst.Import | cst.ImportFrom, names: Sequence[cst.ImportAlias]) -> _Small:
        kept = [one for one in names if (one.evaluated_alias or one.evaluated_name.partition(".")[0]) not in self.names]
        if len(kept) == len(names):
            return node
        if not kept:
            return cst.RemoveFromParent()
        return node.with_changes(names=[*kept[:-1], kept[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)])


class _Written(cst.CSTTransformer):
    """Writes the names of other definitions, and of what is imported, as the file has them."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self.names = names
        self.bound: list[set[str]] = []

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:  # noqa: N802
        """Note the names that a function binds."""
        self.bound.append(_bound(node))

    def leave_FunctionDef(self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef) -> cst.FunctionDef:  # noqa: N802
        """Its name is a method's, or that of the definition itself."""
        self.bound.pop()
        own = self.names.get(original_node.name.value) if not self.bound and not self._inside else None
        return (
            updated_node.with_changes(name=cst.Name(own)) if own else updated_node.with_changes(name=original_node.name)
        )

    _inside = 0

    def visit_ClassDef(self, node: cst.ClassDef) -> None:  # noqa: N802
        """Its functions are methods."""
        self._inside += 1

    def leave_ClassDef(self, original_node: cst.ClassDef, updated_node: cst.ClassDef) -> cst.ClassDef:  # noqa: N802
        """Return the name of the definition itself."""
        self._inside -= 1
        return updated_node

    def visit_Attribute(self, node: cst.Attribute) -> bool:  # noqa: N802
        """A whole chain is one name."""
        return not self._other(node)

    def leave_Attribute(self, original_node: cst.Attribute, updated_node: cst.Attribute) -> cst.BaseExpression:  # noqa: N802
        """Return the chain as the file has it; what is asked of anything else stays."""
        if other := self._other(original_node):
            return cst.parse_expression(other)
        return updated_node.with_changes(attr=original_node.attr)

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.BaseExpression:  # noqa: N802
        """Return the name as the file has it."""
        other = self._other(original_node)
        return cst.parse_expression(other) if other else updated_node

    _annotating = 0

    def visit_Annotation(self, node: cst.Annotation) -> None:  # noqa: N802
        """Texts in it may be names."""
        self._annotating += 1

    def leave_Annotation(self, original_node: cst.Annotation, updated_node: cst.Annotation) -> cst.Annotation:  # noqa: N802
        """Read what follows as code again."""
        self._annotating -= 1
        return updated_node

    def leave_SimpleString(  # noqa: N802
        self, original_node: cst.SimpleString, updated_node: cst.SimpleString
    ) -> cst.SimpleString:
        """Return a name that is written as a text, as classes name themselves: `"MLP"`, and `type["MLP"]`."""
        other = self.names.get(str(updated_node.raw_value), "") if self._annotating else ""
        return cst.SimpleString(f'"{other}"') if other else updated_node

    def leave_Arg(self, original_node: cst.Arg, updated_node: cst.Arg) -> cst.Arg:  # noqa: N802
        """The name of an argument is no variable."""
        return updated_node.with_changes(keyword=original_node.keyword)

    def leave_Param(self, original_node: cst.Param, updated_node: cst.Param) -> cst.Param:  # noqa: N802
        """Neither is that of a parameter."""
        return updated_node.with_changes(name=original_node.name)

    def _other(self, node: cst.CSTNode) -> str:
        name = chain(node)
        if not name or any(name.partition(".")[0] in bound for bound in self.bound):
            return ""
        return self.names.get(name, "") if self.names.get(name, name) != name else ""


def _bound(function: cst.FunctionDef) -> set[str]:
    """Return the names that a function's body binds: its arguments and assignments."""
    given = function.params
    every = [*given.posonly_params, *given.params, *given.kwonly_params, given.star_kwarg, given.star_arg]
    found = {one.name.value for one in every if isinstance(one, cst.Param)}
    finder = _Stores()
    function.body.visit(finder)
    return found | finder.found


class _Stores(cst.CSTVisitor):
    def __init__(self) -> None:
        self.found: set[str] = set()

    def visit_AssignTarget(self, node: cst.AssignTarget) -> None:  # noqa: N802
        self._add(node.target)

    def visit_For(self, node: cst.For) -> None:  # noqa: N802
        self._add(node.target)

    def visit_CompFor(self, node: cst.CompFor) -> None:  # noqa: N802
        self._add(node.target)

    def _add(self, target: cst.BaseExpression) -> None:
        if isinstance(target, cst.Name):
            self.found.add(target.value)
        elif isinstance(target, cst.Tuple | cst.List):
            for element in target.elements:
                self._add(element.value)
