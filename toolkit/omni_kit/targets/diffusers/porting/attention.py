"""Attention in diffusers' form: a class holds the layers, a processor computes, by the library's dispatch."""

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import libcst as cst

from omni_kit.pysource.eval import Unsupported
from omni_kit.pysource.source import dotted
from omni_kit.targets.diffusers.porting.attention_class import Lifted
from omni_kit.targets.diffusers.porting.dispatch import BACKEND, DISPATCH, Dispatched, NotTwice, without_namesakes
from omni_kit.targets.diffusers.porting.grouped import with_groups
from omni_kit.targets.diffusers.porting.held_layers import holds_layers_alone, with_held_layers, without_forward
from omni_kit.targets.diffusers.porting.layers import with_layers
from omni_kit.targets.diffusers.porting.parts import Part, Parts
from omni_kit.targets.diffusers.porting.per_head_projections import with_heads_apart
from omni_kit.targets.diffusers.porting.places import alternatives
from omni_kit.targets.diffusers.porting.projections import Projections, layers, projections_of
from omni_kit.targets.diffusers.porting.syntax import (
    Renamed,
    after_docstring,
    body_of,
    chain,
    code,
    ending,
    method,
    own_attribute,
    parameters,
    statement,
    with_body,
    with_method,
)
from omni_kit.targets.diffusers.porting.visiting import visited, walk
from omni_kit.upstream.repositories.attention import SDPA, Attending
from omni_kit.upstream.repositories.closure import Closure
from omni_kit.upstream.repositories.configured import in_words_of_config
from omni_kit.upstream.repositories.names import Defined

_OWN_METHOD = "self.processor"
_RULE = "DFU111"  # reports what no processor computes
_MODULE, _WEIGHTS = "attn", "attn_weights"  # a processor's argument, and what a variable of that name is called there


@dataclass
class Attended:
    """Result of rewriting attention.

    Attributes:
        projections: class -> what its layers are called now.
        todo: what is left to a person, by the class or the function that has it.
        processors: the classes that compute.
    """

    projections: dict[str, Projections] = field(default_factory=dict)
    todo: list[tuple[str, str]] = field(default_factory=list)
    processors: list[str] = field(default_factory=list)


def port_attention(parts: Parts, closure: Closure, found: Sequence[Attending], prefix: str) -> Attended:
    """Rewrites, in the parts, everything that computes attention by a kernel of torch's.

    Classes whose forward computes it get a processor; functions that do are told the backend by who calls them.
    """
    done = Attended()
    helpers = _helpers(closure, [one for one in found if one.by == SDPA])
    without_namesakes(parts, {part.name for part in parts.parts if part.definition in helpers})
    for part in parts.parts:
        if part.definition in helpers and part.cls is None:
            _dispatch_in_function(part, helpers, closure)
    holders = [part for part in parts.parts if part.cls is not None and part.definition in helpers]
    lifted, instead = Lifted(parts, prefix), alternatives(parts)
    for part in holders:
        assert part.cls is not None
        if part is not parts.root and holds_layers_alone(part, parts.parts):
            part.node = without_forward(part.cls)
            init, forward = _method(part.definition, "__init__"), _method(part.definition, "forward")
            if init is not None and forward is not None:
                known = _projections(part, forward, init, closure, helpers, found)
                done.projections[part.name] = with_held_layers(part, parts.parts, known)
        elif (
            part is not parts.root
            and _is_block(part, parts)
            and lifted.lift(part, _written_functions(part, closure, helpers))
        ):
            continue
        elif part is parts.root or _is_block(part, parts):
            _dispatch_in_place(part, helpers, closure)
            done.todo.append((part.name, "move this attention into a class of its own, with a processor"))
        else:
            others = [other for other in parts.parts if other.name in instead.get(part.name, ())]
            _with_processor(part, parts, closure, helpers, found, _processor_name(part, holders, prefix), done, others)
    done.processors += lifted.processors
    for one in found:
        if one.by not in (SDPA,) and not one.by.endswith("MultiheadAttention"):
            what = f"call {DISPATCH} here, in a processor: attention is {_said(one)} ({_RULE})"
            done.todo.append((parts_name(parts, one.definition), what))
    return done


def parts_name(parts: Parts, one: Defined) -> str:
    """Return the name of a definition in the file."""
    part = parts.of(one)
    return part.name if part is not None else one.name


def _said(one: Attending) -> str:
    return "written out" if one.by == "own" else f"computed by {one.by}"


def _helpers(closure: Closure, found: Sequence[Attending]) -> set[Defined]:
    """Return the definitions that compute attention, and the functions and classes that call such functions."""
    helpers = {one.definition for one in found}
    for one in closure.definitions:  # each after what it uses
        called = {other for other in closure.uses[one].values() if other in helpers}
        if any(isinstance(other.node, ast.FunctionDef) for other in called):
            helpers.add(one)
    return helpers


def _written_functions(part: Part, closure: Closure, helpers: set[Defined], parts: Sequence[Part] = ()) -> set[str]:
    return {
        other.name for other in closure.uses[part.definition].values()
        if other in helpers and isinstance(other.node, ast.FunctionDef)
    }  # fmt: skip


def _dispatch_in_function(part: Part, helpers: set[Defined], closure: Closure) -> None:
    """A function that computes attention takes the backend and passes it on."""
    functions = _written_functions(part, closure, helpers)
    given_on = Dispatched(functions, "backend=backend, parallel_config=parallel_config")
    changed = visited(part.node, given_on, NotTwice())
    assert isinstance(changed, cst.FunctionDef)
    more = cst.parse_statement("def f(backend=None, parallel_config=None): ...")
    assert isinstance(more, cst.FunctionDef)
    given = changed.params
    if given.star_kwarg is None and not given.kwonly_params and isinstance(given.star_arg, cst.MaybeSentinel):
        given = given.with_changes(params=[*given.params, *more.params.params])
    else:
        given = given.with_changes(kwonly_params=[*given.kwonly_params, *more.params.params])
    part.node = changed.with_changes(params=given)


def _dispatch_in_place(part: Part, helpers: set[Defined], closure: Closure) -> None:
    """A class that does more than attention keeps it where it is."""
    functions = _written_functions(part, closure, helpers)
    changed = visited(part.node, Dispatched(functions, BACKEND.format("self")), NotTwice())
    assert isinstance(changed, cst.ClassDef)
    own = [statement("_attention_backend = None"), statement("_parallel_config = None")]
    body = body_of(changed)
    at = after_docstring(body)
    part.node = with_body(changed, [*body[:at], *own, *body[at:]])


def _is_block(part: Part, parts: Parts) -> bool:
    """Return whether a class has modules of the authors that have parameters next to attention: feed-forwards, say."""
    init = _method(part.definition, "__init__")
    made = layers(init) if init is not None else {}
    known = {one.definition.name: one for one in parts.parts if one.cls is not None}
    inner = [known[name] for call in made.values() if (name := _name(call)) in known]
    return any(
        method(one.cls, "forward") is not None and "Linear" in code(one.cls) for one in inner if one.cls is not None
    )


def _name(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else ""


def _processor_name(part: Part, holders: Sequence[Part], prefix: str) -> str:
    single = sum(one.cls is not None for one in holders) == 1
    return f"{prefix}AttnProcessor" if single else f"{part.name}Processor"


def _method(one: Defined, name: str) -> ast.FunctionDef | None:
    body = getattr(one.node, "body", [])
    return next((item for item in body if isinstance(item, ast.FunctionDef) and item.name == name), None)


def _with_processor(
    part: Part,
    parts: Parts,
    closure: Closure,
    helpers: set[Defined],
    found: Sequence[Attending],
    name: str,
    done: Attended,
    others: Sequence[Part],
) -> None:
    """A class with attention becomes one that holds layers, and one that computes.

    Args:
        others: the classes that the authors make in its place: their parameters have the same names.
    """
    init, forward = _method(part.definition, "__init__"), _method(part.definition, "forward")
    if forward is None and _method(part.definition, "__call__") is not None:  # a processor, as diffusers has them
        _dispatch_in_place(part, helpers, closure)
        done.processors.append(part.name)
        return
    if forward is None or part.cls is None:
        _dispatch_in_place(part, helpers, closure)
        done.todo.append((part.name, "it inherits forward: give it a processor"))
        return
    if init is None:
        made = statement("def __init__(self, *args, **kwargs):\n    super().__init__(*args, **kwargs)\n")
        part.node = with_body(part.cls, [made, *body_of(part.cls)])
    if part.name not in done.projections:  # else the layers are those of its base, and have their names by now
        projections = Projections(unsure=["it inherits its constructor"])
        if init is not None:
            projections = _projections(part, forward, init, closure, helpers, found)
            projections = _only_its_own(part, parts, projections)
            for other in others:
                theirs = _projected(other, closure, helpers, found)
                if odd := [name for name, what in projections.layers.items() if theirs.get(name, what) != what]:
                    why = f"{other.name}, which the authors make in its place, keeps {odd[0]}"
                    projections = Projections(unsure=[why])
        for one in (part, *_heirs(part, parts)):
            assert one.cls is not None
            one.node = with_layers(one.cls, projections)
            done.projections[one.name] = projections
        own = layers(init) if init is not None else None  # one without layers is passed queries, keys and values
        unsure = projections.unsure if own is None or (own and not {"to_q", "to_k", "to_v"} <= own.keys()) else []
        done.todo += [(part.name, f"name the layers to_q, to_k, to_v: {why}") for why in unsure]
    assert part.cls is not None
    functions = _written_functions(part, closure, helpers)
    processor, holder = _apart(part.cls, name, functions)
    part.before.append(with_heads_apart(processor))
    part.node = holder
    done.processors.append(name)


def _projections(
    part: Part, forward: ast.FunctionDef, init: ast.FunctionDef, closure: Closure, helpers: set[Defined],
    found: Sequence[Attending],
) -> Projections:  # fmt: skip
    functions = {
        name for name, other in closure.uses[part.definition].items()
        if other in helpers and isinstance(other.node, ast.FunctionDef)
    }  # fmt: skip
    own = [one.node for one in found if one.definition == part.definition and one.function is forward]
    calls = own or [
        node for node in ast.walk(forward) if isinstance(node, ast.Call) and dotted(node.func) in functions
    ]  # fmt: skip
    if len(calls) != 1:
        return Projections(unsure=[f"attention is called {len(calls)} times in forward"])
    attending = next(
        (one for one in found if one.definition == part.definition), Attending(part.definition, forward, SDPA, calls[0])
    )
    return _in_groups(projections_of(attending, forward, calls[0], init), part.definition, forward, closure)


def _projected(part: Part, closure: Closure, helpers: set[Defined], found: Sequence[Attending]) -> dict[str, object]:
    """Return what becomes of the layers of a class; of one that does not attend itself they stay."""
    init, forward = _method(part.definition, "__init__"), _method(part.definition, "forward")
    if init is None or forward is None:
        return {}
    own = _projections(part, forward, init, closure, helpers, found) if part.definition in helpers else Projections()
    return {**dict.fromkeys(layers(init)), **own.layers}


def _in_groups(found: Projections, home: Defined, forward: ast.FunctionDef, closure: Closure) -> Projections:
    """With the groups of rows of a fused layer in the words of the config: who converts has nothing else."""
    order = found.order
    if order.in_turn:
        return found
    if order.innermost:
        return replace(found, groups=("-1", "1"))
    try:
        told = [in_words_of_config(one, home, forward, closure) if one else "-1" for one in (order.heads, order.size)]
    except Unsupported as error:
        why = f"the number of heads of {found.fused} does not follow from the model's arguments: {error}"
        return Projections(out=found.out, unsure=[why])
    return replace(found, groups=(told[0], told[1]))


def _heirs(part: Part, parts: Parts) -> list[Part]:
    """Return the classes that inherit from one, those that inherit from these too."""
    names, found = {part.name}, list[Part]()
    for other in parts.parts:  # each after what it uses
        if other.cls is not None and any(chain(base.value) in names for base in other.cls.bases):
            names.add(other.name)
            found.append(other)
    return found


def _only_its_own(part: Part, parts: Parts, found: Projections) -> Projections:
    """Layers that others ask for by name keep their names; a class that inherits them is changed with its base."""
    wanted = {*found.renamed, found.fused, found.paired, found.out} - {""}
    for other in parts.parts:
        asked = {
            one.attr.value for one in walk(other.node)
            if isinstance(one, cst.Attribute) and other is not part
            and not own_attribute(one) and not isinstance(one.value, cst.Name)
        }  # fmt: skip
        if theirs := sorted(wanted & asked):
            return Projections(unsure=[f"{other.name} asks for {theirs[0]} by name"])
    return found


def _apart(node: cst.ClassDef, name: str, functions: set[str]) -> tuple[cst.BaseStatement, cst.ClassDef]:
    """Return the processor, and the class without what it does."""
    forward = method(node, "forward")
    assert forward is not None
    own = parameters(forward)
    moved = visited(with_groups(forward), Dispatched(functions, BACKEND.format("self")), NotTwice())
    moved = visited(moved, Renamed({_MODULE: _WEIGHTS}))  # authors call their weights like this
    body = visited(moved.body, _SelfIs(_MODULE))
    given = moved.params.with_changes(params=[
        cst.Param(cst.Name("self")),
        cst.Param(cst.Name(_MODULE), cst.Annotation(cst.SimpleString(f'"{node.name.value}"'))),
        *moved.params.params[1:],
    ])  # fmt: skip
    computed = moved.with_changes(name=cst.Name("__call__"), params=given, body=body, leading_lines=[], decorators=[])
    processor = statement(f"class {name}:\n    _attention_backend = None\n    _parallel_config = None\n")
    assert isinstance(processor, cst.ClassDef)
    processor = with_body(
        processor, [*body_of(processor), computed.with_changes(leading_lines=[cst.EmptyLine(indent=False)])]
    )
    return processor, _holding(node, forward, name, own, functions)


def _holding(
    node: cst.ClassDef, forward: cst.FunctionDef, name: str, own: Sequence[cst.Param], functions: set[str]
) -> cst.ClassDef:
    """Return the class with the layers: its forward asks the processor."""
    positional = [one.name.value for one in own if one in forward.params.params or one in forward.params.posonly_params]
    named = [f"{one.name.value}={one.name.value}" for one in own if one.name.value not in positional]
    star = [f"*{forward.params.star_arg.name.value}"] if isinstance(forward.params.star_arg, cst.Param) else []
    double = [f"**{forward.params.star_kwarg.name.value}"] if forward.params.star_kwarg is not None else []
    asked = f"return self.processor({', '.join(['self', *positional, *star, *named, *double])})"
    others = visited(node, Dispatched(functions, BACKEND.format(_OWN_METHOD)), NotTwice())
    docstring = body_of(forward)[: after_docstring(body_of(forward))]
    lean = forward.with_changes(body=cst.IndentedBlock([*docstring, statement(asked)]))
    others = with_method(others, "forward", lambda _: lean)
    others = with_method(others, "__init__", lambda init: ending(init, f"self.set_processor({name}())"))
    lines = [
        f"_default_processor_cls = {name}",
        f"_available_processors = [{name}]",
        "_supports_qkv_fusion = False",  # a processor asks for the three layers
    ]
    body = body_of(others)
    at = after_docstring(body)
    bases = [*others.bases, cst.Arg(cst.Name("AttentionModuleMixin"))]
    return with_body(others, [*body[:at], *map(statement, lines), *body[at:]]).with_changes(bases=bases)


class _SelfIs(cst.CSTTransformer):
    """Replaces the module's own attributes by those of an argument; the backend stays the processor's."""

    def __init__(self, name: str) -> None:
        self.name = name

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.Name:  # noqa: N802
        """`self`."""
        return cst.Name(self.name) if updated_node.value == "self" else updated_node

    def leave_Attribute(self, original_node: cst.Attribute, updated_node: cst.Attribute) -> cst.Attribute:  # noqa: N802
        """The backend stays."""
        kept = (
            original_node.attr.value in ("_attention_backend", "_parallel_config")
            and chain(original_node.value) == "self"
        )
        return original_node if kept else updated_node
