"""A toy of authors' code by what the code itself says of its sizes."""

import ast
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from omni_kit.pysource.eval import UNKNOWN
from omni_kit.targets.diffusers.toy import toy_of
from omni_kit.toys.batches.denoiser.sizes import side_of
from omni_kit.upstream.diffusers.signatures import Argument
from omni_kit.upstream.repositories.reference import find_reference

ARGUMENTS = {
    "hidden_size": Argument("hidden_size", 1152, False, "int", ""),
    "num_heads": Argument("num_heads", 16, False, "int", ""),
    "in_channels": Argument("in_channels", 4, False, "int", ""),
    "out_channels": Argument("out_channels", None, False, "int | None", ""),
}


@pytest.mark.parametrize(("code", "head"), [
    ("assert self.head_dim % 8 == 0", 16),
    ("if head_dim % 16:\n    raise ValueError", 16),
    ("assert head_dim % 32 == 0", 32),
    ("assert head_dim % 4 == 0", 20),
    ("assert dim % 8 == 0", 20),
    ("assert self.head_dim in [16, 32, 64]", 16),
    ("if head_dim not in (24, 48):\n    raise ValueError", 24),
    ("assert rank in [16, 32]", 20),
    ("norm = nn.GroupNorm(32, hidden_size // 2)", 16),
    ("norm = nn.GroupNorm(num_groups=8, num_channels=hidden_size)", 20),
    ("norm = nn.GroupNorm(min(32, hidden_size), hidden_size)", 16),
    ("norm = nn.GroupNorm(groups, hidden_size)", 20),
    ("size = SizeEmbedder(hidden_size // 3)", 18),
    ("size = SizeEmbedder(hidden_size // 2)", 20),
])  # fmt: skip
def test_heads_are_as_wide_as_code_wants(code: str, head: int) -> None:
    toy, _ = toy_of(ARGUMENTS, {}, [ast.parse(code)])
    assert toy["hidden_size"] == toy["num_heads"] * head


def test_no_program_runs_with_zero_layers_and_heads_by_default() -> None:
    names = ("n_layers", "n_heads", "use_bias")
    arguments = {name: Argument(name, UNKNOWN, True, "", "") for name in names}
    assert toy_of(arguments, dict.fromkeys(names, 0))[0] == {"n_layers": 2, "n_heads": 4, "use_bias": 0}


@pytest.mark.parametrize("kind", ["int", "StrictInt", "pydantic.PositiveInt"])
def test_numbers_and_lists_of_numbers_are_known_by_their_types(kind: str, tmp_path: Path) -> None:
    text = f"""import torch

class Net(torch.nn.Module):
    def __init__(self, channel: {kind}, strides: List[{kind}], tail: Tail): ...
    def forward(self, x): ...
"""
    (tmp_path / "net.py").write_text(text, encoding="utf-8")
    toy, unknown = toy_of(find_reference(f"{tmp_path / 'net.py'}::Net").arguments, {})
    assert (type(toy["channel"]), toy["strides"], unknown) == (int, [1, 1], ["tail"])


@pytest.mark.parametrize(("code", "null"), [
    ("out = patch * patch * out_channels", False),
    ("out = in_channels if out_channels is None else out_channels", True),
    ("out = out_channels or in_channels", True),
])  # fmt: skip
def test_null_stays_where_code_takes_it(code: str, null: bool) -> None:
    toy, unknown = toy_of(ARGUMENTS, {}, [ast.parse(code)])
    assert toy["out_channels"] == (None if null else toy["in_channels"])
    assert UNKNOWN not in toy.values()
    assert not unknown


@pytest.mark.parametrize(("code", "null"), [
    ("def exists(x):\n    return x is not None\ndef default(x, other):\n    return x if exists(x) else other\n", True),
    ("def default(x, other):\n    return x + other\n", False),
])  # fmt: skip
def test_null_stays_where_a_function_of_theirs_takes_it(code: str, null: bool) -> None:
    taken = {**ARGUMENTS, "clip_dim": Argument("clip_dim", None, False, "", "")}
    used = ast.parse("clip_dim = default(clip_dim, 3)\nlayer = nn.Linear(clip_dim, 4)")
    toy, _ = toy_of(taken, {}, [*ast.parse(code).body, used])
    assert (toy["clip_dim"] is None) is null


LAYERED = {name: Argument(name, default, default is UNKNOWN, "", "") for name, default in [
    ("hidden_size", 64), ("num_heads", 4), ("num_encoder_blocks", 4), ("num_blocks", 12), ("in_chans", UNKNOWN),
    ("patch_size", UNKNOWN), ("clip_dim", None), ("text_dim", None),
]}  # fmt: skip
CODE = """
for i in range(self.num_encoder_blocks, self.num_blocks): pass
self.clip = nn.Linear(clip_dim, hidden_size)
self.text = nn.Linear(text_dim, hidden_size) if text_dim else None
"""


def test_what_code_goes_through_and_takes_is_there() -> None:
    """Layers in each of two ranges; widths that are used without a test; the usual sizes where there is no default."""
    toy, _ = toy_of(LAYERED, {}, [ast.parse(CODE)])
    assert (toy["num_encoder_blocks"], toy["num_blocks"]) == (1, 2)
    assert isinstance(toy["clip_dim"], int)
    assert toy["text_dim"] is None
    assert (toy["in_chans"], toy["patch_size"]) == (6, 2)


STAGES = """
class Net:
    def __init__(self, depths, channels, flags, width):
        for i in range(len(depths)):
            self.block = Block(channels[i], flags[i], width)
"""


def test_an_argument_without_annotation_that_code_goes_through_is_a_list() -> None:
    names = ("depths", "channels", "flags", "width")
    taken = {name: Argument(name, UNKNOWN, True, "", "") for name in names}
    toy, unknown = toy_of(taken, {}, [ast.parse(STAGES)])
    assert [*toy] == [*names]
    assert toy["depths"] == toy["flags"] == [1, 1]
    assert len(toy["channels"]) == 2
    assert toy["channels"][0] > 8
    assert isinstance(toy["width"], int)
    assert not unknown


def test_an_argument_of_which_code_reads_entries_by_their_numbers_has_them() -> None:
    code = "def __init__(self, channels, patch, kernel): self.out = nn.Linear(8, patch[0] * patch[1] * channels)"
    more = "\ndef __init__(self, kernel): return kernel if isinstance(kernel, int) else kernel[0]"
    given = {name: Argument(name, UNKNOWN, True, "", "") for name in ("channels", "patch", "kernel")}
    small, _ = toy_of(given, {}, ast.parse(code + more).body)
    assert type(small["channels"]) is type(small["kernel"]) is int
    assert small["patch"] == [small["patch"][0]] * 2


def test_a_list_with_an_entry_for_each_layer_is_as_short_as_the_toy() -> None:
    names = ("num_layers", "kinds", "others", "use_fp16")
    taken = {name: Argument(name, UNKNOWN, True, "", "") for name in names}
    published = {"num_layers": 5, "kinds": ["a", "b", "a", "b", "c"], "others": [1, 2, 3], "use_fp16": True}
    toy, _ = toy_of(taken, published)
    assert toy["kinds"] == published["kinds"][: toy["num_layers"]]  # type: ignore[index]
    assert toy["others"] == [1, 2, 3]
    assert toy["use_fp16"] is False


@pytest.mark.parametrize(("annotation", "kept"), [
    ("Sequence[int] | int", True), ("Union[int, Tuple[int, ...]]", True), ("Sequence[int]", False), ("a[", False),
])  # fmt: skip
def test_a_published_number_is_kept_where_an_annotation_allows_it_for_a_list(annotation: str, kept: bool) -> None:
    taken = {"num_res_blocks": Argument("num_res_blocks", (2, 2, 2, 2), False, annotation, "")}
    toy, _ = toy_of(taken, {"num_res_blocks": 1})
    assert isinstance(toy["num_res_blocks"], int) is kept


def test_numbers_between_commas_are_a_list() -> None:
    taken = {name: Argument(name, UNKNOWN, True, "", "") for name in ("attention_resolutions", "mode")}
    toy, _ = toy_of(taken, {"attention_resolutions": "32, 16,8", "mode": "fast"})
    assert toy == {"attention_resolutions": [32, 16, 8], "mode": "fast"}


def test_counts_are_small_and_apart_and_a_text_that_must_be_given_is_empty() -> None:
    names = {"n_joints": "", "nfeats": "", "block_size": "", "norm": "str", "cache_dir": "str"}
    toy, unknown = toy_of({name: Argument(name, UNKNOWN, True, said, "") for name, said in names.items()}, {})
    assert toy == {"n_joints": 6, "nfeats": 10, "block_size": 56, "norm": "", "cache_dir": ""}
    assert unknown == ["norm"]


def test_a_count_that_is_written_as_a_text_stays() -> None:
    toy, _ = toy_of({"num_attention_layers": Argument("num_attention_layers", "1", False, "str", "")}, {})
    assert toy == {"num_attention_layers": "1"}


@pytest.mark.parametrize(("published", "same"), [
    ({"hidden_size": 768, "inner_width": 768}, True), ({"hidden_size": 768, "inner_width": 512}, False), ({}, False),
])  # fmt: skip
def test_a_width_that_authors_set_to_that_of_the_whole_stays_so(published: dict[str, int], same: bool) -> None:
    wide = {**ARGUMENTS, "inner_width": Argument("inner_width", 512, False, "int", "")}
    toy, _ = toy_of(wide, published, [])
    assert (toy["inner_width"] == toy["hidden_size"]) is same


@pytest.mark.parametrize(("required", "published", "same"), [
    (True, {}, True), (True, {"out_channels": 8}, False), (False, {}, False),
])  # fmt: skip
def test_a_model_answers_the_channels_that_it_takes_where_nothing_says_which(
    required: bool, published: dict[str, int], same: bool
) -> None:
    default = UNKNOWN if required else 8
    channels = {**ARGUMENTS, "out_channels": Argument("out_channels", default, required, "", "")}
    toy, _ = toy_of(channels, published, [])
    assert (toy["out_channels"] == toy["in_channels"]) is same


@pytest.mark.parametrize(("channels", "few"), [(3, True), (256, False)])
def test_channels_are_those_of_latents_where_they_are_few(channels: int, few: bool) -> None:
    given = {"depth": Argument("depth", 6, False, "int", ""), "channels": Argument("channels", channels, False, "", "")}
    toy, _ = toy_of(given, {}, [])
    assert (toy["channels"] == toy_of(ARGUMENTS, {}, [])[0]["in_channels"]) is few


SPLIT_BETWEEN = """
class Net:
    def forward(self, x):
        {test}
        return x if self.parts[0] * self.parts[1] > 1 else x[0]
"""


@pytest.mark.parametrize(("test", "value"), [("x = x * 1", [1, 1]), ("if self.parts is None: return x", None)])
def test_entries_that_forward_reads_without_a_look_are_ones(test: str, value: Any) -> None:
    taken = {"parts": Argument("parts", None, False, "Optional[List[int]]", "")}
    toy, _ = toy_of(taken, {}, [ast.parse(SPLIT_BETWEEN.format(test=test))])
    assert toy["parts"] == value


WAYS = """
class Attention:
    def forward(self, x):
        if self.new_kernel and x.ndim == 3:
            return blocks(x)
        elif self.kernels:
            from no_such_kernels import run
            return run(x)
        elif self.flash:
            from flash_attn import flash_attn_func
            return flash_attn_func(x, x, x)
        {last}
"""


@pytest.mark.parametrize(("last", "on"), [
    ("else: raise RuntimeError('no kernel')", ["flash"]),
    ("else: return x", []),
    ("elif self.mode == 'plain': return x\n        else: raise ValueError", []),
])  # fmt: skip
def test_one_of_the_switches_without_which_code_raises_is_on(last: str, on: list[str]) -> None:
    names = ("new_kernel", "kernels", "flash")
    taken = {name: Argument(name, False, False, "bool", "") for name in names}
    taken["mode"] = Argument("mode", "plain", False, "str", "")
    toy, _ = toy_of(taken, {}, [ast.parse(WAYS.format(last=last))])
    assert [name for name in names if toy[name]] == on


BY_USE = """
def __init__(self, c, c_cond, c_in, freqs, nhead, steps):
    self.come = nn.Conv2d(c_in, c, 1)
    self.cond = nn.Linear(c_cond, c)
    self.blocks = [Block(c, nhead) for _ in range(2)]
    self.steps = Table({steps})
"""


@pytest.mark.parametrize(("steps", "whole"), [("steps", True), ("freqs", True), ("steps", False)])
def test_sizes_whose_names_say_nothing_are_small_where_layers_are_made_with_them(steps: str, whole: bool) -> None:
    sizes = {"c": 1536, "c_cond": 1024, "c_in": 16, "nhead": 24, "freqs": 100, "steps": 1000}
    sizes |= {} if whole else {"hidden_size": 1152}
    taken = {name: Argument(name, size, False, "", "") for name, size in sizes.items()}
    toy, _ = toy_of(taken, {}, [ast.parse(BY_USE.format(steps=steps))])
    assert (toy["c"] == toy["nhead"] * 20) == whole
    assert 0 < toy["c"] < 128 > toy["c_cond"] != toy["c"]
    assert toy["c_in"] < 32  # as few channels as latents have
    assert (toy["freqs"], toy["steps"]) == (100, 1000)


LEVELS = """
def __init__(self, c_hidden, blocks, resolutions):
    self.come = nn.Conv2d(4, c_hidden[0], 1)
    self.levels = [Block(c_hidden[i], blocks[i]) for i in range(3)]
"""


def test_widths_of_levels_are_small_whatever_they_are_called() -> None:
    sizes = {"c_hidden": [320, 640, 1280], "blocks": [4, 14, 4], "resolutions": [512, 256]}
    taken = {name: Argument(name, size, False, "", "") for name, size in sizes.items()}
    toy, _ = toy_of(taken, {}, [ast.parse(LEVELS)])
    assert toy["c_hidden"] == [64, 128, 128]
    assert toy["blocks"] == [2, 2, 2]
    assert toy["resolutions"] == [512, 256]


@pytest.mark.parametrize(("few", "out"), [(4, 4), (512, 512)])
def test_channels_of_latents_have_other_names_too_where_they_are_few(few: int, out: int) -> None:
    taken = {
        name: Argument(name, size, False, "", "") for name, size in [("in_dim", few), ("dim", 512), ("out_dim", out)]
    }
    toy, _ = toy_of(taken, {}, [])
    assert (toy["in_dim"] == toy["out_dim"] < 32) == (few < 32)


@pytest.mark.parametrize(("code", "null"), [
    ("if axes_dim is None:\n    axes_dim = [head_dim]", True),
    ("axes = [head_dim] if self.axes_dim is None else self.axes_dim", True),
    ("rope = Rope(axes_dim)", False),
])  # fmt: skip
def test_axes_stay_null_where_code_works_them_out(code: str, null: bool) -> None:
    taken = {**ARGUMENTS, "axes_dim": Argument("axes_dim", None, False, "", "")}
    toy, _ = toy_of(taken, {}, [ast.parse(code)])
    assert (toy["axes_dim"] is None) == null


@pytest.mark.parametrize(("name", "off"), [
    ("use_checkpoint", True), ("gradient_checkpointing", True), ("use_fp16", True), ("use_spatial_transformer", False),
])  # fmt: skip
def test_toys_do_not_compute_twice(name: str, off: bool) -> None:
    toy, _ = toy_of({name: Argument(name, False, False, "", "")}, {name: True}, [])
    assert toy[name] is not off


@pytest.mark.parametrize("levels", [True, False])
def test_heads_divide_every_level_of_a_unet(levels: bool) -> None:
    sizes: dict[str, Any] = {"attention_head_dim": 8, "hidden_size": 320}
    sizes |= {"block_out_channels": (320, 640, 1280)} if levels else {}
    toy, _ = toy_of({name: Argument(name, size, False, "", "") for name, size in sizes.items()}, {}, [])
    assert toy["attention_head_dim"] == (2 if levels else 20)
    assert all(width % toy["attention_head_dim"] == 0 for width in toy.get("block_out_channels", ()))


def test_planning_a_port_imports_no_torch() -> None:
    code = (
        "import sys, omni_kit.targets.diffusers.transformer.plan, omni_kit.targets.diffusers.transformer.found_toy\n"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


TAKES = """class Net:
    def __init__(self, name):
        self.name = name
        {line}
"""


@pytest.mark.parametrize(("line", "value"), [
    ("self.all = tuple(self.name)", [1, 1]),
    ("self.all = [name] if isinstance(name, int) else tuple(name)", 512),  # a number will do
    ("self.act = GELU() if name == 'gelu' else SiLU()", "gelu"),
    ("self.act = GELU() if other == 'gelu' else SiLU()", 512),
])  # fmt: skip
def test_what_code_does_with_an_argument_says_what_it_is(line: str, value: Any) -> None:
    arguments = {"name": Argument("name", UNKNOWN, True, "", "")}
    assert toy_of(arguments, {}, [ast.parse(TAKES.format(line=line))])[0] == {"name": value}


@pytest.mark.parametrize(("name", "value"), [("denoiser_dropout", 0.0), ("dropout_layers", 2)])
def test_a_required_share_drops_nothing(name: str, value: Any) -> None:
    assert toy_of({name: Argument(name, UNKNOWN, True, "", "")}, {})[0] == {name: value}


def test_hidden_channels_are_the_width_of_the_whole() -> None:
    """Heads divide it, and their width is even."""
    arguments = {name: Argument(name, UNKNOWN, True, "", "") for name in ("noise_channels", "hidden_channels")}
    toy, _ = toy_of({**arguments, "n_heads": Argument("n_heads", 4, False, "", "")}, {}, [])
    assert toy["hidden_channels"] % (2 * toy["n_heads"] * 2) == 0


def test_widths_in_a_text_are_small_and_stay_a_text() -> None:
    taken = {"resolution_channels": Argument("resolution_channels", "128,256,512", False, "str", "")}
    toy, unknown = toy_of(taken, {})
    assert toy == {"resolution_channels": "64,128,128"}
    assert not unknown


@pytest.mark.parametrize(("code", "count"), [
    ("table = nn.Embedding(cfg.num_actions, dim)", 6),
    ("layer = nn.Linear(num_actions + 1, dim)", 6),
    ("if cfg.num_actions is not None:\n    table = nn.Embedding(cfg.num_actions, dim)", None),
    ("actions = Actions(num_actions)", None),
])  # fmt: skip
def test_a_size_of_a_layer_is_never_null(code: str, count: int | None) -> None:
    taken = {**ARGUMENTS, "num_actions": Argument("num_actions", None, False, "Optional[int]", "")}
    assert toy_of(taken, {}, [ast.parse(code)])[0]["num_actions"] == count


@pytest.mark.parametrize(
    "names",
    [("input_h", "input_w"), ("height", "width"), ("frame_height", "frame_width"), ("num_rows", "num_columns")],
)
def test_rows_and_columns_that_are_said_apart_are_small_and_differ(names: tuple[str, str]) -> None:
    sides = {name: Argument(name, 32, False, "int", "") for name in names}
    toy, _ = toy_of({**ARGUMENTS, "patch_size": Argument("patch_size", 2, False, "int", ""), **sides}, {}, [])
    assert [toy[name] for name in names] == [8, 16]


def test_a_height_without_a_width_is_both() -> None:
    given = {"input_height": Argument("input_height", 128, False, "int", "")}
    toy, _ = toy_of({**given, "ch_mult": Argument("ch_mult", (1, 2, 4, 8), False, "", "")}, {}, [])
    assert toy["input_height"] == 8
    assert side_of(toy) == (8, 8)


def test_a_width_without_a_height_is_that_of_the_whole() -> None:
    assert toy_of({"width": Argument("width", 768, False, "int", "")}, {}, [])[0]["width"] == 80


@pytest.mark.parametrize(("name", "code", "value"), [
    ("skip", "if args.skip:\n    x = x + y", True), ("skip", "self.no = args.skip\ny = x if not self.no else y", True),
    ("skip", "if args.skip > 2:\n    x = x + y", 64), ("kernel_size", "x", 3), ("conv_kernel", "x", 3),
    ("dilation_rate", "x", 1), ("stride", "x", 1),
])  # fmt: skip
def test_a_value_that_nothing_says_is_what_code_and_name_take_it_for(name: str, code: str, value: Any) -> None:
    taken = {**ARGUMENTS, name: Argument(name, UNKNOWN, True, "", "")}
    found = toy_of(taken, {}, [ast.parse(code)])[0][name]
    assert found == value or (value == 64 and found not in (True, 3))


def test_features_that_are_counted_are_the_width_of_the_whole() -> None:
    taken = {"in_channels": ARGUMENTS["in_channels"], "n_feat": Argument("n_feat", 256, False, "int", "")}
    assert toy_of(taken, {}, [])[0]["n_feat"] == toy_of(ARGUMENTS, {}, [])[0]["hidden_size"]


@pytest.mark.parametrize(("code", "layers"), [
    ("for i in range(depth - fused_depth):\n    make()", (4, 2)),
    ("for i in range(self.fused_depth, self.depth):\n    make()", (2, 1)),
    ("for i in range(depth):\n    make()", (2, 2)),
    ("for i in range(depth - 1):\n    make()", (2, 2)),
])  # fmt: skip
def test_layers_are_left_between_two_counts_of_them(code: str, layers: tuple[int, int]) -> None:
    counts = {name: Argument(name, value, False, "int", "") for name, value in (("depth", 12), ("fused_depth", 8))}
    toy, _ = toy_of({**ARGUMENTS, **counts}, {}, [ast.parse(code)])
    assert (toy["depth"], toy["fused_depth"]) == layers


def test_levels_have_widths_in_common_and_what_norms_divide_by_is_no_width() -> None:
    values = {"down_channels": [256, 384, 512, 768], "mid_channels": [768, 512], "norm_channels": 32}
    given: dict[str, Any] = {"image_channels": UNKNOWN, **values}
    arguments = {name: Argument(name, one, one is UNKNOWN, "", "") for name, one in given.items()}
    toy, _ = toy_of(arguments, {}, [ast.parse("norm = nn.GroupNorm(self.norm_channels, 8)")])
    assert toy.pop("image_channels") < 8
    assert toy == {"down_channels": [64, 64, 128, 128], "mid_channels": [128, 128], "norm_channels": 2}
