"""Every way in which authors say a GPU becomes the device of what a function receives: shown by running on a CPU."""

import re
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

from omni_kit.upstream.repositories.names import resolve
from omni_kit.upstream.repositories.reference import find_reference
from tests.targets.diffusers.porting.small_models import HEAD, ported

NET = """
{top}


class Inner(nn.Module):
    def __init__(self, dim=8, device={default}):
        super().__init__()
        self.device = device
        self.proj = nn.Linear(dim, dim)
        {init}

    def forward(self, x):
        {line}
        return self.proj(x)


class Net(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.inner = Inner(dim)

    def forward(self, x, t):
        return self.inner(x)
"""


def written(folder: Path, top: str = "", init: str = "pass", line: str = "pass", default: str = "None") -> str:
    return ported(folder, NET.format(top=top, init=init, line=line, default=default)).text


def run(text: str) -> torch.Tensor:
    read: dict[str, Any] = {}
    exec(compile(text, "<port>", "exec", dont_inherit=True), read)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sample: torch.Tensor = read["TinyTransformer2DModel"]()(torch.ones(1, 2, 8), torch.ones(1))[0]
    return sample


FORMS = (  # where it stands, what authors write, and what it becomes
    ("line", "x = x + torch.zeros(8, device='cuda')", "torch.zeros(8, device=x.device)"),
    ("line", "torch.cuda.ipc_collect()", ""),
    ("line", "x = x.to('cuda')", "x = x.to(x.device)\n"),
    ("line", "x = x.to('cuda:0', torch.float32)", "x.to(x.device, torch.float32)"),
    ("line", "x = x + torch.zeros(7, 8, device=x.get_device())[0]", "torch.zeros(7, 8, device=x.device)"),
    ("line", "x = x + torch.zeros(8).cuda(0, non_blocking=True)", "torch.zeros(8).to(x.device)"),
    ("line", "place = torch.device('cuda')", "place = x.device"),
    ("line", "x = x + torch.cuda.FloatTensor(8).fill_(0)", "torch.FloatTensor(8)"),
    ("line", "torch.cuda.current_stream().wait_stream(self.stream)", "if torch.cuda.is_available():\n"),
    ("line", "x = x + torch.zeros(6, 8, device=self.device)[0]", "torch.zeros(6, 8, device=x.device)"),
    ("line", "x = x + torch.zeros(5, 8, device=self.place)[0]", "torch.zeros(5, 8, device=x.device)"),
    ("line", "x = x + torch.zeros(4, 8, device=DEVICE)[0]", "torch.zeros(4, 8, device=x.device)"),
    ("line", "x = x + torch.zeros(3, 8, device=either)[0]", "torch.zeros(3, 8, device=x.device)"),
    ("line", "x = x + torch.zeros(2, 8, device=chosen)[0]", "torch.zeros(2, 8, device=x.device)"),
    ("line", "x = same(x) + grid(8) + alike(x) if MAJOR < 8 else x", "MAJOR < 8"),
    ("line", "x = x.to(HOST)", "x.to(HOST)"),
    ("init", "self.place = torch.device('cuda')", "self.place = None"),
    ("init", "self.register_buffer('table', torch.arange(8, device='cuda'))", '"table", torch.arange(8))'),
    ("init", "self.proj = self.proj.to('cuda')", "self.proj = self.proj\n"),
    ("init", "self.cores = torch.cuda.get_device_properties(0).multi_processor_count",
     "torch.cuda.get_device_properties(0).multi_processor_count if torch.cuda.is_available() else 1"),
    ("init", "self.new = torch.cuda.is_available() and torch.cuda.get_device_capability()[0] >= 8",
     "torch.cuda.is_available() and torch.cuda.get_device_capability()[0] >= 8\n"),
    ("init", "self.stream = torch.cuda.Stream()", "torch.cuda.Stream() if torch.cuda.is_available() else None"),
    ("top", "HOST = torch.device('cpu')", ""), ("top", "DEVICE = torch.device('cuda')", ""),
    ("top", "either = 'cuda' if torch.cuda.is_available() else 'cpu'", ""),
    ("top", "if torch.cuda.is_available():\n    chosen = 'cuda'\nelse:\n    chosen = 'cpu'", ""),
    ("top", "def grid(n, device='cuda'):\n    return torch.zeros(n, device=device)", "def grid(n, device=None):"),
    ("top", "def alike(x, device='cuda'):\n    return torch.zeros(x.shape[-1], device=device)",
     "device = x.device if device is None else device"),
    ("top", "MAJOR, _ = torch.cuda.get_device_capability()",
     "torch.cuda.get_device_capability() if torch.cuda.is_available() else (0, 0)"),
    ("top", "@torch.autocast('cuda', enabled=False)\ndef same(x):\n    return x", '@torch.autocast("cuda", enabled='),
)  # fmt: skip


def test_a_gpu_by_any_name_is_where_the_input_is(tmp_path: Path) -> None:
    top, init, line = (between.join(code for place, code, _ in FORMS if place == wanted) for wanted, between in
                       (("top", "\n"), ("init", "\n        "), ("line", "\n        ")))  # fmt: skip
    text = written(tmp_path, top, init, line, default="'cuda'")
    assert not [becomes for _, _, becomes in FORMS if becomes not in text]
    assert run(text).shape == (1, 2, 8)


FLASH = """
{head}
    try:
        from flash_attn_interface import flash_attn_func as attend
    except ImportError:
        attend = None
else:
    try:
        from flash_attn import flash_attn_func as attend
    except ImportError:
        attend = None


class Attn(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.q, self.k, self.v = nn.Linear(dim, dim), nn.Linear(dim, dim), nn.Linear(dim, dim)

    def forward(self, x):
        return attend(self.q(x)[:, :, None], self.k(x)[:, :, None], self.v(x)[:, :, None])[:, :, 0]


class Net(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.attn = Attn(dim)

    def forward(self, x, t):
        return self.attn(x)
"""


@pytest.mark.parametrize("head", [
    "if torch.cuda.get_device_capability()[0] >= 9:", "if torch.cuda.get_device_properties('cuda').major > 8:",
    "if 'H100' in torch.cuda.get_device_name() and True:",
])  # fmt: skip
def test_the_branch_without_a_gpu_says_what_a_name_means(head: str, tmp_path: Path) -> None:
    text = ported(tmp_path, FLASH.format(head=head)).text
    assert "dispatch_attention_fn" in text
    assert not re.search("flash_attn_interface|cuda", text)


def test_a_choice_that_does_not_raise_stays_whole(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(HEAD + FLASH.format(head="if torch.cuda.is_available():"), encoding="utf-8")
    found = resolve(find_reference(f"{tmp_path}::Net").cls.source, "attend")
    assert getattr(found, "node", None).__class__.__name__ == "If"


@pytest.mark.parametrize(("function", "kept"), [
    ("def gated(x, y, gate):\n    return (x + gate * y).to(torch.bfloat16)", "input_dtype = x.dtype"),
    ("def gated(norm, x, scale):\n    return (norm(x) * scale).half()", "input_dtype = x.dtype"),
])  # fmt: skip
def test_a_cast_of_arguments_of_which_nothing_else_is_asked(function: str, kept: str, tmp_path: Path) -> None:
    call = "gated(self.proj, x, x)" if "norm" in function else "gated(x, x, x)"
    text = written(tmp_path, top=function, line=f"x = {call}")
    assert kept in text
    assert run(text).dtype == torch.float32


def test_a_method_of_the_authors_with_the_name_of_the_kernel_is_called_as_it_is(tmp_path: Path) -> None:
    own = FLASH.format(head="if torch.cuda.get_device_capability()[0] >= 9:").replace(
        "return attend(", "return self.scaled_dot_product_attention("
    )
    method = "    def scaled_dot_product_attention(self, q, k, v):\n        return attend(q, k, v)\n"
    text = ported(tmp_path, own.replace("    def forward(self, x):", f"{method}\n    def forward(self, x):", 1)).text
    assert run(text).shape == (1, 2, 8)


@pytest.mark.parametrize(("line", "becomes"), [
    ("x = x * torch.arange(8)[: x.shape[-1]]", "torch.arange(8, device=x.device)"),
    ("x = x.squeeze(3) * torch.Tensor([2.0])", "torch.tensor([2.0], dtype=torch.float32, device=x.device)"),
    ("x = x + torch.zeros(x.shape[-1]).to(x)", "torch.zeros(x.shape[-1]).to(x)"),  # which says where it goes
    ("x = x * torch.arange(8)[: len(x)]", "torch.arange(8)["),  # of what may be no tensor
])  # fmt: skip
def test_what_a_forward_makes_is_where_its_input_is(line: str, becomes: str, tmp_path: Path) -> None:
    assert becomes in written(tmp_path, line=line)


def test_what_is_computed_with_an_argument_is_on_its_device(tmp_path: Path) -> None:
    text = """
def embedded(steps, dim):
    levels = torch.arange(dim).cuda()
    return steps * levels


class Net(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.proj = nn.Linear(dim, dim)

    def forward(self, x, t):
        return self.proj(x) + embedded(t, 8)
"""
    assert "levels = torch.arange(dim).to(steps.device)" in ported(tmp_path, text).text
