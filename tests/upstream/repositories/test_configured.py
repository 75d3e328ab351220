"""Numbers of classes in the words of the model's arguments: followed where they come from one place, never guessed."""

import ast
from pathlib import Path

import pytest

from omni_kit.pysource.eval import Unsupported
from omni_kit.upstream.repositories.configured import in_words_of_config
from omni_kit.upstream.repositories.reference import find_reference

ATTENTION = """\
class Attention(nn.Module):
    def __init__(self, dim, heads=8, *, scale=2):
        super().__init__()
        self.heads, self.size = heads, dim // heads
        self.wide = int(dim * scale)
        self.changed = dim
        self.changed += 1

    def forward(self, x):
        number = self.heads
        return x

"""
HEAD = "from dataclasses import dataclass\nimport torch\nfrom torch import nn\n\n\n"
NET = "class Net(nn.Module):\n    def __init__(self, {given}):\n        super().__init__()\n        {made}\n\n" \
      "    def forward(self, x, t): ...\n"  # fmt: skip


def told(folder: Path, wanted: str, given: str, made: str, before: str = "") -> str:
    (folder / "m.py").write_text(HEAD + ATTENTION + before + NET.format(given=given, made=made), encoding="utf-8")
    closure = find_reference(f"{folder}::Net").closure
    home = next(one for one in closure.definitions if one.name == "Attention")
    forward = next(one for one in ast.walk(home.node) if isinstance(one, ast.FunctionDef) and one.name == "forward")
    return in_words_of_config(ast.parse(wanted, mode="eval").body, home, forward, closure)


@pytest.mark.parametrize(("wanted", "given", "made", "text"), [
    ("self.heads", "width, n_head=4", "self.a = Attention(width, n_head)", 'config["n_head"]'),
    ("self.heads", "width", "self.a = Attention(width)", "8"),
    ("number", "width, n", "self.a = nn.ModuleList([Attention(width, heads=n) for _ in range(2)])", 'config["n"]'),
    ("self.size", "width, n", "self.a = Attention(width, n)", '(config["width"] // config["n"])'),
    ("self.wide", "width", "self.a = Attention(heads=2, dim=width)", 'int((config["width"] * 2))'),
])  # fmt: skip
def test_a_number_is_followed_to_the_models_arguments(
    wanted: str, given: str, made: str, text: str, tmp_path: Path
) -> None:
    assert told(tmp_path, wanted, given, made) == text


def test_through_classes_between_and_a_dataclass(tmp_path: Path) -> None:
    between = (
        "@dataclass\nclass Settings:\n    width: int = 64\n    n: int = 4\n\n\n"
        "class Block(nn.Module):\n    def __init__(self, s):\n        super().__init__()\n"
        "        self.attn = Attention(s.width, s.n)\n\n\n"
    )
    given = "config: Settings = Settings()"
    assert told(tmp_path, "self.heads", given, "self.a = Block(config)", between) == 'config["n"]'


@pytest.mark.parametrize(("wanted", "given", "made"), [
    ("self.heads", "width, n, m", "self.a, self.b = Attention(width, n), Attention(width, m)"),
    ("self.heads", "width, **more", "self.a = Attention(width, **more)"),
    ("self.heads", "width, of", "self.a = Attention(width, of(width))"),
    ("self.changed", "width", "self.a = Attention(width)"),
    ("x", "width", "self.a = Attention(width)"),
    ("self.heads", "width, n", "make = Attention\n        self.a = make(width, n)"),
])  # fmt: skip
def test_what_comes_from_elsewhere_is_not_told(wanted: str, given: str, made: str, tmp_path: Path) -> None:
    with pytest.raises(Unsupported):
        told(tmp_path, wanted, given, made)
