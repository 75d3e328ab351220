"""What only the authors' own surroundings need is left out."""

from pathlib import Path

import pytest

from tests.targets.diffusers.porting.small_models import ASKED, COLLECTED, HEAD, NET, SPLIT, attention, ported


@pytest.mark.parametrize(("ends", "said"), [
    ("exit()", "The model does not support these inputs."), ("sys.exit('too narrow')", "too narrow"),
])  # fmt: skip
def test_where_authors_end_the_process_a_port_raises(ends: str, said: str, tmp_path: Path) -> None:
    ended = f"        if x is None:\n            {ends}\n        print(x.shape)"
    text = ported(tmp_path, "import sys\n" + COLLECTED.replace("        print(x.shape)", ended)).text
    assert f'raise ValueError("{said}")' in text.replace("'", '"')
    assert "exit" not in text


COPIED = """
class Net(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.proj = nn.Linear(dim, dim)

    def merged(self):
        self.weight = self.proj.weight.detach(){more}
        self.bias = self.proj.bias.detach()
        self.weight{index} += 1.0

    def forward(self, x, t):
        self.merged()
        return F.linear(x, self.weight, self.bias)
"""


@pytest.mark.parametrize(("more", "index", "copies"), [("", "[:, 1:]", 1), ("", "", 1), (".float()", "", 0)])
def test_parameters_that_authors_detach_and_change_in_place_are_copied(
    more: str, index: str, copies: int, tmp_path: Path
) -> None:
    found = ported(tmp_path, COPIED.format(more=more, index=index)).text
    assert found.count("detach().clone()") == copies
    assert "self.bias = self.proj.bias.detach()\n" in found


CACHED = """
class Layer(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.proj = nn.Linear(dim, dim)

    def merged(self):
        self.weight = self.proj.weight{detached} * 2

    def cleared(self):
        self.weight = None

    def train(self, mode=True):
        self.training = mode
        if mode:
            self.cleared()
        else:
            self.merged()
        {more}

    def forward(self, x):
        \"\"\"Project.\"\"\"
        return self.proj(x) if self.training else F.linear(x, self.weight)


class Net(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.layer = Layer(dim)

    def forward(self, x, t):
        return self.layer(x)
"""


@pytest.mark.parametrize(("detached", "more", "each_time"), [
    (".detach()", "return self", True),
    (".detach()", "self.extra = 1", False),
    ("", "return self", False),
])  # fmt: skip
def test_what_is_made_of_weights_is_made_in_each_forward(
    detached: str, more: str, each_time: bool, tmp_path: Path
) -> None:
    found = ported(tmp_path, CACHED.format(detached=detached, more=more)).text
    assert ("if not self.training:\n            self.merged()" in found) is each_time
    assert ("def train" in found) is not each_time


def test_wrappers_of_the_authors_are_left_out(tmp_path: Path) -> None:
    text = attention(SPLIT, ASKED).replace(
        "x = block(x)", "x = torch.utils.checkpoint.checkpoint(block, x.cuda(), use_reentrant=False)"
    )
    found = ported(tmp_path, text)
    assert "torch.utils.checkpoint" not in found.text
    assert "cuda" not in found.text
    assert "self._gradient_checkpointing_func(block, hidden_states.to(hidden_states.device))" in found.text


@pytest.mark.parametrize(("given", "called"), [
    ("(x, t), self.parameters(), True", "block(hidden_states, timestep)"),
    ("(x,), (), self.training", "block(hidden_states)"),
    ("self.given, self.parameters(), True", "block(*self.given)"),
    ("self.given, x, t", "block(self.given, hidden_states, timestep)"),
    ("inputs=(x, t), params=self.parameters(), flag=True", "block(hidden_states, timestep)"),
    ("(x, t), self.use_checkpoint", "block(hidden_states, timestep)"),
    ("(x, t), x", "block((hidden_states, timestep), hidden_states)"),
    ("(x, t), x, t", "block((hidden_states, timestep), hidden_states, timestep)"),
])  # fmt: skip
def test_inputs_of_a_checkpoint_may_stand_in_a_tuple(given: str, called: str, tmp_path: Path) -> None:
    text = NET.replace("x = block(x)", f"x = checkpoint(block, {given})").replace("Attn(dim)", "nn.Linear(dim, dim)")
    assert called in ported(tmp_path, text).text


UNREACHABLE = """
class Net(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        if TEST:
            self.proj = Missing(width)
        else:
            self.proj = nn.Linear(width, width)

    def forward(self, x, t):
        if TEST:
            return missing(x)
        return self.proj(x)
"""


def test_code_that_authors_switched_off_is_left_out(tmp_path: Path) -> None:
    found = ported(tmp_path, UNREACHABLE.replace("TEST", "False"))
    assert "issing" not in found.text
    assert "nn.Linear(width, width)" in found.text


def test_code_that_a_value_switches_stays(tmp_path: Path) -> None:
    text = UNREACHABLE.replace("TEST", "FLAG").replace("Missing", "nn.Identity").replace("missing", "nn.Identity()")
    found = ported(tmp_path, text, HEAD + "FLAG = bool(0)\n")
    assert "nn.Identity(width)" in found.text
    assert "nn.Identity()(" in found.text


DEVICES = """
class Net(nn.Module):
    ignore_for_config = ["dim"]

    def __init__(self, dim=8, mean=None):
        super().__init__()
        if mean is None:
            mean = torch.zeros(dim)
        self.mean = nn.Parameter(mean)

    def load_state_dict(self, state_dict, strict=True):
        super().load_state_dict({name[6:]: one for name, one in state_dict.items()}, strict)

    def forward(self, x: float["b n d"], t: int["b"] | int[""]):
        assert x.device.type == "cuda" and x.dim() == 3
        assert x.is_cuda
        assert x.dtype in (torch.float16, torch.bfloat16)
        assert x.dtype in (torch.float32, torch.bfloat16)
        with torch.backends.cuda.sdp_kernel(enable_math=False):
            x = x + self.mean
        with torch.no_grad():
            return x
"""


def test_what_only_the_authors_machine_has_is_left_out(tmp_path: Path) -> None:
    found = ported(tmp_path, DEVICES).text.partition("class Tiny")[2]
    assert "assert x.dim() == 3" in found.replace("hidden_states", "x")
    assert "cuda" not in found
    assert "float16, torch.bfloat16" not in found
    assert "float32, torch.bfloat16" in found
    assert "with torch.no_grad():" in found
    assert "\n        hidden_states = hidden_states + self.mean" in found
    assert "load_state_dict" not in found
    assert "ignore_for_config" not in found
    assert "hidden_states: torch.Tensor, timestep: torch.LongTensor" in found
    init = found.partition("def __init__(")[2].partition(")")[0]
    assert init.split() == ["self,", "dim=8,"]  # a config cannot hold a tensor, and hides the parameter of that name


def test_an_elif_that_checkpoints_gives_way_to_its_else(tmp_path: Path) -> None:
    text = NET.replace(
        "            x = block(x)\n",
        "            if self.training and t is None:\n                x = x + 1\n"
        "            elif self.use_checkpoint:\n                x = torch.utils.checkpoint.checkpoint(block, x)\n"
        "            else:\n                x = block(x)\n",
    ).replace("self.blocks", "self.use_checkpoint = False\n        self.blocks", 1)
    text += "\nclass Attn(nn.Module):\n    def __init__(self, dim):\n        super().__init__()\n"
    text += "        self.fc = nn.Linear(dim, dim)\n\n    def forward(self, x):\n        return self.fc(x)\n"
    found = ported(tmp_path, text, HEAD + "import torch.utils.checkpoint\n")
    assert "use_checkpoint:" not in found.text
    assert "block(hidden_states)" in found.text
