"""A small config of a model that has none yet, from what its constructor takes by default."""

import ast
import itertools
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from omni_kit.pysource.eval import UNKNOWN
from omni_kit.pysource.nodes import argument, calls
from omni_kit.pysource.reads import literal
from omni_kit.pysource.source import dotted
from omni_kit.standins import stand_ins
from omni_kit.toys.configs.axes import IS_AXES
from omni_kit.toys.configs.denoiser import (
    HEAD_DIM,
    HEADS,
    INNER,
    IS_COLUMNS,
    IS_HEAD_CHANNELS,
    IS_HEADS,
    IS_LAYERS,
    IS_ROWS,
    WHOLE,
    as_wide,
    toy_denoiser,
)
from omni_kit.upstream.diffusers.signatures import Argument

# What authors call the width of the whole, and other widths, in the words that toys are made by.
_WHOLE = re.compile(
    r"^(width|embed_?dim|hidden_?(dim|width|channels|features)|n_embd|model_?(width|channels)|emb_?dim|channels?|inner_dim"
    r"|(n|num)_(feats?|features|filters|hidden))$"
)
_WIDTHS = re.compile(r"_(width|features)$")
_CHANNELS = re.compile(r"^(in|out)(put)?_(ch|chs|chans|channels?)$")
# Channels of the latents by other names, where they are as few as latents have.
_FEW_CHANNELS = re.compile(
    r"^(c_)?(in|out)(put)?(_?(dims?|size|features|nc|ch))?$|^((num|n|img|image|im|latent|frame|video|pixel)_)?(channels?|chans|ch)$"
)
_OF_PICTURES = re.compile(r"^(img|image|im|latent|frame|video|pixel)_(channels?|chans|ch)$")
_MOST_CHANNELS = 32
# Sizes that are never widths.
_IS_NO_WIDTH = re.compile(
    r"step|time|pos|max|min|len|resolution|size|period|theta|freq|seed|scale|sigma|every|class|vocab|temp|base|factor"
    r"|token|num_|^n_|kernel|group|rate|iter|window|frame|height|width"
)
_WIDE = 64
_IS_WIDTH = re.compile(r"_(dim|width|features|channels)$")
_IS_LIST_OF_WIDTHS = re.compile(r"(dims?|widths?|features|channels|sizes)$")
_MAY_BE_LIST = re.compile(r"\b([Ll]ist|[Tt]uple|Sequence|Iterable)\b")
_IS_LIST_OF_INTS = re.compile(r"(typing\.)?([Ll]ist|[Tt]uple|Sequence|Iterable)\[int(, \.\.\.)?\]")
_IS_HALF = re.compile(r"(^|_)(fp16|bf16|float16|bfloat16|half)($|_)")  # models of diffusers are cast once made
_RECOMPUTES = re.compile(r"checkpoint(ing)?$|^(use|enable|with)_(\w+_)?checkpoint")  # memory that no toy lacks
_NUMBERS = re.compile(r"\d+(, *\d+)+")
_ENTRIES = 2
_IS_LAYER = re.compile(r"^(torch\.)?(nn\.)?(Embedding|Linear|Conv[123]d|LayerNorm)$")
_SIZES_OF_LAYER = 2
_THIRD = 3
_THROUGH = ("len", "zip", "enumerate", "reversed", "tuple", "list", "set")
ANY_WIDTH = 512
"""Width of what has no default: toys shrink it by its name."""
# Of things that are counted, as joints, and for which toys have no rule: no two alike.
_IS_COUNT = re.compile(r"^(n|num_)[a-z_]+s$")
_FEWEST, _APART = 6, 4
# Sizes that authors leave to a config, and that no model is without.
_NEVER_NONE: Mapping[str, int] = {
    "in_channels": 4,
    "patch_size": 2,
    "sample_size": 8,
    "sample_size_t": 3,
    "patch_size_t": 1,
}
_USUAL, _KERNEL = re.compile(r"(^|_)((kernel)(_size)?|dilations?(_rate)?|strides?)$"), 3  # of convolutions
_INPUT, _OUTPUT, _GROUPS = "in_channels", "out_channels", "norm_num_groups"
_IS_DEPTH = re.compile(r"(^|_)(depth|layers)$")
_HEADS_OF_LEVELS = 2  # divides every level of a U-Net, whether it counts heads or is their width
_IS_HEAD = re.compile(r"head_?dim|dim_?head$")
_IS_SHARE = re.compile(r"(^|_)(dropout|drop_?path|drop|p_drop\w*|prob)$")  # what no toy drops
_IS_PLACE = re.compile(r"[$/\\]|\.(pt|pth|bin|ckpt|safetensors)$")
_IS_NAME_OF_PLACE = re.compile(r"(_dir|_path|_file|_root|pretrained|checkpoint|ckpt)$")
_TYPES: Mapping[str, Any] = {"int": ANY_WIDTH, "bool": False, "float": 1.0}


def toy_of(
    arguments: Mapping[str, Argument], published: Mapping[str, Any], code: Sequence[ast.AST] = ()
) -> tuple[dict[str, Any], list[str]]:
    """Return a toy's arguments, and the names of those for which nothing was known.

    Args:
        published: values from a config of the authors, which come before defaults.
        code: what the model is made of: heads are as wide as it wants them, and what it computes with is no null.
    """
    aliases = _aliases({name: published.get(name, one.default) for name, one in arguments.items()}, code)
    given, unknown, listed = dict[str, Any](), list[str](), list[str]()
    for name, one in arguments.items():
        value = _as_list(published[name], one) if _fits(published.get(name), one) else _value(one)
        if one.required and not one.annotation and name not in published and _is_sequence(name, code):
            listed.append(name)
        elif one.required and not one.annotation and name not in published and (words := _words_for(name, code)):
            given[aliases[name]] = words[0]
        elif one.required and value is UNKNOWN and one.annotation == "str":
            given[aliases[name]] = ""  # words that the code compares it with are tried
            unknown += [] if _IS_NAME_OF_PLACE.search(name) else [name]
        elif value is UNKNOWN or one.placement or one.unset_placement:
            unknown += [name] if one.required and not one.placement else []
        elif one.required and not one.annotation and value == ANY_WIDTH and _is_switch(name, code):
            given[aliases[name]] = True
        else:
            given[aliases[name]] = value
    given |= {alias: [given[alias]] for name, alias in aliases.items()
              if type(given.get(alias)) is int and _is_container(name, code)}  # fmt: skip
    given |= {alias: [1] * count for name, alias in aliases.items()
              if given.get(alias, 0) is None and (count := _entries_read(name, code))}  # fmt: skip
    given |= {name: False for name, value in given.items()
              if value is True and (_IS_HALF.search(name) or _RECOMPUTES.search(name))}  # fmt: skip
    given |= {aliases[name]: True for name in _to_switch_on(given, aliases, code)}
    given |= {name: value for name, value in _NEVER_NONE.items() if name in given and given[name] is None}
    if given.get(_OUTPUT, 0) is None and not _tested(_OUTPUT, code):
        given[_OUTPUT] = given.get(_INPUT)
    given |= {name: ANY_WIDTH for name, value in given.items() if value is None and _is_needed(name, aliases, code)}
    texts = {alias: _numbers_in(value) for alias, value in given.items() if _is_text_of_numbers(value)}
    small = toy_denoiser({**given, **texts})
    small |= {alias: None for name, alias in aliases.items() if given.get(alias, 0) is None and IS_AXES.search(alias)
              and _takes_null(name, code)}  # fmt: skip
    levels = [width for name, value in small.items() if name.endswith("channels") and isinstance(value, list | tuple)
              for width in value if _is_number(width) and width >= _WIDE]  # fmt: skip
    small |= {name: _HEADS_OF_LEVELS for name, value in small.items() if _IS_HEAD.search(name) and _is_number(value)
              and value > 0 and any(width % value for width in levels)}  # fmt: skip
    counts = itertools.count(_FEWEST, _APART)
    small |= {alias: next(counts) for name, alias in aliases.items() if _IS_COUNT.search(name)
              and name not in published and given.get(alias) == small.get(alias) == ANY_WIDTH}  # fmt: skip
    small |= {
        name: small[other] for name, other in _alike(arguments, published, aliases) if {name, other} <= small.keys()
    }
    _leave_layers(small, aliases, code)
    multiple = math.lcm(HEADS * _multiple_of_heads(code), _multiple_of_norms(code), _multiple_of_thirds(aliases, code))
    if INNER % multiple:
        small = as_wide(small, multiple * (INNER // multiple or 1))
    if heads := _allowed_heads(code):
        wide = min(heads, key=lambda one: abs(one - HEAD_DIM))
        small = {name: wide if IS_HEAD_CHANNELS.search(name) and isinstance(one, int) and one > 0 else one
                 for name, one in as_wide(small, HEADS * wide).items()}  # fmt: skip
    fewer = {
        given[alias]: small[alias] for alias in small if IS_LAYERS.search(alias) and isinstance(given.get(alias), int)
    }
    plain = {name: _plain(small[alias]) for name, alias in aliases.items() if alias in small}
    plain = {name: one[: fewer.get(len(one))] if isinstance(one, list) else one for name, one in plain.items()}
    plain = {name: ",".join(map(str, one)) if aliases[name] in texts else one for name, one in plain.items()}
    listed += [name for name, one in arguments.items() if one.required and _IS_LIST_OF_INTS.fullmatch(one.annotation)
               and plain.get(name, 0) is None]  # fmt: skip
    lists = {name: [INNER if _IS_LIST_OF_WIDTHS.search(name) else 1] * _ENTRIES for name in listed}
    lists |= {name: [plain[name]] * count for name, one in arguments.items() if one.required and name not in published
              and type(plain.get(name)) is int and (count := _entries_of(name, code))}  # fmt: skip
    return {name: one for name in arguments if (one := {**plain, **lists}.get(name, UNKNOWN)) is not UNKNOWN}, unknown


def _alike(
    arguments: Mapping[str, Argument], published: Mapping[str, Any], aliases: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """Yield pairs of sizes that are the same in every model that works, though their names and defaults differ.

    A width that a published config sets to that of the whole, away from its default; what a model answers, which has
    the channels that it takes where nothing says otherwise.
    """
    names = {alias: name for name, alias in aliases.items()}
    whole = names.get("hidden_size", "")
    for name, alias in aliases.items():
        same = name != whole and _is_number(published.get(name)) and published.get(name) == published.get(whole)
        if same and arguments[name].default not in (UNKNOWN, None, arguments[whole].default, published[name]):
            yield alias, "hidden_size"
    output = arguments.get(names.get(_OUTPUT, ""))
    if output is not None and output.required and output.name not in published:
        yield _OUTPUT, _INPUT
    for name, one in arguments.items():
        said, taken = _FEW_CHANNELS.match(name), name.replace("out", "in", 1)
        known = _is_number(published.get(name))
        if said is not None and said[2] == "out" and one.required and not known and taken in arguments:
            yield aliases[name], aliases[taken]


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _tested(name: str, code: Sequence[ast.AST]) -> bool:
    """Return whether code decides something by a name, as what takes null does."""
    nodes = [one for part in code for one in ast.walk(part)]
    tests = [one.test for one in nodes if isinstance(one, ast.If | ast.IfExp)]
    tests += [one for one in nodes if isinstance(one, ast.BoolOp)]
    return any(name in _words_in(test) for test in tests)


def _takes_null(name: str, code: Sequence[ast.AST]) -> bool:
    """Return whether code works out a value of its own where a name is null."""
    tests = [one.test for part in code for one in ast.walk(part) if isinstance(one, ast.If | ast.IfExp)]
    return any(isinstance(one, ast.Compare) and isinstance(one.ops[0], ast.Is) and literal(one.comparators[0]) is None
               and ast.unparse(one.left).rpartition(".")[2] == name for one in tests)  # fmt: skip


def _is_sequence(name: str, code: Sequence[ast.AST]) -> bool:
    """Return whether the constructor that takes an argument goes through it, counts it or takes one of its entries."""
    nodes = _constructing(name, code)
    gone = [one.iter for one in nodes if isinstance(one, ast.For | ast.comprehension)]
    gone += [one.value for one in nodes if isinstance(one, ast.Subscript) and literal(one.slice) is UNKNOWN]
    gone += [one for call in nodes if isinstance(call, ast.Call) and ast.unparse(call.func) in _THROUGH
             for one in call.args]  # fmt: skip
    kept = {ast.unparse(target) for one in nodes if isinstance(one, ast.Assign) and ast.unparse(one.value) == name
            for target in one.targets}  # fmt: skip
    return any(isinstance(one, ast.Name | ast.Attribute) and ast.unparse(one) in (name, *kept) for one in gone)


def _constructing(name: str, code: Sequence[ast.AST]) -> list[ast.AST]:
    """Return the nodes of constructors that take an argument; none of one that takes a number for it, too."""
    inits = (node for part in code for node in ast.walk(part) if isinstance(node, ast.FunctionDef))
    taking = [node for node in inits if node.name == "__init__" and any(one.arg == name for one in node.args.args)]
    nodes = [node for init in taking for node in ast.walk(init)]
    plain = any(ast.unparse(one) == f"isinstance({name}, int)" for one in nodes if isinstance(one, ast.Call))
    return [] if plain else nodes


def _entries_of(name: str, code: Sequence[ast.AST]) -> int:
    """Return how many entries of an argument constructors read by their numbers: two of `size[0] * size[1]`."""
    read = (literal(one.slice) for one in _constructing(name, code)
            if isinstance(one, ast.Subscript) and ast.unparse(one.value) == name)  # fmt: skip
    return max((at + 1 for at in read if type(at) is int and at >= 0), default=0)


def _words_for(name: str, code: Sequence[ast.AST]) -> list[str]:
    """Return the texts that code compares a name with, in order."""
    compared = [one for part in code for one in ast.walk(part) if isinstance(one, ast.Compare) and len(one.ops) == 1]
    said = (literal(one.comparators[0]) for one in compared if ast.unparse(one.left).rpartition(".")[2] == name)
    return [*dict.fromkeys(one for one in said if isinstance(one, str) and one)]


def _is_switch(name: str, code: Sequence[ast.AST]) -> bool:
    """Return whether code decides something by the truth of an argument, or of an attribute that keeps it."""
    nodes = [one for part in code for one in ast.walk(part)]
    kept = {ast.unparse(target).rpartition(".")[2] for one in nodes if isinstance(one, ast.Assign)
            and ast.unparse(one.value).rpartition(".")[2] == name for target in one.targets}  # fmt: skip
    tests = [one.test for one in nodes if isinstance(one, ast.If | ast.IfExp)]
    tests += [value for one in nodes if isinstance(one, ast.BoolOp) for value in one.values]
    tests += [one.operand for one in nodes if isinstance(one, ast.UnaryOp) and isinstance(one.op, ast.Not)]
    plain = {ast.unparse(one).rpartition(".")[2] for one in tests if isinstance(one, ast.Name | ast.Attribute)}
    return bool(plain & {name, *kept})


def _is_container(name: str, code: Sequence[ast.AST]) -> bool:
    """Return whether the constructor tests membership in an argument; authors write `(8)`, which is no tuple."""
    inits = (node for part in code for node in ast.walk(part) if isinstance(node, ast.FunctionDef))
    taking = [node for node in inits if node.name == "__init__" and any(one.arg == name for one in node.args.args)]
    tests = [one for node in taking for one in ast.walk(node) if isinstance(one, ast.Compare)]
    return any(isinstance(one.ops[0], ast.In | ast.NotIn) and ast.unparse(one.comparators[0]) == name for one in tests)


def _to_switch_on(given: Mapping[str, Any], aliases: Mapping[str, str], code: Sequence[ast.AST]) -> Iterator[str]:
    """Yield of the switches without one of which code raises, the first for which there is what its branch imports."""
    nodes = [one for part in code for one in ast.walk(part) if isinstance(one, ast.If)]
    later = {inner for one in nodes for inner in one.orelse if isinstance(inner, ast.If) and len(one.orelse) == 1}
    for branches in (_branches(one) for one in nodes if one not in later):
        if not branches or not isinstance(branches[-1][1][-1], ast.Raise):
            continue
        names = [[name for name in _words_in(test) if given.get(aliases.get(name, ""), 0) is False]
                 for test, _ in branches[:-1]]  # fmt: skip
        if all(names):
            runs = (own[0] for own, (_, body) in zip(names, branches[:-1], strict=True) if _can_be_imported(body))
            yield next(runs, names[0][0])


def _branches(node: ast.If) -> list[tuple[ast.expr | None, list[ast.stmt]]]:
    """Return the tests and bodies of a chain; the last one has no test. Empty of one that has no last one."""
    found: list[tuple[ast.expr | None, list[ast.stmt]]] = [(node.test, node.body)]
    match node.orelse:
        case []:
            return []
        case [ast.If() as other]:
            rest = _branches(other)
            return [*found, *rest] if rest else []
        case rest:
            return [*found, (None, rest)]


def _words_in(test: ast.expr | None) -> list[str]:
    nodes = [one for one in ast.walk(test) if isinstance(one, ast.Name | ast.Attribute)] if test is not None else []
    return [one.attr if isinstance(one, ast.Attribute) else one.id for one in nodes]


def _can_be_imported(body: Sequence[ast.stmt]) -> bool:
    """Return whether statements import something, of which there are stand-ins."""
    nodes = [one for part in body for one in ast.walk(part)]
    names = [one.name for node in nodes if isinstance(node, ast.Import) for one in node.names]
    names += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    return bool(names) and all(name.partition(".")[0] in stand_ins() for name in names)


def _entries_read(name: str, code: Sequence[ast.AST]) -> int:
    """Return how many entries of an attribute a method reads by their numbers, without a look whether it is null."""
    methods = [one for part in code for one in ast.walk(part) if isinstance(one, ast.FunctionDef)]
    own, last = f"self.{name}", -1
    for method in (one for one in methods if one.name != "__init__"):
        nodes = [*ast.walk(method)]
        if any(isinstance(one, ast.Compare) and ast.unparse(one.left) == own for one in nodes):
            continue
        read = (literal(one.slice) for one in nodes if isinstance(one, ast.Subscript) and ast.unparse(one.value) == own)
        last = max([last, *(at for at in read if type(at) is int)])
    return last + 1


def _deciding(code: Sequence[ast.AST]) -> set[str]:
    """Return the authors' functions that decide whether their first argument is null: `default(size, 64)`."""
    functions = [one for one in code if isinstance(one, ast.FunctionDef) and one.args.args]
    found: set[str] = set()
    while more := {one.name for one in functions if _decides(one, found)} - found:
        found |= more
    return found


def _decides(function: ast.FunctionDef, known: Collection[str]) -> bool:
    first = function.args.args[0].arg
    for node in ast.walk(function):
        match node:
            case ast.Compare(left=ast.Name(id=name), ops=[ast.Is() | ast.IsNot()], comparators=[ast.Constant(None)]):
                return name == first
            case ast.Call(func=ast.Name(id=called), args=[ast.Name(id=name)]) if called in known and name == first:
                return True
    return False


def _is_needed(alias: str, aliases: Mapping[str, str], code: Sequence[ast.AST]) -> bool:
    """Return whether code takes a size as it is, which null cannot be: a width that is passed on, or what a layer of
    torch's is made with.
    """
    name = next(name for name, other in aliases.items() if other == alias)
    found = [one for part in code for one in ast.walk(part) if isinstance(one, ast.Call)]
    deciding = _deciding(code)
    others = [one for one in found if ast.unparse(one.func) not in deciding]
    decided = any(isinstance(one, ast.Name) and one.id == name for call in found for one in call.args[:1]
                  if call not in others)  # fmt: skip
    passed = any(isinstance(one, ast.Name) and one.id == name for call in others for one in call.args)
    layers = (call for call in others if _IS_LAYER.search(ast.unparse(call.func)))
    sizes = any(name in _words_in(one) for call in layers for one in call.args[:_SIZES_OF_LAYER])
    return ((bool(_IS_WIDTH.search(alias)) and passed) or sizes) and not decided and not _tested(name, code)


def _leave_layers(small: dict[str, Any], aliases: Mapping[str, str], code: Sequence[ast.AST]) -> None:
    """Leave layers in ranges of two counts: `range(first, last)`, and `range(depth - fused_depth)`."""
    for call in (one for part in code for one in ast.walk(part) if isinstance(one, ast.Call)):
        match call:
            case ast.Call(func=ast.Name("range"), args=[first, last]):
                fewer, more = (aliases.get(ast.unparse(one).rpartition(".")[2], "") for one in (first, last))
                if fewer in small and small[fewer] == small.get(more) and small[fewer] > 1:
                    small[fewer] = small[more] - 1
            case ast.Call(func=ast.Name("range"), args=[ast.BinOp(left=whole, op=ast.Sub(), right=last)]):
                more, fewer = (aliases.get(ast.unparse(one).rpartition(".")[2], "") for one in (whole, last))
                if _is_number(small.get(more)) and small[more] == small.get(fewer):
                    small[more] *= 2


def _multiple_of_heads(code: Sequence[ast.AST]) -> int:
    """Return the number that divides the width of a head in the code, as kernels require."""
    rests = [one for part in code for one in ast.walk(part) if isinstance(one, ast.BinOp)]
    found = [one.right.value for one in rests if isinstance(one.op, ast.Mod) and isinstance(one.right, ast.Constant)
             and _IS_HEAD.search(ast.unparse(one.left))]  # fmt: skip
    return math.lcm(*(one for one in found if isinstance(one, int) and one > 0))


def _allowed_heads(code: Sequence[ast.AST]) -> list[int]:
    """Return the widths of a head that the code takes, where it takes a few alone: `head_dim in (16, 32, 64)`."""
    tests = [one for part in code for one in ast.walk(part) if isinstance(one, ast.Compare)]
    listed = [literal(one.comparators[0]) for one in tests
              if isinstance(one.ops[0], ast.In | ast.NotIn) and _IS_HEAD.search(ast.unparse(one.left))]  # fmt: skip
    sizes = [set(one) for one in listed if isinstance(one, list | tuple) and all(type(size) is int for size in one)]
    return sorted(set.intersection(*sizes)) if sizes else []


def _multiple_of_norms(code: Sequence[ast.AST]) -> int:
    """Return the multiple that the width must be for norms over a fixed number of groups; half of the width may be
    normed.
    """
    norms = (call for part in code for call in calls(part) if "GroupNorm" in ast.unparse(call.func))
    given = [one for call in norms if (one := argument(call, 0, "num_groups")) is not None]
    least = (part for one in given if isinstance(one, ast.Call) and dotted(one.func) == "min" for part in one.args)
    groups = map(literal, [*given, *least])
    return math.lcm(*(2 * one for one in groups if isinstance(one, int) and one > 0))


def _multiple_of_thirds(aliases: Mapping[str, str], code: Sequence[ast.AST]) -> int:
    """Return the multiple that the width must be where embeddings of a third of it each are joined: heads are even."""
    widths = {name for name, alias in aliases.items() if alias == "hidden_size"}
    parts = (one for part in code for call in calls(part) for one in call.args if isinstance(one, ast.BinOp))
    thirds = any(isinstance(one.op, ast.FloorDiv) and literal(one.right) == _THIRD and ast.unparse(one.left) in widths
                 for one in parts)  # fmt: skip
    return 2 * HEADS * _THIRD if thirds else 1


def _aliases(values: Mapping[str, Any], code: Sequence[ast.AST]) -> dict[str, str]:
    """Return names in the words that toys are made by.

    Args:
        values: as published, or by default.
    """
    found: dict[str, str] = {}
    names = list(values)
    if not any(map(IS_HEADS.search, names)):  # a count that the width of the whole is divided by is that of heads
        divided = {ast.unparse(one.right).rpartition(".")[2] for part in code for one in ast.walk(part)
                   if isinstance(one, ast.BinOp) and isinstance(one.op, ast.FloorDiv)}  # fmt: skip
        counts = [name for name in names if name in divided and name.startswith("num_")]
        found |= dict.fromkeys(counts[:1], "num_heads")
        names = [name for name in names if name not in found]
    norms = (call for part in code for call in calls(part) if (dotted(call.func) or "").endswith("nn.GroupNorm"))
    said = (argument(call, 0, "num_groups") for call in norms)
    groups = {ast.unparse(one).rpartition(".")[2] for one in said if one is not None}
    divides = [name for name in names if name in groups and _is_number(values[name])
               and toy_denoiser({name: values[name]}) != {name: values[name]}]  # fmt: skip
    found |= dict.fromkeys(divides[:1], _GROUPS) if _GROUPS not in names else {}
    names = [name for name in names if name not in found]
    has_rows = any(map(IS_ROWS.search, names))
    for name in names:
        alias = "hidden_size" if _WHOLE.match(name) else _WIDTHS.sub("_dim", _CHANNELS.sub(r"\1_channels", name))
        known = _is_number(values[name]) and 0 < values[name] <= _MOST_CHANNELS
        unknown = values[name] is UNKNOWN and _OF_PICTURES.match(name)
        if (few := _FEW_CHANNELS.match(name)) and (known or unknown):
            alias = f"{few[2] or 'in'}_channels"
        if has_rows and IS_COLUMNS.search(name):  # `width` next to `height`
            alias = name
        taken = alias in names or alias in found.values()
        found[name] = name if taken else alias
    return found | _widths_by_use(values, found, code)


def _widths_by_use(values: Mapping[str, Any], known: Mapping[str, str], code: Sequence[ast.AST]) -> dict[str, str]:
    """Return the words for sizes whose names say nothing, and that the constructor makes layers with: `c`, `nf`.

    Where no name says which is the width of the whole it is the one that the constructor uses most.
    """
    large = {name: value for name, value in values.items() if _is_number(value) and value >= _WIDE
             and known[name] == name and not _IS_NO_WIDTH.search(name)
             and toy_denoiser({name: value}) == {name: value}}  # fmt: skip
    inits = [
        one for part in code for one in ast.walk(part) if isinstance(one, ast.FunctionDef) and one.name == "__init__"
    ]
    given = [ast.unparse(part).rpartition(".")[2] for init in inits for call in calls(init)
             for one in (*call.args, *(word.value for word in call.keywords)) for part in ast.walk(one)
             if isinstance(part, ast.Name | ast.Attribute)]  # fmt: skip
    used = {name: count for name in large if (count := given.count(name))}
    whole = {"hidden_size", *WHOLE} & {*known, *known.values()}
    first = max(used, key=lambda name: used[name], default="") if not whole else ""
    levels = [name for name, value in values.items() if isinstance(value, list | tuple) and len(value) > 1
              and all(_is_number(one) and one >= _WIDE for one in value) and known[name] == name
              and not _IS_NO_WIDTH.search(name) and name in given]  # fmt: skip
    widths = {name: "hidden_size" if name == first else f"{name}_dim" for name in used}
    return widths | {name: f"{name}_channels" for name in levels}


def _value(one: Argument) -> Any:
    if one.default is not UNKNOWN:
        return one.default
    if one.required and one.annotation.lower().startswith(("list", "tuple", "sequence")):
        return None  # toys know some of them by their names
    if one.required and one.annotation in ("", "float") and _IS_SHARE.search(one.name):
        return 0.0
    if one.required and one.annotation in ("", "int") and (usual := _USUAL.search(one.name)):
        return _KERNEL if usual[3] else 1
    if one.required and one.annotation in ("", *_TYPES):
        alias = _INPUT if _OF_PICTURES.match(one.name) else _CHANNELS.sub(r"\1_channels", one.name)
        return _NEVER_NONE.get(alias, _TYPES.get(one.annotation, ANY_WIDTH))
    return UNKNOWN


def _fits(value: Any, one: Argument) -> bool:
    """Return whether a published value is of the kind that an argument is: no text for a number, no reference, and no
    file; nor zero layers or heads, for which a program must be told how many there are.
    """
    if value is None or (isinstance(value, str) and _IS_PLACE.search(value)):
        return False
    if value == 0 and one.required and (IS_HEADS.search(one.name) or _IS_DEPTH.search(one.name)):
        return False
    if one.default is UNKNOWN or one.default is None:
        return one.default is None or one.required
    numbers = isinstance(value, int | float) and isinstance(one.default, int | float)
    lists = isinstance(one.default, list | tuple) or bool(_MAY_BE_LIST.search(one.annotation))
    alike = isinstance(value, list | tuple) and lists
    return (
        alike
        or type(value).__name__ in _plain_types(one.annotation)
        or (isinstance(value, bool) == isinstance(one.default, bool) and (numbers or type(value) is type(one.default)))
    )


def _plain_types(annotation: str) -> set[str]:
    """Return the names among the types that an annotation allows: of `int | Sequence[int]`, `int`."""
    try:
        waiting: list[ast.expr] = [ast.parse(annotation or "None", mode="eval").body]
    except SyntaxError:
        return set()
    found = set[str]()
    while waiting:
        match waiting.pop():
            case ast.BinOp(left=one, right=other, op=ast.BitOr()):
                waiting += [one, other]
            case ast.Subscript(value=outer, slice=ast.Tuple(elts=parts)) if (dotted(outer) or "").endswith("Union"):
                waiting += parts
            case ast.Name(id=name):
                found.add(name)
    return found


def _as_list(value: Any, one: Argument) -> Any:
    """Return a published value; numbers between commas, as command lines take them, are a list: `"32,16,8"`."""
    return _numbers_in(value) if _is_text_of_numbers(value) and not isinstance(one.default, str) else value


def _is_text_of_numbers(value: Any) -> bool:
    return isinstance(value, str) and _NUMBERS.fullmatch(value) is not None


def _numbers_in(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
