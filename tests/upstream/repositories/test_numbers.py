"""Plain functions of numbers are worked out from their source as numpy and torch work them out."""

import ast
from pathlib import Path

import numpy as np
import pytest
import torch

from omni_kit.pysource.eval import Unsupported
from omni_kit.pysource.library import Library
from omni_kit.pysource.source import read_source
from omni_kit.upstream.repositories.numbers import called

HEAD = "import math\nimport numpy as np\nimport torch\n\n\ndef made(n=5):\n"


def both(place: Path, body: str) -> tuple[object, object]:
    """What a function gives: as it is read, and as it is run."""
    text = HEAD + "".join(f"    {line}\n" for line in body.splitlines())
    file = place / "made.py"
    file.write_text(text, encoding="utf-8")
    source = read_source(Library("made", place), file)
    function = next(node for node in source.tree.body if isinstance(node, ast.FunctionDef))
    scope: dict[str, object] = {}
    exec(text, scope)
    return called(source, function), scope["made"]()  # type: ignore[operator]


@pytest.mark.parametrize("body", [
    "return torch.linspace(-2, 2, n).clamp(-1, 1)",
    "return torch.clamp(torch.linspace(0, 2, n), max=0.7)",
    "return np.clip(np.linspace(0, 2, n), 0.3, 1.1)",
    "return np.linspace(0, 999, n).astype(int)",
    "return torch.linspace(0, 999, n).to(torch.int64)",
    "return torch.linspace(0, 999, n).round().long().flip(0)",
    "kept = np.cumprod(1 - np.linspace(0.1, 0.2, n))\nreturn np.append(1.0, kept[:-1])",
    "kept = torch.linspace(0, 1, 9)\nreturn kept[torch.arange(n)]",
    "found = []\nfor i in range(n):\n    found.append(min(i / n, 0.5))\nreturn np.array(found)",
    "left = lambda u: math.cos(u) ** 2\nfound = []\nfor i in range(n):\n    found.append(left(i))\nreturn found",
    "return torch.expm1(torch.linspace(-1, 1, n))",
    "for i in range(n):\n    if i > 2:\n        return [i]\nreturn []",
    "kept = torch.linspace(0, 1, n)\nsame = kept\nkept += 1\nsame[0] = 7\nreturn kept",
    "return np.linspace(0, 1, n, endpoint=False)[:3]",
    "return torch.cat([torch.arange(n), torch.zeros(1)])",
])  # fmt: skip
def test_what_is_read_is_what_is_run(body: str, tmp_path: Path) -> None:
    read, run = both(tmp_path, body)
    assert read == pytest.approx(torch.as_tensor(np.asarray(run), dtype=torch.float64).tolist(), rel=1e-5)


@pytest.mark.parametrize("body", [
    "import os\nreturn [len(os.getcwd())]",
    "kept = torch.linspace(0, 1, n)\nkept.mul_(2)\nreturn kept",
    "return torch.linspace(0, 1, n)[0.5 > 0.7 or 0.3]",
])  # fmt: skip
def test_what_is_not_followed_is_said(body: str, tmp_path: Path) -> None:
    with pytest.raises((Unsupported, TypeError, IndexError)):
        both(tmp_path, body)
