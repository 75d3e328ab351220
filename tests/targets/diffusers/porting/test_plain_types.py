"""Tests for types of packages that diffusers does not need are left out."""

from pathlib import Path

from tests.targets.diffusers.porting.small_models import ported

TYPED = """
class Net(nn.Module):
    def __init__(self, width=4, widths=(4, 4)):
        super().__init__()
        if width is not None:
            from omegaconf.listconfig import ListConfig
            if type(width) == ListConfig:
                width = list(width)
        if isinstance(widths, (ListConfig, tuple)):
            widths = list(widths)
        elif isinstance(widths, ListConfig) or width == 3:
            widths = [3, 3]
        self.proj = nn.Linear(width, widths[0])

    def forward(self, x, t):
        return self.proj(x)
"""


def test_no_argument_has_a_type_of_a_package_that_diffusers_does_not_need(tmp_path: Path) -> None:
    text = ported(tmp_path, TYPED).text
    assert "ListConfig" not in text
    assert "isinstance(widths, tuple)" in text
    assert "elif width == 3:" in text
    assert "width = list(width)" not in text


def test_a_foreign_class_that_is_called_stays(tmp_path: Path) -> None:
    made = TYPED.replace("if type(width) == ListConfig:", "if width:").replace("list(width)", "ListConfig(width)")
    text = ported(tmp_path, made).text
    assert "from omegaconf.listconfig import ListConfig" in text
