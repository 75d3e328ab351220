"""Small models of authors, and what becomes of them."""

from pathlib import Path

from omni_kit.pysource.library import find_library
from omni_kit.targets.diffusers.porting.port import Port, port
from omni_kit.upstream.repositories.reference import find_reference

HEAD = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n"
NET = """
class Net(nn.Module):
    def __init__(self, dim=8, depth=2):
        super().__init__()
        self.blocks = nn.ModuleList([Attn(dim) for _ in range(depth)])

    def forward(self, x, t, context):
        for block in self.blocks:
            x = block(x)
        return x
"""


def ported(folder: Path, text: str, head: str = HEAD, name: str = "Net") -> Port:
    (folder / "m.py").write_text(head + text, encoding="utf-8")
    return port(find_reference(f"{folder}::{name}"), "Tiny", find_library("diffusers"), "diffusers")


NAMESPACE = """
class Net(nn.Module):
    def __init__(self, args, patch=2):
        super().__init__()
        self.args = args
        self.width = width = args.width
        self.proj = nn.Linear(width, args.out)

    def forward(self, x, t):
        return self.proj(x) * self.args.scale
"""


def attention(init: str, forward: str) -> str:
    lines = "\n".join(f"        {line}" for line in init.splitlines())
    body = "\n".join(f"        {line}" for line in forward.splitlines())
    start = "class Attn(nn.Module):\n    def __init__(self, dim):\n        super().__init__()\n"
    return f"{start}{lines}\n\n    def forward(self, x):\n{body}\n\n{NET}"


SPLIT = "\n".join(f"self.{name} = nn.Linear(dim, dim)" for name in "qkvo")
ASKED = """q, k, v = self.q(x), self.k(x), self.v(x)
y = F.scaled_dot_product_attention(q[:, None], k[:, None], v[:, None])
return self.o(y[:, 0])"""
COLLECTED = """
class Down(nn.Linear):
    pass


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.net = nn.Linear(dim, dim)

    def forward(self, x, t):
        return self.net(x) + t[:, None]


class Net(nn.Module):
    def __init__(self, dim=8, depth=2):
        super().__init__()
        levels = [nn.Linear(dim, dim)]
        for at in range(depth):
            levels.append(Block(dim))
            levels.append(Down(dim, dim))
        self.levels = nn.ModuleList(levels)

    def forward(self, x, t):
        print(x.shape)
        if self.training:
            print("in training")
        for layer in self.levels:
            if isinstance(layer, Block):
                x = layer(x, t)
            else:
                x = layer(x)
                print("narrower")
        return x
"""
HEADS = "q, k, v = (f(x).unflatten(-1, (2, -1)).transpose(1, 2) for f in (self.q, self.k, self.v))\n"
NAMED = """
class Norm(nn.LayerNorm):
    pass


class Mixer(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.q, self.k, self.v = nn.Linear(dim, dim), nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.qn = nn.LayerNorm(dim)
        self.kn = nn.LayerNorm(dim)
        self.o = nn.Linear(dim, dim)

    def forward(self, x, y):
        q, k, v = self.qn(self.q(x)), self.kn(self.k(y)), self.v(y)
        return self.o(F.scaled_dot_product_attention(q, k, v))


class Layer(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.before = nn.LayerNorm(dim)
        self.mix = Mixer(dim)
        self.between = nn.LayerNorm(dim)
        self.read = Mixer(dim)
        self.last = nn.LayerNorm(dim)
        self.net = nn.Sequential(nn.Linear(dim, dim), nn.GELU(), nn.Linear(dim, dim))

    def forward(self, x, y):
        h = self.before(x)
        x = x + self.mix(h, h)
        x = x + self.read(self.between(x), y)
        return x + self.net(self.last(x))


class Net(nn.Module):
    def __init__(self, dim=8, depth=2):
        super().__init__()
        self.inner = nn.Linear(dim, dim)
        self.clock = nn.Sequential(nn.Linear(dim, dim), nn.SiLU(), nn.Linear(dim, dim))
        self.words = nn.Linear(dim, dim)
        self.stack = nn.ModuleList([Layer(dim) for _ in range(depth)])
        self.ending = nn.LayerNorm(dim)
        self.out = nn.Linear(dim, dim)

    def forward(self, x, t, context):
        y = self.words(context)
        x = self.inner(x) + self.clock(t)
        for block in self.stack:
            x = block(x, y)
        return self.out(self.ending(x))
"""
GUARDED_PACKAGE = """
from diffusers.utils.import_utils import is_torch_npu_available

if is_torch_npu_available():
    import torch_npu


class Net(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        encoders = nn.ModuleList([Attn(dim) for _ in range(2)])
        self.blocks = nn.ModuleList(encoders)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x, t):
        for block in self.blocks:
            x = torch_npu.attend(x) if x.device.type == "npu" else block(x)
        return self.proj(x)
"""
