"""Definitions and imports of the file that is written, with a name for each."""

from pathlib import Path

import pytest

from omni_kit.errors import Refusal
from omni_kit.pysource.library import find_library
from omni_kit.targets.diffusers.porting.port import port
from omni_kit.upstream.repositories.reference import find_reference
from tests.targets.diffusers.porting.small_models import ASKED, HEAD, NAMESPACE, NET, SPLIT, attention, ported


def test_a_namesake_of_what_the_file_has_from_diffusers_is_not_imported(tmp_path: Path) -> None:
    text = attention(SPLIT, ASKED).replace("class Net(nn.Module)", "class Net(nn.Module, PeftAdapterMixin)")
    found = ported(tmp_path, f"from transformers.integrations import PeftAdapterMixin\n\n\n{text}")
    assert "transformers" not in found.text
    assert "PeftAdapterMixin" in found.text


MAKES = """
def {name}(dim):
    return nn.Sequential(nn.Linear(dim, dim), nn.ReLU())


class Net(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.ff = {name}(dim)

    def forward(self, x, t):
        return self.ff(x)
"""


@pytest.mark.parametrize(("name", "kept"), [("FeedForward", False), ("feed_forward", True)])
def test_a_function_called_as_a_class_of_diffusers_gets_another_name(name: str, kept: bool, tmp_path: Path) -> None:
    found = ported(tmp_path, MAKES.format(name=name))
    assert (f"def {name}(" in found.text) is kept
    assert "F811" not in found.text


def test_a_class_of_another_package_is_not_imported_from_diffusers_too(tmp_path: Path) -> None:
    text = "from no_such_layers import FeedForward\n" + MAKES.partition("\n\n\n")[2].format(name="FeedForward")
    found = ported(tmp_path, text).text
    assert "diffusers.models.attention" not in found
    assert "F811" not in found


def test_a_type_of_two_modules_is_imported_once(tmp_path: Path) -> None:
    (tmp_path / "other.py").write_text("from collections.abc import Callable\n\nKind = Callable[[int], int]\n")
    head = "from typing import Callable, Optional\n\nfrom other import Kind\n\nMaker = Optional[Callable]\n\n\n"
    init = f"{SPLIT}\nself.kind: Kind = abs\nself.maker: Maker = None"
    found = ported(tmp_path, head + attention(init, ASKED))
    assert "from collections.abc import Callable" in found.text
    assert "from typing import Optional" in found.text


INSIDE = f"""class Attn(nn.Module):
    def __init__(self, dim):
        super().__init__()
        from .layers import Scaled as S
        self.q, self.scaled = nn.Linear(dim, dim), S()

    def forward(self, x):
        from . import kernels as K, absent
        import math
        return K.gate(self.scaled(self.q(x))) * math.pi

{NET}"""


def test_what_functions_import_of_the_authors_is_written_here(tmp_path: Path) -> None:
    (tmp_path / "__init__.py").touch()
    (tmp_path / "layers.py").write_text(
        "from torch import nn\n\n\nclass Scaled(nn.Module):\n    def forward(self, x):\n        return 2 * x\n",
        encoding="utf-8",
    )
    (tmp_path / "kernels.py").write_text(
        "def gate(x):\n    from .deep import bent\n    return bent(x)\n", encoding="utf-8"
    )
    (tmp_path / "deep.py").write_text("def bent(x):\n    return x.tanh()\n", encoding="utf-8")
    (tmp_path / "m.py").write_text(HEAD + INSIDE.replace(", absent", ""), encoding="utf-8")
    text = port(find_reference(f"{tmp_path / 'm.py'}::Net"), "Tiny", find_library("diffusers"), "diffusers").text
    assert "from ." not in text
    assert "kernels" not in text
    assert all(one in text for one in ("class TinyScaled(", "def gate(", "def bent(", "TinyScaled()", "gate(self."))
    assert "import math" in text


def test_a_name_that_functions_import_from_two_places_stays_with_them(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / f"{name}.py").write_text("def run(x):\n    return x\n", encoding="utf-8")
    forward = "from one import run\nreturn run(self.other(self.q(x)))"
    more = "\n    def other(self, x):\n        from two import run\n        return run(x)\n"
    text = attention(SPLIT, forward).replace("\n\nclass Net", f"{more}\n\nclass Net")
    assert "from one import run" in ported(tmp_path, text).text
    assert "from two import run" in ported(tmp_path, text).text


QUOTED = """
class Part(nn.Module):
    @classmethod
    def made(cls: type["Part"], width: int) -> "Part":
        return cls(width)

    def __init__(self, width):
        super().__init__()
        self.proj = nn.Linear(width, width)


class Net(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.part = Part.made(width)

    def forward(self, x, t):
        return self.part.proj(x)
"""


def test_names_within_annotations_are_those_of_the_file(tmp_path: Path) -> None:
    text = ported(tmp_path, QUOTED).text
    assert 'cls: type["TinyPart"]' in text
    assert '-> "TinyPart"' in text
    assert "F821" not in text


def test_what_authors_import_from_diffusers_by_another_module_is_imported_once(tmp_path: Path) -> None:
    head = HEAD + "from diffusers.models import AutoencoderKL, ModelMixin\n"
    text = NET.replace("class Net(nn.Module)", "class Net(ModelMixin)").replace("Attn(dim)", "nn.Linear(dim, dim)")
    found = ported(tmp_path, text, head)
    assert found.text.count("import ModelMixin") == 1
    assert "F811" not in found.text


def test_names_of_one_assignment_come_along_together(tmp_path: Path) -> None:
    head = HEAD + "gain, (_, shift) = 2.0, (0, 1.0)\n"
    text = NAMESPACE.replace("self.proj(x) *", "self.proj(x) * gain + shift *")
    assert ported(tmp_path, text, head).text.count("gain, (_, shift) = 2.0, (0, 1.0)\n") == 1


def test_two_assignments_to_one_of_several_names_are_refused(tmp_path: Path) -> None:
    (tmp_path / "other.py").write_text("shift, more = 3.0, 4.0\n\n\ndef moved(x):\n    return x + shift\n")
    head = HEAD + "from .other import moved\n\ngain, shift = 2.0, 1.0\n"
    with pytest.raises(Refusal, match="shift is bound at"):
        ported(tmp_path, NAMESPACE.replace("self.proj(x) *", "moved(x) * gain + shift *"), head)


def test_two_functions_of_one_name_are_two(tmp_path: Path) -> None:
    (tmp_path / "other.py").write_text("def scaled(x):\n    return x * 3\n", encoding="utf-8")
    head = HEAD + "from . import other\n\n\ndef scaled(x):\n    return x * 2\n"
    found = ported(tmp_path, NAMESPACE.replace("self.proj(x)", "scaled(other.scaled(self.proj(x)))"), head)
    assert found.text.count("def scaled(") == 1
    assert found.text.count("scaled(x):\n    return x * 3") == 1
    assert "scaled(other_scaled(" in found.text or "_scaled(scaled(" in found.text


def test_an_import_by_way_of_another_file_is_made_where_it_comes_from(tmp_path: Path) -> None:
    (tmp_path / "layers.py").write_text("from diffusers.models.normalization import RMSNorm\n")
    attn = "class Attn(nn.Module):\n    def __init__(self, dim):\n        self.norm = RMSNorm(dim, 1e-6)\n"
    text = ported(tmp_path, attn + NET, f"{HEAD}from layers import RMSNorm\n").text
    assert "from diffusers.models.normalization import RMSNorm" in text
    assert "from layers" not in text
