"""The constructor of the model: plain arguments, all of them registered, and diffusers' mixins above it."""

import ast
import re
from collections.abc import Collection, Sequence
from typing import Any

import libcst as cst

from omni_kit.errors import Refusal
from omni_kit.pysource.eval import UNKNOWN
from omni_kit.pysource.reads import field_read
from omni_kit.targets.diffusers.porting.empty_weights import with_real_tables
from omni_kit.targets.diffusers.porting.parts import Parts
from omni_kit.targets.diffusers.porting.syntax import (
    after_docstring,
    body_of,
    chain,
    code,
    ending,
    expression,
    field_in,
    method,
    own_attribute,
    parameters,
    statement,
    with_method,
)
from omni_kit.targets.diffusers.porting.visiting import visited, walk
from omni_kit.upstream.diffusers.signatures import Argument
from omni_kit.upstream.repositories.namespace import Namespace
from omni_kit.upstream.repositories.passed_arguments import named_classes
from omni_kit.upstream.repositories.reference import Reference
from omni_kit.upstream.repositories.traits import kept_as_tensors

_OF_ATTENTION = "AttentionMixin"
MIXINS = ("ModelMixin", "ConfigMixin", _OF_ATTENTION, "PeftAdapterMixin", "FromOriginalModelMixin", "CacheMixin")
_ASKS_FOR_TUPLES = ", tuple)"  # of isinstance
_PLACED = {"device": "None", "dtype": "torch.get_default_dtype()"}
_DTYPE, _PRECISION = "dtype", re.compile(r"torch\.(b?float16|half|float(32)?)")
_PLAIN = (bool, int, float, str, type(None))


def is_plain(value: Any) -> bool:
    """Return whether a config.json can hold it and give it back: no sets, no objects."""
    if isinstance(value, list | tuple):
        return all(is_plain(one) for one in value)
    if isinstance(value, dict):
        return all(isinstance(key, str) and is_plain(one) for key, one in value.items())
    return isinstance(value, _PLAIN)


def port_constructor(parts: Parts, reference: Reference, taken: Collection[str], *, attends: bool = True) -> list[str]:
    """Give the model's class its bases and a constructor that registers every argument.

    Args:
        taken: names that a model of diffusers has for itself, and that no attribute may have.
        attends: it has attention with processors.

    Returns:
        What is left to do.
    """
    root = parts.root
    assert root.cls is not None
    own = {part.name for part in parts.parts if part.cls is not None}
    bases = [name for one in root.cls.bases if (name := chain(one.value)) in own]
    mixins = [name for name in MIXINS if attends or name != _OF_ATTENTION]
    node = root.cls.with_changes(bases=[cst.Arg(cst.Name(name)) for name in mixins])
    if (namespace := reference.namespace) is not None:
        node = _without_namespace(node, namespace, reference)
        for part in parts.parts:
            held = {name for reader, name in namespace.readers if reader == part.definition.name}
            part.node = visited(part.node, _WithoutSections(held, namespace.sections)) if held else part.node
    node = with_method(node, "__init__", lambda init: _registered(init, parts, reference))
    unread = _assigned(node) - _read(node) | ({_DTYPE} if _follows_parameters(node) else set())
    node = visited(node, _WithoutUnread({*taken} & unread))
    stolen = sorted(_assigned(node) & set(taken))
    root.node = with_real_tables(visited(node, _Away({name: f"{name}_" for name in stolen})))
    odd = [one for one in reference.arguments.values() if not one.required and not is_plain(one.default)]
    odd = [one for one in odd if one.name not in _fixed(reference)]
    todo = [f"write what {name} has into this class: the authors' inherits from it, and super() does not reach it here"
            for name in bases]  # fmt: skip
    todo += [f"{one.name} is not a value that a config can store: {one.annotation or 'an object'}" for one in odd]
    todo += [f"{name} names a class that is imported when the model is made: write that class into this file"
             for name in named_classes(reference.cls)]  # fmt: skip
    return todo + [f"its own '{name}' would shadow a model's: renamed {name}_ here" for name in stolen]


def _follows_parameters(node: cst.ClassDef) -> bool:
    """Return whether all that a class sets as its dtype is a precision by name, as the parameters may be cast to: a
    model of diffusers has the parameters' own under that name.
    """
    assigns = [one for one in walk(node) if isinstance(one, cst.Assign)]
    own = [one for one in assigns if any(own_attribute(each.target) == _DTYPE for each in one.targets)]
    init = method(node, "__init__")
    lines = [part for one in (body_of(init) if init is not None else ()) for part in one.children]
    return bool(own) and all(one in lines and _is_precision(one.value) for one in own)


def _is_precision(value: cst.BaseExpression) -> bool:
    if isinstance(value, cst.IfExp):
        return _is_precision(value.body) and _is_precision(value.orelse)
    return _PRECISION.fullmatch(chain(value) or "") is not None


def _read(node: cst.ClassDef) -> set[str]:
    """Return the attributes of `self` that a class reads."""
    assigns = [one for one in walk(node) if isinstance(one, cst.Assign)]
    targets = {id(target.target) for one in assigns for target in one.targets}
    return {own_attribute(one) for one in walk(node) if id(one) not in targets}


class _WithoutUnread(cst.CSTTransformer):
    """Without assignments to attributes that nothing reads."""

    def __init__(self, names: Collection[str]) -> None:
        self.names = names

    def leave_SimpleStatementLine(  # noqa: N802
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.SimpleStatementLine | cst.RemovalSentinel:
        """Leave out `self.device = device`; of `self.device = here = device` that attribute."""
        one = original_node.body[0]
        if not isinstance(one, cst.Assign) or len(original_node.body) != 1:
            return updated_node
        kept = [target for target in one.targets if own_attribute(target.target) not in self.names]
        if len(kept) == len(one.targets):
            return updated_node
        if kept:
            return updated_node.with_changes(body=[one.with_changes(targets=kept)])
        calls = any(isinstance(part, cst.Call) for part in walk(one))
        return updated_node if calls else cst.RemoveFromParent()


def without_modules_of_arguments(parts: Parts, reference: Reference) -> dict[str, str]:
    """Rename the model's modules that are called like arguments: diffusers' models return the config's value for those.

    Returns:
        Their names -> their new names.
    """
    root = parts.root
    assert root.cls is not None
    known = {part.name for part in parts.parts if part.cls is not None}
    found = {}
    for one in walk(root.cls):
        if isinstance(one, cst.Assign) and (name := own_attribute(one.targets[0].target)) in reference.arguments:
            calls = (chain(inner.func) for inner in walk(one.value) if isinstance(inner, cst.Call))
            if any(called in known or called.startswith("nn.") for called in calls):
                found[name] = f"{name}_"
    root.node = visited(root.node, _Away(found))
    return found


def _assigned(node: cst.ClassDef) -> set[str]:
    found: set[str] = set()
    for one in walk(node):
        if isinstance(one, cst.AssignTarget) and (name := own_attribute(one.target)):
            found.add(name)
    return found


class _Away(cst.CSTTransformer):
    """Attributes of `self` under other names."""

    def __init__(self, names: dict[str, str]) -> None:
        self.names = names

    def leave_Attribute(self, original_node: cst.Attribute, updated_node: cst.Attribute) -> cst.Attribute:  # noqa: N802
        """Return one of them."""
        name = own_attribute(updated_node)
        return updated_node.with_changes(attr=cst.Name(self.names[name])) if name in self.names else updated_node


def _registered(init: cst.FunctionDef, parts: Parts, reference: Reference) -> cst.FunctionDef:
    body = [_plain_super(one) for one in body_of(init)]
    settings = reference.settings
    if settings is not None:
        made = next(part for part in parts.parts if part.definition.node is settings.cls.node)
        fields = [one for one in settings.fields.values() if one.name not in settings.made_inside]
        given = ", ".join(f"{one.name}={one.name}" for one in fields)
        at = after_docstring(body)
        body.insert(at, statement(f"{settings.argument} = {made.name}({given})"))
        init = init.with_changes(params=_flat([*fields, *settings.others.values()]))
    fixed = _fixed(reference) if settings is None else ()
    at = after_docstring(body)
    odd = [one for one in parameters(init) if one.name.value in fixed]
    body[at:at] = [statement(f"{one.name.value} = {_by_default(one, reference)}") for one in odd]
    init = _without(init, fixed)
    if any(_ASKS_FOR_TUPLES in code(part.node) for part in parts.parts):  # a config.json knows lists alone
        tuples = [
            one.name for one in reference.arguments.values() if isinstance(one.default, tuple) and one.name not in fixed
        ]
        body[at:at] = [statement(f"{name} = tuple({name})") for name in tuples]
    if reference.hands_on:
        init, body = _spelled_out(init, body, reference)
    decorated = [cst.Decorator(cst.Name("register_to_config"))]
    registered = init.with_changes(body=cst.IndentedBlock(body), decorators=decorated)
    return ending(registered, "self.gradient_checkpointing = False")


def _by_default(one: cst.Param, reference: Reference) -> str:
    """Return the value of an argument that no config has; on device and dtype torch decides, as callers expect."""
    if placement := reference.arguments[one.name.value].placement:
        return _PLACED[placement]
    assert one.default is not None
    return code(one.default)


def _without_namespace(node: cst.ClassDef, namespace: Namespace, reference: Reference) -> cst.ClassDef:
    """Return the class with an argument for each field of its namespaces.

    What the constructor reads is the argument; what it passes on as a whole is the model's registered config.
    """
    fields = [reference.arguments[name] for name in namespace.fields]
    whole = namespace.arguments
    kept: set[str] = set()

    def flattened(init: cst.FunctionDef) -> cst.FunctionDef:
        given = init.params
        positional, named = [[one for one in listed if one.name.value not in whole]
                             for listed in (given.params[1:], given.kwonly_params)]  # fmt: skip
        ordered = sorted([*map(_parameter, fields), *positional], key=lambda one: one.default is not None)
        body = []
        for one in body_of(init):
            target, between, value = code(one).strip().partition(" = ")
            if between and value in whole and target.startswith("self."):
                kept.add(target)
            else:
                body.append(one)
        changed = _reassigned(body, namespace) & namespace.fields.keys()
        flat = _Flat(namespace, set(namespace.fields) - changed)
        body = [visited(one, flat) for one in body]
        same = {f"{name} = {argument}" for name in namespace.aliases for argument in whole}
        body = [one for one in body if code(one).strip() not in same]
        body = [one for one in body if code(one).strip() not in {f"{name} = {name}" for name in namespace.fields}]
        read = {one.value for part in body for one in walk(part) if isinstance(one, cst.Name)}
        made = [at for at, one in enumerate(body) if "super(" in code(one)]
        at = made[0] + 1 if made else after_docstring(body)
        body[at:at] = [statement(f"{argument} = self.config") for argument in whole if argument in read]
        params = given.with_changes(params=[given.params[0], *ordered], kwonly_params=named)
        return init.with_changes(params=params, body=cst.IndentedBlock(body))

    return visited(with_method(node, "__init__", flattened), _Config(kept, namespace.sections))


def _reassigned(body: Sequence[cst.BaseStatement], namespace: Namespace) -> set[str]:
    """Return the variables that a constructor sets, those left out that are a field as it is."""
    tree = ast.parse("".join(map(code, body)))
    stored = [one for one in ast.walk(tree) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)]
    plain = {id(target) for one in ast.walk(tree) if isinstance(one, ast.Assign)
             if (read := _field_of(one.value, namespace))
             for target in one.targets if ast.unparse(target) == read}  # fmt: skip
    return {one.id for one in stored if id(one) not in plain}


def _field_of(node: ast.expr, namespace: Namespace) -> str:
    """Return the field that an expression reads, of a namespace or of a section below it; empty for any other."""
    held = node.value if isinstance(node, ast.Attribute | ast.Subscript) else None
    if held is None:
        return ""
    within = ast.unparse(held) in namespace.arguments or _field_of(held, namespace) in namespace.sections
    read = field_read(node, ast.unparse(held)) if within else None
    return read[0] if read is not None else ""


class _Flat(cst.CSTTransformer):
    """Fields of an argument as variables."""

    def __init__(self, namespace: Namespace, names: Collection[str]) -> None:
        self.argument = namespace.argument
        self.holders = (*namespace.arguments, *namespace.aliases)
        self.sections = namespace.sections
        self.apart = {text: one.argument for text, one in namespace.apart.items()}
        self.names = names

    def _read(self, updated: cst.BaseExpression) -> cst.BaseExpression:
        read = next(filter(None, (field_in(updated, holder) for holder in self.holders)), None)
        if read is None:
            return updated
        if read[0] in self.sections:
            return cst.Name(self.argument)
        return cst.Name(read[0]) if read[0] in self.names else updated

    def leave_Attribute(  # noqa: N802
        self, original_node: cst.Attribute, updated_node: cst.Attribute
    ) -> cst.BaseExpression:
        """`config.name`."""
        return self._named_apart(original_node) or self._read(updated_node)

    def leave_Subscript(  # noqa: N802
        self, original_node: cst.Subscript, updated_node: cst.Subscript
    ) -> cst.BaseExpression:
        """`config["name"]`."""
        return self._named_apart(original_node) or self._read(updated_node)

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:  # noqa: N802
        """`config.get("name")`, `getattr(config, "name")`, or `hasattr(config, "name")`, of which null has none."""
        if (argument := self.apart.get(_plainly(original_node))) is None and chain(updated_node.func) == "hasattr":
            asked = updated_node.with_changes(func=cst.Name("getattr"))
            argument = code(self._read(asked)) if self._read(asked) is not asked else None
        if argument is not None and chain(updated_node.func) == "hasattr":
            return expression(f"({argument} is not None)")
        return self._named_apart(original_node) or self._read(updated_node)

    def _named_apart(self, node: cst.BaseExpression) -> cst.BaseExpression | None:
        """Return the argument for a field that has another one's name, as the authors wrote its read."""
        found = self.apart.get(_plainly(node)) if self.apart else None
        return cst.Name(found) if found is not None else None


def _plainly(node: cst.BaseExpression) -> str:
    """Return the text of an expression as `ast.unparse` writes it."""
    return ast.unparse(ast.parse(f"({code(node)})", mode="eval"))


# Of a mapping of arguments: it is another one, or gets or loses entries.
_CHANGES = r"(?<![\w.]){0}\s*((\[[^\]]*\]\s*)?\|?=(?!=)|\.(update|pop|setdefault|clear)\()"
_REGISTERED = "self.config"


class _Config(cst.CSTTransformer):
    """Attributes that held the namespace as the config that a model of diffusers has."""

    def __init__(self, kept: Collection[str], sections: Collection[str]) -> None:
        self.kept = kept
        self.sections = sections

    def leave_Attribute(  # noqa: N802
        self, original_node: cst.Attribute, updated_node: cst.Attribute
    ) -> cst.BaseExpression:
        """Return one of them, or a section of one."""
        section = code(updated_node.value) == _REGISTERED and updated_node.attr.value in self.sections
        return expression(_REGISTERED) if section or code(updated_node) in self.kept else updated_node

    def leave_Subscript(  # noqa: N802
        self, original_node: cst.Subscript, updated_node: cst.Subscript
    ) -> cst.BaseExpression:
        """Return the config for a section of it."""
        read = field_in(updated_node, _REGISTERED) if code(updated_node.value) == _REGISTERED else None
        return expression(_REGISTERED) if read is not None and read[0] in self.sections else updated_node


class _WithoutSections(cst.CSTTransformer):
    """Fields of sections as fields of the config itself: `config.width` for `config.model.width`."""

    def __init__(self, holders: Collection[str], sections: Collection[str]) -> None:
        self.holders, self.sections = holders, sections

    def leave_Attribute(  # noqa: N802
        self, original_node: cst.Attribute, updated_node: cst.Attribute
    ) -> cst.BaseExpression:
        """Return the config for one of its sections."""
        is_section = updated_node.attr.value in self.sections and code(updated_node.value) in self.holders
        return updated_node.value if is_section else updated_node

    def leave_Subscript(  # noqa: N802
        self, original_node: cst.Subscript, updated_node: cst.Subscript
    ) -> cst.BaseExpression:
        """Return the config for one of its sections."""
        held = code(updated_node.value)
        read = field_in(updated_node, held) if held in self.holders else None
        return updated_node.value if read is not None and read[0] in self.sections else updated_node


def _spelled_out(
    init: cst.FunctionDef, body: list[cst.BaseStatement], reference: Reference
) -> tuple[cst.FunctionDef, list[cst.BaseStatement]]:
    """Without `**kwargs`: what the authors' own config has for the classes within is named, and passed on by name.

    Raises:
        Refusal: it reads `*args`, and one that is passed on has that name.
    """
    named = [_parameter(one) for one in reference.handed_on.values()]
    given = init.params
    if isinstance(given.star_arg, cst.Param) and not any(
        isinstance(one, cst.Name) and one.value == given.star_arg.name.value for part in body for one in walk(part)
    ):  # `*args` that nothing reads
        star = cst.ParamStar() if given.kwonly_params else cst.MaybeSentinel.DEFAULT
        given = given.with_changes(star_arg=star)
    elif isinstance(given.star_arg, cst.Param) and given.star_arg.name.value in reference.handed_on:
        what = f"the constructor of {reference.class_name} reads arguments without names: {reference.where}"
        raise Refusal(what, "name them in a copy of the authors' files, and pass the class there")
    plain = not given.kwonly_params and isinstance(given.star_arg, cst.MaybeSentinel)
    ordered = sorted([*given.params, *named], key=lambda one: one.default is not None)
    more = {"params": ordered} if plain else {"kwonly_params": [*given.kwonly_params, *named]}
    told = _HandedOn(reference.hands_on, list(reference.handed_on))
    changed = _without_lookups(body, reference)
    if not re.search(_CHANGES.format(reference.hands_on), "".join(map(code, changed))):
        changed = [visited(one, told) for one in changed]
    uses = {one.value for part in changed for one in walk(part) if isinstance(one, cst.Name)}
    if reference.hands_on in uses:  # in another way than by handing it on as it is
        pairs = ", ".join(f"{name}={name}" for name in reference.handed_on)
        changed.insert(after_docstring(changed), statement(f"{reference.hands_on} = dict({pairs})"))
    return init.with_changes(params=given.with_changes(star_kwarg=None, **more)), changed


def _without_lookups(body: list[cst.BaseStatement], reference: Reference) -> list[cst.BaseStatement]:
    """Return statements but those that look an argument up under its own name, before another one has that name."""
    kept: list[cst.BaseStatement] = []
    for one in body:
        name, _, value = code(one).strip().partition(" = ")
        looked_up = re.match(rf"{reference.hands_on}(\.get\(|\[)(['\"]){re.escape(name)}\2[,)\]]", value)
        known = looked_up and name in reference.handed_on
        if not known or any(isinstance(part, cst.Name) and part.value == name for line in kept for part in walk(line)):
            kept.append(one)
    return kept


class _HandedOn(cst.CSTTransformer):
    """`**kwargs` of calls as arguments with names."""

    def __init__(self, kwargs: str, names: Sequence[str]) -> None:
        self.kwargs = kwargs
        self.names = names

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.Call:  # noqa: N802
        """Pass the keyword arguments that the class does not name itself."""
        spread = [one for one in updated_node.args if one.star == "**" and code(one.value) == self.kwargs]
        if not spread:
            return updated_node
        rest = [one for one in updated_node.args if one not in spread]
        own = {one.keyword.value for one in rest if one.keyword is not None}
        named = [cst.Arg(cst.Name(name), cst.Name(name)) for name in self.names if name not in own]
        return updated_node.with_changes(args=[*rest, *named])


def _fixed(reference: Reference) -> frozenset[str]:
    """Return the arguments that a config cannot hold, and that stay what they are by default: classes, functions,
    tensors.
    """
    if reference.settings is not None:
        return reference.settings.made_inside
    odd = (one.name for one in reference.arguments.values()
           if one.unset_placement or (one.default is UNKNOWN and (one.placement or not one.required)))  # fmt: skip
    return frozenset(odd) | kept_as_tensors(reference)


def _without(init: cst.FunctionDef, names: Collection[str]) -> cst.FunctionDef:
    """Return the constructor without some of its arguments."""
    given = init.params
    lists = {kind: [one for one in getattr(given, kind) if one.name.value not in names]
             for kind in ("posonly_params", "params", "kwonly_params")}  # fmt: skip
    star = given.star_arg if lists["kwonly_params"] else cst.MaybeSentinel.DEFAULT
    if isinstance(given.star_arg, cst.Param):
        star = given.star_arg
    return init.with_changes(params=given.with_changes(star_arg=star, **lists))


def _flat(fields: Sequence[Argument]) -> cst.Parameters:
    """Return a dataclass's fields as arguments; those without a default come first."""
    ordered = sorted(fields, key=lambda one: not one.required)
    return cst.Parameters(params=[cst.Param(cst.Name("self")), *map(_parameter, ordered)])


def _parameter(one: Argument) -> cst.Param:
    annotation = cst.Annotation(expression(one.annotation)) if one.annotation.isidentifier() else None
    if one.required:
        return cst.Param(cst.Name(one.name), annotation)
    default = None if one.default is UNKNOWN else one.default
    frozen = tuple(default) if isinstance(default, list) else default
    plain = annotation if isinstance(frozen, bool | int | float | str) else None
    return cst.Param(cst.Name(one.name), plain, cst.MaybeSentinel.DEFAULT, expression(repr(frozen)))


def _plain_super(one: cst.BaseStatement) -> cst.BaseStatement:
    """`super(Model, self).__init__()` names a class that may be named differently here."""
    return visited(one, _Super())


class _Super(cst.CSTTransformer):
    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.Call:  # noqa: N802
        return updated_node.with_changes(args=[]) if code(updated_node.func) == "super" else updated_node
