"""From a class of the authors' repository to the text of a model file of diffusers."""

import ast
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import libcst as cst

from omni_kit.errors import BadInput
from omni_kit.formatting import format_python
from omni_kit.pysource.library import Library
from omni_kit.pysource.source import parse_file
from omni_kit.standins import ROOT
from omni_kit.targets.diffusers.porting.alternatives import chosen
from omni_kit.targets.diffusers.porting.annotations import without_foreign_annotations
from omni_kit.targets.diffusers.porting.attention import Attended, port_attention
from omni_kit.targets.diffusers.porting.casting import without_casts
from omni_kit.targets.diffusers.porting.checking import repaired
from omni_kit.targets.diffusers.porting.constructor import (
    port_constructor,
    without_modules_of_arguments,
)
from omni_kit.targets.diffusers.porting.dense_masks import with_dense_masks
from omni_kit.targets.diffusers.porting.devices import without_extensions, without_properties
from omni_kit.targets.diffusers.porting.double_precision import with_supported_precision
from omni_kit.targets.diffusers.porting.embedding_precision import with_cast_embeddings
from omni_kit.targets.diffusers.porting.explicit_attention import as_calls
from omni_kit.targets.diffusers.porting.feed_forward import Layers, with_feed_forwards
from omni_kit.targets.diffusers.porting.float_norms import with_float_norms
from omni_kit.targets.diffusers.porting.forward import TEXT, TEXT_WIDTH, Forward, lists_of_blocks, port_forward
from omni_kit.targets.diffusers.porting.inheriting import with_bases
from omni_kit.targets.diffusers.porting.initialising import without_initial_weights
from omni_kit.targets.diffusers.porting.kept_in_float32 import kept_in_float32
from omni_kit.targets.diffusers.porting.labels import Guided, Labels, guided_of, guiding_methods, labels_of
from omni_kit.targets.diffusers.porting.masks import masks_of_latents, masks_of_padding
from omni_kit.targets.diffusers.porting.model_name import model_name
from omni_kit.targets.diffusers.porting.multihead import port_multihead
from omni_kit.targets.diffusers.porting.naming import Names, named, renamed
from omni_kit.targets.diffusers.porting.old_numpy import with_present_numpy
from omni_kit.targets.diffusers.porting.one_process import without_processes
from omni_kit.targets.diffusers.porting.optional_imports import guarded, needed_at, with_probes
from omni_kit.targets.diffusers.porting.parts import Part, Parts, collect, without_unreached
from omni_kit.targets.diffusers.porting.placement_arguments import without_placements
from omni_kit.targets.diffusers.porting.places import Place, alternatives, places_of
from omni_kit.targets.diffusers.porting.plain_types import without_foreign_types
from omni_kit.targets.diffusers.porting.rearranging import WithoutEinops
from omni_kit.targets.diffusers.porting.renaming import Row, rows_of
from omni_kit.targets.diffusers.porting.shared_modules import with_own_copies
from omni_kit.targets.diffusers.porting.syntax import (
    MARK,
    after_docstring,
    body_of,
    chain,
    code,
    own_attribute,
    statement,
    with_body,
    with_mark,
)
from omni_kit.targets.diffusers.porting.tidying import tidied
from omni_kit.targets.diffusers.porting.unused_methods import called_by_others, without_method, without_unused_methods
from omni_kit.targets.diffusers.porting.visiting import visited, walk
from omni_kit.upstream.diffusers.requirements import importable
from omni_kit.upstream.repositories.attention import attending_in
from omni_kit.upstream.repositories.license import header_of
from omni_kit.upstream.repositories.reference import Reference
from omni_kit.upstream.repositories.several_latents import several_in
from omni_kit.upstream.repositories.timestep import step_of

_ATTENDS = re.compile(r"softmax|attention|attn", re.IGNORECASE)
_LIBRARY_MODELS = "diffusers.models."
_EINOPS = "einops"
_EINOPS_MANY = ROOT / "einops_exts.py"
# What the file may need of the library, by the folder that it stands in: unused lines go away.
_LIBRARY = (
    ("configuration_utils", "ConfigMixin, register_to_config"),
    ("loaders", "FromOriginalModelMixin, PeftAdapterMixin"),
    ("models.attention", "AttentionMixin, AttentionModuleMixin, FeedForward"),
    ("models.attention_dispatch", "dispatch_attention_fn"),
    ("models.cache_utils", "CacheMixin"),
    ("models.modeling_outputs", "Transformer2DModelOutput"),
    ("models.modeling_utils", "ModelMixin"),
)
_OWN = ("configuration_utils.py", "models/modeling_utils.py", "models/attention.py")


_LOADING = "load_state_dict"  # of torch's own: where authors rename, the conversion does
_ABSTRACT, _TYPING = "from collections.abc import ", "from typing import "


@dataclass(frozen=True)
class Port:
    """A model file, and what is known of it.

    Attributes:
        text: the file.
        class_name: the model's.
        attention: what became of attention.
        forward: what became of forward.
        rows: the table of renamed parameters.
        todo: (line, what) of everything that is left to a person.
        labels: the class labels that it is told; None of a model that is told something else.
        guided: how its authors guide by them, or by a prompt, in a method of the model.
    """

    text: str
    class_name: str
    attention: Attended
    forward: Forward
    rows: Sequence[Row]
    todo: Sequence[tuple[int, str]] = field(default=())
    labels: Labels | None = None
    guided: Guided | None = None

    def called(self, name: str) -> "Port":
        """Return the port with another name of its class."""
        return replace(self, text=re.sub(rf"\b{self.class_name}\b", name, self.text), class_name=name)


def port(
    reference: Reference, prefix: str, library: Library, package: str, rules: Path | None = None, class_name: str = "",
    pictures: Collection[str] = (),
) -> Port:  # fmt: skip
    """Rewrites a class and all that it needs.

    Args:
        prefix: what the classes are called after.
        library: the diffusers that it is written for.
        package: how that is imported from the file: "diffusers", or "..." and "." in its own tree.
        rules: as `format_python` takes them.
        class_name: of the model; empty for what `model_name` chooses.
        pictures: arguments of forward that are known to be no prompt, but of the form of latents.

    Raises:
        BadInput: `class_name` is one that the file imports.
        Refusal: something cannot be extracted from its file.
    """
    name = class_name or model_name(reference, prefix)
    if name in _given():
        raise BadInput(f"{name} is a name of diffusers, which the file imports", "pass another --class-name")
    closure = without_foreign_annotations(
        chosen(without_processes(without_properties(without_extensions(reference.closure))))
    )
    closure = as_calls(with_dense_masks(with_bases(closure)))
    parts = collect(closure, prefix, name, _given())
    with_present_numpy(parts)
    without_foreign_types(parts)
    without_casts(parts)
    of_library = _methods(library)
    tidied(parts, {one.name for one in of_library} | {_LOADING})
    without_unused_methods(parts, {one.name for one, _ in guiding_methods(reference)} | called_by_others(reference))
    without_placements(parts)
    without_initial_weights(parts)
    with_own_copies(parts)
    with_supported_precision(parts)
    with_cast_embeddings(parts)
    with_float_norms(parts)
    left = _without_einops(parts)
    places_wanted, todo_joined = port_multihead(parts, prefix)
    blocks = _blocks(parts, reference)
    found = attending_in(closure)
    attention = port_attention(parts, closure, found, prefix)
    labels = labels_of(reference)
    worded = any(map(TEXT_WIDTH.search, reference.arguments))
    told = labels.argument if labels is not None else ""
    defined = reference.cls.method("forward")
    step = step_of(reference)[0]
    latents = next((name for name in reference.forward if name != step), "")
    alike = set[str]()
    if defined is not None:
        alike |= several_in(defined[1], latents) | masks_of_latents(defined[1], reference.forward)
        alike |= masks_of_padding(defined[1], reference.forward)
    forward = port_forward(parts, reference.forward, blocks, told, worded, step, {*alike, *pictures})
    condition = told or next((old for old, new in forward.names.items() if new == TEXT), "")
    guided = guided_of(reference, condition, forward.names) if condition else None
    if guided is not None:  # a pipeline guides
        without_method(parts.root, guided.method)
    imported = (name for names in closure.foreign.values() for name in names.values())
    librarys = any(name.startswith(_LIBRARY_MODELS) for name in imported)  # whose attention has processors
    attends = bool(attention.processors or places_wanted) or librarys
    own = port_constructor(parts, reference, {one.name for one in of_library if _is_property(one)}, attends=attends)
    moved = without_modules_of_arguments(parts, reference)
    if not found and not librarys and any(_ATTENDS.search(ast.unparse(one.node)) for one in closure.definitions):
        own.append("no attention was found in the authors' own code: give it a class with a processor")
    others = {"MultiheadAttention": places_wanted} if places_wanted else {}
    names, inner = _named(parts, forward, attention, others)
    _say_what_it_supports(parts.root, forward, _patterns(parts), kept_in_float32(parts))
    for what in [*forward.todo, *own, *_unlooped(blocks, forward)]:
        _mark(parts.root, what)
    for definition, what in dict.fromkeys([*left, *todo_joined, *attention.todo]):
        for part in parts.parts:
            if part.name == definition:
                _mark(part, what)
    rows = rows_of(attention.projections, names, inner.layers, inner.places, places_wanted)
    rows = [_as_authors_have(row, moved) for row in rows]
    rows += [Row(rf"{old}(\..+)?", (rf"{new}\1",)) for old, new in moved.items()]
    without_unreached(parts)
    sources = (one.definition.source for one in parts.parts)
    text = header_of(reference.cls.source, sources) + _assembled(parts, package, rules)
    return Port(text, name, attention, forward, rows, tuple(todo_in(text)), labels, guided)


def _as_authors_have(row: Row, moved: Mapping[str, str]) -> Row:
    """Return a row below a module that had the name of an argument, under that name."""
    head, dot, rest = row.pattern.partition(r"\.")
    before = next((old for old, new in moved.items() if new == head), head)
    return replace(row, pattern=f"{before}{dot}{rest}")


@dataclass(frozen=True)
class _Inside:
    """Places of classes, and the feed-forwards that become the library's."""

    places: Mapping[str, list[Place]]
    layers: Mapping[str, Mapping[str, Layers]]


def _named(parts: Parts, forward: Forward, attention: Attended, others: Mapping[str, str]) -> tuple[Names, _Inside]:
    """Give modules diffusers' names, where it is known of each at which places of the model it stands."""
    names = named(parts, forward.blocks, alternatives(parts))
    places = places_of(parts, others, names)
    if any(name not in places for name in (*attention.projections, *others.values())):
        return {}, _Inside(places_of(parts, others, {}), {})
    names = {name: one for name, one in names.items() if name in places}
    layers = with_feed_forwards(parts, names)
    renamed(parts, names)
    return names, _Inside(places, layers)


def todo_in(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines of a file that say what is left to do."""
    for number, line in enumerate(text.splitlines(), 1):
        if f"{MARK}: " in line:
            yield number, line.partition(f"{MARK}: ")[2]


def _without_einops(parts: Parts) -> list[tuple[str, str]]:
    left = []
    several = {part.name: part.definition.name for part in parts.parts if part.definition.source.path == _EINOPS_MANY}
    for part in (one for one in parts.parts if one.name not in several):
        written = {chain(one) for one in walk(part.node) if isinstance(one, cst.Attribute | cst.Name)}
        names = {**several}
        for line in parts.imports:
            imported = line.removeprefix("from ").partition(" import ")[2]
            if line.startswith(f"from {_EINOPS} "):
                original, _, alias = imported.partition(" as ")
                names[alias or original] = original
        names |= {one: one.rpartition(".")[2] for one in written if one.startswith(f"{_EINOPS}.")}
        visitor = WithoutEinops(names)
        part.node = visited(part.node, visitor)
        left += [(part.name, what) for what in dict.fromkeys(visitor.left)]
    used = {one.value for part in parts.parts if part.name not in several for one in walk(part.node)
            if isinstance(one, cst.Name)}  # fmt: skip
    parts.parts = [part for part in parts.parts if part.name not in several or part.name in used]
    return left


def _blocks(parts: Parts, reference: Reference) -> dict[str, str]:
    found = reference.cls.method("__init__")
    names = {part.definition.name: part.name for part in parts.parts if part.cls is not None}
    return lists_of_blocks(found[1], names) if found is not None else {}


def _methods(library: Library) -> list[ast.FunctionDef]:
    """Return the methods of the library's models, their properties among them."""
    files = (library.root / place for place in _OWN)
    trees = [parse_file(file)[1] for file in files if file.is_file()]
    classes = [node for tree in trees for node in tree.body if isinstance(node, ast.ClassDef)]
    mixins = [node for node in classes if node.name in ("ModelMixin", "ConfigMixin", "AttentionMixin")]
    return [item for node in mixins for item in node.body if isinstance(item, ast.FunctionDef)]


def _is_property(method: ast.FunctionDef) -> bool:
    """Return whether an attribute of its name cannot be set."""
    return any(getattr(one, "id", "") == "property" for one in method.decorator_list)


def _unlooped(blocks: dict[str, str], forward: Forward) -> list[str]:
    missed = [name for name in blocks if name not in forward.blocks]
    return [
        f"forward goes through {name} in a way that could not be analysed: checkpoint its blocks" for name in missed
    ]


def _patterns(parts: Parts) -> list[str]:
    """Parts of names of modules that lose too much in low precision: norms, and embeddings of positions."""
    names = {own_attribute(one) for part in parts.parts for one in walk(part.node) if isinstance(one, cst.Attribute)}
    return [word for word in ("pos_embed", "norm") if any(word in name for name in names)]


def _say_what_it_supports(root: Part, forward: Forward, patterns: Sequence[str], precise: Sequence[str]) -> None:
    assert root.cls is not None
    blocks = list(dict.fromkeys(forward.blocks.values()))
    lines = [
        f"_supports_gradient_checkpointing = {bool(blocks)}",
        f"_no_split_modules = {blocks!r}",
        f"_repeated_blocks = {blocks!r}",
        f"_skip_layerwise_casting_patterns = {list(patterns)!r}",
        *([f"_keep_in_fp32_modules = {list(precise)!r}"] if precise else []),
    ]
    body = body_of(root.cls)
    at = after_docstring(body)
    root.node = with_body(root.cls, [*body[:at], *map(statement, lines), *body[at:]])


def _mark(part: Part, what: str) -> None:
    if part.before and part.cls is None:
        return
    marked = with_mark(part.node, what)
    assert isinstance(marked, cst.BaseStatement)
    part.node = marked


def _assembled(parts: Parts, package: str, rules: Path | None) -> str:
    given = _given()
    abstract = {name for line in parts.imports if line.startswith(_ABSTRACT) for name in _imported(line)}
    kept = [_without(line, abstract if line.startswith(_TYPING) else given) for line in parts.imports]
    body = [one for part in parts.parts for one in (*part.before, part.node)]
    text = "\n\n\n".join(code(one).strip("\n") for one in body)
    kept = [line for line in kept if not _is_foreign(line) or _is_read(line, text)]
    theirs = {name for line in kept if line.startswith("from ") for name in _imported(line)}
    lines = [
        *filter(None, kept),
        "import functools",
        "import torch",
        "import torch.nn as nn",
        "import torch.nn.functional as F",
    ]
    for module, names in _LIBRARY:
        if own := [name for name in names.split(", ") if name not in theirs]:
            lines.append(f"from {_from(package, module)} import {', '.join(own)}")
    whole = "\n".join(dict.fromkeys(lines)) + "\n\n\n" + text + "\n"
    foreign = dict.fromkeys(line.split()[1].partition(".")[0] for line in lines if _is_foreign(line))
    whole = with_probes(guarded(whole, foreign, parts.root.name))
    formatted = format_python(whole, "transformer.py", rules)
    what = f"# {MARK}: remove this import or guard it: diffusers models depend only on torch"
    needed = {at: f"# {MARK}: write out {name}: the model calls it whether or not its package is installed"
              for at, name in needed_at(formatted, parts.root.name)}  # fmt: skip
    marked = []
    for at, line in enumerate(formatted.split("\n"), 1):
        marked += [what, line] if _is_foreign(line) else [needed[at], line] if at in needed else [line]
    return repaired("\n".join(marked))


def _given() -> set[str]:
    """Return the names that the file may import of the library."""
    return {name for _, names in _LIBRARY for name in names.split(", ")}


def _without(line: str, given: Collection[str]) -> str:
    """Return an import without what the file has anyway: from diffusers, where authors have it by another module, or
    its namesake of transformers; or from collections.abc.
    """
    head = line.partition(" import ")[0]
    if not re.match(r"from (diffusers|transformers|typing)\b", head):
        return line
    left = [name for name in _imported(line) if name not in given]
    return f"{head} import {', '.join(left)}" if left else ""


def _is_read(line: str, text: str) -> bool:
    """Return whether a file has a name that an import binds."""
    bound = [name.rpartition(" as ")[2].partition(".")[0] for name in line.partition("import ")[2].split(", ")]
    return any(re.search(rf"\b{re.escape(name.strip())}\b", text) for name in bound)


def _imported(line: str) -> list[str]:
    return line.partition(" import ")[2].split(", ")


def _from(package: str, module: str) -> str:
    """Return the import path of a module of the library: absolute, or relative to models/transformers."""
    if package:
        return f"{package}.{module}"
    return f"..{module.removeprefix('models.')}" if module.startswith("models.") else f"...{module}"


def _is_foreign(line: str) -> bool:
    """Return whether a line of the file's head imports what is neither torch's, Python's nor the library's own."""
    words = line.split()
    if len(words) < 2 or line[0].isspace() or words[0] not in ("import", "from") or words[1].startswith("."):
        return False
    return words[1].partition(".")[0] not in importable()
