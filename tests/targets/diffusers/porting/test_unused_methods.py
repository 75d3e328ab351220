"""Methods, decorators and other forwards that a port leaves out, and those that it keeps."""

from pathlib import Path

import pytest

from tests.targets.diffusers.porting.small_models import ported

MODEL = """
import no_such_package


class Part(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer, self.scale = nn.Linear(width, width), 1.0

    def weigh(self, value):
        self.scale = value

    def attend_twice(self, x):
        return self.layer(self.layer(x))

    def get_processor(self):
        return self.layer

    def forward(self, x):
        return self.layer(x) * self.scale


class Net(nn.Module):
    def __init__(self, width=8, kind="ice"):
        super().__init__()
        self.part, self.kind, self.flag = Part(width), kind, False

    def store(self, path):
        no_such_package.store(self, path)

    def switch(self):
        self.flag = True

    def twice(self, x):
        return self.part(x) + self.helped(x)

    def helped(self, x):
        return x

    def forward(self, x, t):
        return FORWARD
"""


@pytest.mark.parametrize(
    ("forward", "kept", "left_out"),
    [
        ("self.twice(x)", {"twice", "helped", "switch"}, {"store", "weigh", "attend_twice"}),
        ("self.part(x)", {"switch"}, {"store", "weigh", "attend_twice", "twice", "helped"}),
        ("self.part.attend_twice(x)", {"attend_twice"}, {"weigh", "twice"}),
        ('getattr(self.part, "attend_twice")(x)', {"attend_twice"}, {"weigh", "twice"}),
        ('getattr(self, f"{self.kind}")(x)', {"twice", "helped", "store"}, set()),
        ('getattr(self, f"tw{self.kind}")(x)', {"twice", "helped"}, {"store"}),
    ],
)
def test_methods_that_nothing_reaches_are_left_out(
    forward: str, kept: set[str], left_out: set[str], tmp_path: Path
) -> None:
    text = ported(tmp_path, MODEL.replace("FORWARD", forward)).text
    assert {one for one in {*kept, "get_processor"} if f"def {one}(" not in text} == set()
    assert {one for one in left_out if f"def {one}(" in text} == set()
    assert ("no_such_package" in text) is ("store" in kept)


OF_PART = """

class Net(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.part = Part(width)

    def forward(self, x, t):
        return self.part(x)
"""
DECORATED = (
    """
def registered(cls):
    return cls


def doubled(function):
    def inner(self, x, *args):
        return 2 * function(self, x, *args)

    return inner


def scaled(factor):
    def decorate(function):
        return lambda self, x: factor * function(self, x)

    return decorate


@registered
class Part(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer = nn.Linear(width, width)

    @DECORATOR
    def forward(self, x):
        return self.layer(x)

"""
    + OF_PART
)


@pytest.mark.parametrize(("decorator", "kept"), [("doubled", True), ("scaled(3)", True), ("torch.compile", False)])
def test_decorators_of_the_authors_that_change_a_method_are_kept(decorator: str, kept: bool, tmp_path: Path) -> None:
    text = ported(tmp_path, DECORATED.replace("DECORATOR", decorator)).text
    assert (f"@{decorator}" in text) is kept
    assert (f"def {decorator.partition('(')[0]}(" in text) is kept
    assert "registered" not in text


OTHER_FORWARD = (
    """
try:
    import no_such_kernels

    HAS_KERNELS = True
except ImportError:
    HAS_KERNELS = False


class Part(nn.Module):
    def __init__(self, width, length=None):
        super().__init__()
        self.layer = nn.Linear(width, width)
        if length is not None:
            self.length = length
        else:
            if HAS_KERNELS and length is None:
                self.forward = self.fast

    def fast(self, x):
        return no_such_kernels.attend(self.layer(x))

    def forward(self, x):
        return self.layer(x)

"""
    + OF_PART
)


def test_a_forward_for_a_package_that_may_not_be_there_is_left_out(tmp_path: Path) -> None:
    text = ported(tmp_path, OTHER_FORWARD).text
    assert "no_such_kernels" not in text
    assert "self.fast" not in text
    assert "self.length = length" in text


def test_a_forward_that_an_argument_chooses_stays(tmp_path: Path) -> None:
    text = ported(tmp_path, OTHER_FORWARD.replace("HAS_KERNELS and length is None", "length is None")).text
    assert "self.forward = self.fast" in text


INNER = """
from diffusers.configuration_utils import ConfigMixin, register_to_config
from diffusers.models.modeling_utils import ModelMixin


class Part(ModelMixin, ConfigMixin):
    @register_to_config
    def __init__(self, width=8):
        super().__init__()
        self.layer = nn.Linear(width, width)

    def forward(self, x):
        return self.layer(x) * self.config.width


class Net(ModelMixin, ConfigMixin):
    @register_to_config
    def __init__(self, width=8):
        super().__init__()
        self.part = Part(width)

    def forward(self, x, t):
        return self.part(x)
"""


def test_a_model_within_the_model_registers_its_config(tmp_path: Path) -> None:
    assert ported(tmp_path, INNER).text.count("@register_to_config") == 2


@pytest.mark.parametrize(("call", "kept"), [("model.mask_of(x)", True), ("mask_of(x)", False)])
def test_methods_that_other_files_call_stay(call: str, kept: bool, tmp_path: Path) -> None:
    (tmp_path / "sample.py").write_text(f"def sample(model, x):\n    return model(x, {call})\n", encoding="utf-8")
    text = MODEL.replace("def helped", "def mask_of").replace("helped", "mask_of").replace("FORWARD", "self.part(x)")
    assert ("def mask_of" in ported(tmp_path, text, name="Net").text) is kept


def test_methods_that_other_files_call_and_that_call_the_model_are_a_pipelines(tmp_path: Path) -> None:
    (tmp_path / "sample.py").write_text("def sample(model, x):\n    return model.helped(x)\n", encoding="utf-8")
    text = MODEL.replace("FORWARD", "self.part(x)").replace("        return x\n", "        return self(x, 1.0)\n")
    assert "def helped" not in ported(tmp_path, text, name="Net").text
