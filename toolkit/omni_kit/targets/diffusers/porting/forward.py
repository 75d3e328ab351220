"""The model's forward: diffusers' names for what it takes, its output, and checkpoints around the blocks."""

import ast
import re
import textwrap
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import chain, count

import libcst as cst

from omni_kit.pysource.reads import item_tested
from omni_kit.targets.diffusers.porting.calling_forward import PlainAnswers
from omni_kit.targets.diffusers.porting.outputs import Outputs, with_output
from omni_kit.targets.diffusers.porting.parts import Part, Parts
from omni_kit.targets.diffusers.porting.syntax import (
    Renamed,
    argument_text,
    body_of,
    code,
    expression,
    field_in,
    method,
    names_used,
    own_attribute,
    statement,
    with_body,
    with_method,
)
from omni_kit.targets.diffusers.porting.visiting import visited, walk
from omni_kit.upstream.diffusers.signatures import Argument
from omni_kit.upstream.repositories.timestep import STEP

LATENTS, TIME, TEXT, MASK = "hidden_states", "timestep", "encoder_hidden_states", "encoder_attention_mask"
LABELS = "class_labels"
_IS_TEXT = re.compile(r"(text|txt|context|ctx|caption|cap|prompt|cond|encoder|enc|emb)", re.IGNORECASE)
_IS_PROMPT = re.compile(r"(text|txt|context|ctx|caption|cap|prompt|cross|encoder)", re.IGNORECASE)
"""Names that optional texts have; other conditions, `cond` or `emb`, may be of any kind, and are optional as such."""
_OPTIONAL = "y"
"""Name of an optional prompt in a model that is made with the width of its embedding."""
_IS_MASK = re.compile(
    r"^(?!.*(video|image|img|audio|frame|present|masked|(^|_)(ref|target|person|human|face|lips?|region|spatial)s?_)).*mask"
)
"""Names of masks of tokens, which those of pictures, of what is seen in them, and masked pictures are not."""
_IS_NO_TEXT = re.compile(
    r"(self_cond|mask|ids?$|len|size|pos|rope|freq|pooled|vec|scale|guidance|image|img|video|audio|drop)"
)
TEXT_WIDTH = re.compile(
    r"(text|txt|context|ctx|caption|cap|prompt|cond|joint|cross)\w*_(dim|width|channels|features|size|in_dim)"
)
"""An argument of a constructor that says how wide the embedding of a prompt is."""


@dataclass
class Forward:
    """Result of rewriting a forward.

    Attributes:
        names: what the authors call an argument -> what it is called here.
        blocks: the lists of blocks that it goes through -> the class of a block.
        todo: what is left to do.
    """

    names: dict[str, str] = field(default_factory=dict)
    blocks: dict[str, str] = field(default_factory=dict)
    todo: list[str] = field(default_factory=list)


def roles_of(
    taken: Mapping[str, Argument], labels: str = "", worded: bool = False, step: str = "",
    of_latents: Collection[str] = (),
) -> dict[str, str]:  # fmt: skip
    """Map the authors' argument names to diffusers' names; arguments without one keep theirs.

    Args:
        step: the argument that is the time; without it, the first with the name of one.
        labels: the argument that is a class label; empty without one.
        worded: the model is made with the width of a prompt's embedding: `y` is one, too.
        of_latents: arguments that are masks of latents, or several like them, and so no prompt and none of its masks.
    """
    names = list(taken)
    step = step or next((name for name in names if STEP.match(name)), "")
    latents = next((name for name in names if name != step), "")
    others = sorted((n for n in names if n not in (step, latents, labels)), key=lambda name: not taken[name].required)
    text = TEXT if TEXT in others else ""
    plain = [name for name in others if name not in of_latents]
    text = text or next((name for name in plain if _IS_TEXT.search(name) and not _IS_NO_TEXT.search(name)
                         and (taken[name].required or _IS_PROMPT.search(name))), "")  # fmt: skip
    if not text and not labels:
        needed = [n for n in plain if taken[n].required and "{" not in n]  # an entry of a mapping is a size or the like
        needed = [n for n in needed if (worded or len(n) > 1) and not _IS_NO_TEXT.search(n)]
        needed = needed or [n for n in plain if worded and n == _OPTIONAL]
        text = needed[0] if len(needed) == 1 else ""
    of_text = [name for name in others if text and _IS_MASK.search(name) and name not in of_latents]
    mask = MASK if MASK in of_text else next(iter(sorted(of_text, key=lambda name: not _IS_TEXT.search(name))), "")
    named = ((latents, LATENTS), (step, TIME), (labels, LABELS), (text, TEXT), (mask, MASK))
    return {old: new for old, new in named if old}


def port_forward(
    parts: Parts,
    taken: Mapping[str, Argument],
    blocks: Mapping[str, str],
    labels: str = "",
    worded: bool = False,
    step: str = "",
    of_latents: Collection[str] = (),
) -> Forward:
    """Rewrites the forward of the model's class.

    Args:
        labels, worded, step, of_latents: as `roles_of` takes them.
        blocks: the lists of modules that the model has -> the class of what they hold.
    """
    root = parts.root
    assert root.cls is not None
    done = Forward()
    own = method(root.cls, "forward")
    if own is None:
        done.todo.append("it inherits forward: copy it here, with return_dict and gradient checkpointing")
        return done
    locals_, fixed = _variables(own)
    roles = roles_of(taken, labels, worded, step, of_latents)
    done.names = {old: new for old, new in roles.items() if old == new or new not in fixed}
    used = names_used(own)
    cleared = {name: _free(name, used) for name in locals_ & {*done.names.values()} - {*done.names}}
    own = visited(own, Renamed(cleared))
    own = _with_items(own, taken, used, done.names)
    looped = _Loops(blocks, {part.name: part for part in parts.parts})
    node = visited(own, Renamed(done.names), looped)
    answers = Outputs(node)
    changed = with_output(node, answers)
    cls = with_body(root.cls, [looped.within(one) for one in body_of(root.cls)])
    done.blocks, done.todo = looped.found, done.todo + answers.todo + looped.todo
    root.node = cls = with_method(cls, "forward", lambda _: changed)
    if not answers.switched and not answers.objects:
        calls = PlainAnswers(done.names, bool(answers.todo), answers.plain, answers.keys)
        others = [visited(one, calls) if one is not changed else one for one in body_of(cls)]
        root.node = with_body(cls, others)
    return done


def _variables(own: cst.FunctionDef) -> tuple[set[str], set[str]]:
    """Return the local variables of a function that may have another name, and the names that have to stay."""
    function = ast.parse(textwrap.dedent(code(own))).body[0]
    assert isinstance(function, ast.FunctionDef)
    nodes = [one for one in ast.walk(function) if isinstance(one, ast.Name)]
    taken = {one.arg for one in ast.walk(function) if isinstance(one, ast.arg)}
    bound = {one.id for one in nodes if isinstance(one.ctx, ast.Store)} - taken
    return bound, ({one.id for one in nodes} | taken) - bound


def _free(name: str, used: Collection[str]) -> str:
    """Return a name for a variable whose own name an argument gets."""
    numbered = (f"own_{name}_{number}" for number in count())
    return next(one for one in chain([f"own_{name}"], numbered) if one not in used)


_ITEM = re.compile(r"(\w+)\{(\w+)\}")


def _with_items(
    own: cst.FunctionDef, taken: Mapping[str, Argument], used: Collection[str], names: dict[str, str]
) -> cst.FunctionDef:
    """Return the forward with the items of a mapping as arguments; `names` gets their names where diffusers has
    none.
    """
    items = {name: match for name in taken if (match := _ITEM.fullmatch(name))}
    for name, match in items.items():
        key = match[2] if match[2] not in used else f"{match[1]}_{match[2]}"
        names.setdefault(name, key)
    if not items:
        return own
    given: dict[str, list[cst.Param]] = {}
    for name, match in items.items():
        default = None if taken[name].required else cst.Name("None")
        given.setdefault(match[1], []).append(cst.Param(cst.Name(names[name]), default=default))
    listed = [part for one in own.params.params for part in given.get(one.name.value, [one])]
    ordered = sorted(listed, key=lambda one: one.default is not None)
    named = [part for one in own.params.kwonly_params for part in given.get(one.name.value, [one])]
    read = {(match[1], match[2]): names[name] for name, match in items.items()}
    params = own.params.with_changes(params=ordered, kwonly_params=named)
    return visited(own.with_changes(params=params), _Items(read))


class _Items(cst.CSTTransformer):
    """Items of mappings as variables."""

    def __init__(self, names: Mapping[tuple[str, str], str]) -> None:
        self.names = names

    def _read(self, updated: cst.BaseExpression) -> cst.BaseExpression:
        """Return the variable of an item; the default of `get` where that is None."""
        for (holder, key), name in self.names.items():
            read = field_in(updated, holder)
            if read is not None and read[0] == key:
                other = ast.unparse(read[1]) if read[1] is not None else "None"
                return cst.Name(name) if other == "None" else expression(f"({other} if {name} is None else {name})")
        return updated

    def leave_Subscript(  # noqa: N802
        self, original_node: cst.Subscript, updated_node: cst.Subscript
    ) -> cst.BaseExpression:
        """`cond["text"]`."""
        return self._read(updated_node)

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:  # noqa: N802
        """`cond.get("text")`."""
        return self._read(updated_node)

    def leave_Comparison(  # noqa: N802
        self, original_node: cst.Comparison, updated_node: cst.Comparison
    ) -> cst.BaseExpression:
        """`"text" in cond`."""
        test = ast.parse(f"({code(updated_node)})", mode="eval").body
        for (holder, key), name in self.names.items():
            if item_tested(test, holder) == key and isinstance(test, ast.Compare):
                return expression(f"{name} is {'not ' if isinstance(test.ops[0], ast.In) else ''}None")
        return updated_node


def _counts(iterable: cst.BaseExpression) -> bool:
    """Return whether a loop goes over numbers: `range(len(self.blocks))`."""
    return isinstance(iterable, cst.Call) and code(iterable.func) == "range"


class _Loops(cst.CSTTransformer):
    """Loops over the model's blocks: each call of a block may be checkpointed."""

    def __init__(self, blocks: Mapping[str, str], parts: Mapping[str, Part]) -> None:
        self.blocks = blocks
        self.parts = parts
        self.found: dict[str, str] = {}
        self.todo: list[str] = []
        self.variables: dict[str, str] = {}
        self.several: set[str] = set()  # variables of loops over lists whose items are lists: of any of their classes

    def within(self, one: cst.BaseStatement) -> cst.BaseStatement:
        """Return another method of the model with its loops, as forward may leave them to one."""
        if not isinstance(one, cst.FunctionDef) or one.name.value in ("forward", "__init__"):
            return one
        self.variables = {}
        return visited(one, self)

    def visit_For(self, node: cst.For) -> None:  # noqa: N802
        names = [one.value for one in walk(node.target) if isinstance(one, cst.Name)]
        found = (own_attribute(one) for one in walk(node.iter)) if not _counts(node.iter) else ()
        lists = [*dict.fromkeys(name for name in found if name in self.blocks)]
        counted = {code(one.func) for one in walk(node.iter) if isinstance(one, cst.Call)} & {"enumerate", "zip"}
        self.several |= {*names} if len(lists) == 1 < len(names) and not counted else set()
        for name in lists:  # over one list, the last name is the block; over several at once, each has its own
            self.variables[names[-1] if len(lists) == 1 else names[lists.index(name) - len(lists)]] = name

    def visit_Assign(self, node: cst.Assign) -> None:  # noqa: N802
        """`block, other = self.blocks[i : i + 2]`."""
        value = node.value
        if isinstance(value, cst.Subscript) and (name := own_attribute(value.value)) in self.blocks:
            self.variables |= {one.value: name for one in walk(node.targets[0].target) if isinstance(one, cst.Name)}

    def leave_SimpleStatementLine(  # noqa: N802
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.BaseStatement:
        small = updated_node.body[0]
        call = small.value if isinstance(small, cst.Assign) else None
        if not isinstance(call, cst.Call) or not isinstance(call.func, cst.Name | cst.Subscript):
            return updated_node
        if isinstance(call.func, cst.Subscript):  # self.blocks[i](x)
            held = own_attribute(call.func.value)
            name = held if held in self.blocks else None
        else:
            name = self.variables.get(call.func.value)
        if name is None:
            return updated_node
        self.found[name] = self.blocks[name]
        called = code(call.func)
        given = _by_place(call, self.parts.get(self.blocks[name]) if called not in self.several else None)
        if given is None:  # a checkpoint takes arguments by place alone
            named = [argument_text(one) for one in call.args if one.keyword is not None or one.star == "**"]
            called = f"functools.partial({', '.join([called, *named])})"
            given = [argument_text(one) for one in call.args if one.keyword is None and one.star != "**"]
        assert isinstance(small, cst.Assign)
        target = code(small.targets[0].target)
        made = statement(
            "if torch.is_grad_enabled() and self.gradient_checkpointing:\n"
            f"    {target} = self._gradient_checkpointing_func({', '.join([called, *given])})\n"
            "else:\n"
            f"    {code(small)}\n"
        )
        return made.with_changes(leading_lines=updated_node.leading_lines)


def _by_place(call: cst.Call, block: Part | None) -> list[str] | None:
    """Return the arguments of a block's call, all by place: a checkpoint takes no others. None if that cannot be
    determined.
    """
    plain = [code(one.value) for one in call.args if one.keyword is None and not one.star]
    named = {one.keyword.value: code(one.value) for one in call.args if one.keyword is not None}
    if len(plain) + len(named) != len(call.args):
        return None
    if not named:
        return plain
    forward = method(block.cls, "forward") if block is not None and block.cls is not None else None
    taken = [*forward.params.params][1:] if forward is not None else []
    rest = taken[len(plain) :]
    while rest and rest[-1].name.value not in named:
        rest.pop()
    if {one.name.value for one in rest} < set(named) or any(
        one.name.value not in named and one.default is None for one in rest
    ):
        return None
    return plain + [named.get(one.name.value) or code(one.default) for one in rest]


def lists_of_blocks(init: ast.FunctionDef, names: Mapping[str, str]) -> dict[str, str]:
    """Return the lists of modules that a constructor makes -> the class of what they hold.

    Args:
        names: what the authors call a class -> what it is called in the file.
    """
    found: dict[str, str] = {}
    collected = _collected(init, names)
    for node in ast.walk(init):
        if isinstance(node, ast.Assign | ast.AnnAssign):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            held = _held(node.value, names) or collected.get(_listed(node.value), "") if _lists(node.value) else ""
        elif (
            isinstance(node, ast.Call)
            and _last(node.func) in ("append", "add_module")
            and isinstance(node.func, ast.Attribute)
        ):
            target, held = node.func.value, _held(node.args[-1] if node.args else None, names)
        else:
            continue
        own = isinstance(target, ast.Attribute) and getattr(target.value, "id", "") == "self"
        if own and held and isinstance(target, ast.Attribute):
            found[target.attr] = held
    return found


def _collected(init: ast.FunctionDef, names: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that are lists -> the class of the first module of these classes that joins each."""
    joins: list[tuple[int, str, ast.expr]] = []
    for node in ast.walk(init):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.List | ast.ListComp):
            joins.append((node.lineno, getattr(node.targets[0], "id", ""), node.value))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "append":
            joins += [(node.lineno, getattr(node.func.value, "id", ""), one) for one in node.args]
    joins.sort(key=lambda one: one[0], reverse=True)
    return {name: held for _, name, value in joins if name and (held := _held(value, names))}


def _listed(value: ast.expr | None) -> str:
    """Return the variable of which a list of modules is made; empty if it is made of anything else."""
    given = value.args if isinstance(value, ast.Call) and _last(value.func) == "ModuleList" else []
    return getattr(given[0], "id", "") if given else ""


def _lists(value: ast.expr | None) -> bool:
    """Return whether a list of modules is made, or a sequence of modules that are made alike."""
    kind = _last(getattr(value, "func", None))
    many = value is not None and any(isinstance(one, ast.Starred | ast.ListComp) for one in ast.walk(value))
    return kind == "ModuleList" or (kind == "Sequential" and many)


def _held(node: ast.expr | None, names: Mapping[str, str]) -> str:
    """Return the first class of which a list holds modules; one that it always holds comes before others."""
    if node is None:
        return ""
    choices = [one for one in ast.walk(node) if isinstance(one, ast.IfExp)]
    optional = {id(call) for one in choices if not all(_made(part, names) for part in (one.body, one.orelse))
                for call in _made(one, names)}  # fmt: skip
    calls = sorted(_made(node, names), key=lambda call: id(call) in optional)
    return names[_last(calls[0].func)] if calls else ""


def _made(node: ast.expr, names: Mapping[str, str]) -> list[ast.Call]:
    """Return the calls of these classes."""
    return [one for one in ast.walk(node) if isinstance(one, ast.Call) and _last(one.func) in names]


def _last(node: ast.AST | None) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
