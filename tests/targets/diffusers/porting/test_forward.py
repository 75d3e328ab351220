"""The forward of a model: diffusers' names, and checkpoints around blocks."""

import ast
from pathlib import Path

import pytest

from omni_kit.targets.diffusers.porting.forward import lists_of_blocks
from tests.targets.diffusers.porting.small_models import ASKED, COLLECTED, SPLIT, attention, ported


def test_blocks_are_checkpointed_and_named(tmp_path: Path) -> None:
    found = ported(tmp_path, attention(SPLIT, ASKED))
    assert "self._gradient_checkpointing_func(block, hidden_states)" in found.text
    assert '_no_split_modules = ["TinyAttn"]' in found.text
    assert "def forward(self, hidden_states, timestep, encoder_hidden_states, return_dict: bool = True):" in found.text


LEVELS = """
class Down(nn.Linear):
    pass


class Block(nn.Linear):
    pass


class Net(nn.Module):
    def __init__(self, dim=8, depth=2, halves=True):
        super().__init__()
        self.levels = nn.ModuleList([])
        for at in range(depth):
            self.levels.append(nn.ModuleList([Down(dim, dim) if halves else {other}, nn.ModuleList([Block(dim, dim)])]))

    def forward(self, x, t):
        for down, blocks in self.levels:
            x = blocks[0](x) if down is None else blocks[0](down(x))
        return x
"""


@pytest.mark.parametrize(("other", "block"), [("None", "TinyBlock"), ("Block(dim, dim)", "TinyDown")])
def test_a_part_that_a_level_may_lack_is_no_block(other: str, block: str) -> None:
    init = next(one for one in ast.walk(ast.parse(LEVELS.format(other=other))) if isinstance(one, ast.FunctionDef))
    assert lists_of_blocks(init, {"Down": "TinyDown", "Block": "TinyBlock"}) == {"levels": block}


def test_blocks_of_a_list_that_is_collected_first_are_checkpointed(tmp_path: Path) -> None:
    found = ported(tmp_path, COLLECTED)
    assert "x = self._gradient_checkpointing_func(layer, x, t)" in found.text.replace("hidden_states", "x").replace(
        "timestep", "t"
    )
    assert '_no_split_modules = ["TinyBlock"]' in found.text


def test_blocks_that_another_method_goes_through_are_checkpointed(tmp_path: Path) -> None:
    inner = "    def forward(self, x, t):\n        return self.through(x, t)\n\n    def through(self, x, t):"
    found = ported(
        tmp_path, COLLECTED.replace("    def forward(self, x, t):\n        print", f"{inner}\n        print")
    )
    assert "x = self._gradient_checkpointing_func(layer, x, t)" in found.text
    assert '_no_split_modules = ["TinyBlock"]' in found.text


def test_blocks_of_a_list_that_only_foreign_modules_join_are_none(tmp_path: Path) -> None:
    text = COLLECTED.replace("append(Block(dim))", "append(nn.Identity())").replace("append(Down(", "append(nn.Linear(")
    assert "_gradient_checkpointing_func" not in ported(tmp_path, text).text


def test_named_arguments_reach_a_checkpoint(tmp_path: Path) -> None:
    text = attention(SPLIT, ASKED).replace("x = block(x)", "x = block(**{'x': x})")
    assert "functools.partial(block, **{" in ported(tmp_path, text).text


MAPPING = """
class Net(nn.Module):
    def __init__(self, width=8, out=4):
        super().__init__()
        self.proj = nn.Linear(width, out)
        self.text = nn.Linear(width, out)

    def forward(self, x, t, cond):
        more = cond.get("more", 0.0)
        return self.proj(x) + self.text({text}).mean(1) + more
"""


@pytest.mark.parametrize(("inside", "kept"), [
    ("hidden_states = []\n        hidden_states.append(x)\n        x = self.proj(hidden_states.pop())",
     "own_hidden_states.append(hidden_states)"),
    ("x = self.inner(hidden_states=x)", "self.inner(hidden_states=hidden_states)"),
])  # fmt: skip
def test_a_local_variable_makes_way_for_an_argument(inside: str, kept: str, tmp_path: Path) -> None:
    text = MAPPING.replace("x, t, cond", "x, t").replace("self.proj(x) + self.text({text}).mean(1) + more", "x")
    found = ported(tmp_path, text.replace('more = cond.get("more", 0.0)', inside))
    assert "def forward(self, hidden_states, timestep," in found.text
    assert kept in found.text


def test_a_function_by_the_name_of_an_argument_stays(tmp_path: Path) -> None:
    text = MAPPING.replace("x, t, cond", "x, t").replace("self.proj(x) + self.text({text}).mean(1) + more", "x")
    helper = "def timestep(x):\n    return x\n\n\n"
    found = ported(tmp_path, helper + text.replace('more = cond.get("more", 0.0)', "x = timestep(x) + t"))
    assert "def forward(self, hidden_states, t," in found.text


def test_items_of_a_mapping_are_arguments(tmp_path: Path) -> None:
    found = ported(tmp_path, MAPPING.format(text='cond["words"]'))
    assert "def forward(self, hidden_states, timestep, encoder_hidden_states, cond_more=None" in found.text
    assert "self.proj_out(encoder_hidden_states)" in found.text
    assert found.forward.names["cond{words}"] == "encoder_hidden_states"
    assert "more = 0.0 if cond_more is None else cond_more" in found.text


def test_a_mapping_that_is_handed_on_stays(tmp_path: Path) -> None:
    found = ported(tmp_path, MAPPING.format(text="self.words(cond)"))
    assert "def forward(self, hidden_states, timestep, encoder_hidden_states, return_dict" in found.text


TESTED = """
class Net(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.layer = nn.Linear(dim, dim)

    def forward(self, x, t, y=None):
        if "text" in y.keys():
            x = x + y["text"]
        if "mask" not in y:
            y["mask"] = torch.ones_like(x)
        return self.layer(x * y["mask"])
"""


def test_tests_whether_a_mapping_has_an_item_become_tests_of_an_argument(tmp_path: Path) -> None:
    text = ported(tmp_path, TESTED).text
    assert "if encoder_hidden_states is not None:" in text
    assert "if encoder_attention_mask is None:" in text
    assert "encoder_attention_mask = torch.ones_like(hidden_states)" in text
    assert "y[" not in text


ROWS_OF_PARTS = """
class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.proj = nn.Linear(dim, dim)

    def forward(self, x, emb=None, scale=1):
        return self.proj(x) * scale


class Down(nn.Module):
    def forward(self, x, scale=1):
        return x * scale


class Net(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.downs = nn.ModuleList([])
        self.downs.append(nn.ModuleList([Block(dim), Down()]))

    def forward(self, x, t):
        for block, down in self.downs:
            x = block(x, t)
            x = down(x, scale=2)
        return x
"""


def test_of_modules_in_a_list_of_lists_the_class_is_unknown(tmp_path: Path) -> None:
    text = "".join(ported(tmp_path, ROWS_OF_PARTS).text.split())
    assert "self._gradient_checkpointing_func(functools.partial(down,scale=2),hidden_states)" in text
