"""Functions that make tokens of latents, and the forms by which they are recognised."""

import ast
from collections.abc import Sequence
from pathlib import Path

import pytest

from omni_kit.upstream.repositories.packing import Packing, latents_shape, packing_of
from omni_kit.upstream.repositories.reference import find_reference
from omni_kit.upstream.repositories.sampling import samplings_of

TOKENS = '''\
import torch
from einops import rearrange, repeat
from torch import nn


class Net(nn.Module):
    def __init__(self, in_channels: int = 8, width: int = 12, pooled: int = 6):
        super().__init__()
        self.img_in, self.txt_in = nn.Linear(in_channels, width), nn.Linear(width, width)
        self.vector_in, self.out = nn.Linear(pooled, width), nn.Linear(width, in_channels)

    def forward(self, img, img_ids, txt, txt_ids, timesteps, y):
        places = torch.cat([txt_ids, img_ids], dim=1).sum(-1, keepdim=True).sin()
        x = torch.cat([self.txt_in(txt), self.img_in(img)], dim=1) + places
        x = x + self.vector_in(y)[:, None] + timesteps[:, None, None]
        return self.out(x[:, txt.shape[1] :])


def get_schedule(num_steps, length):
    shift = 1 + length / 64
    t = torch.linspace(1, 0, num_steps + 1)
    return (shift * t / (1 + (shift - 1) * t)).tolist()


def tokens_of(encode, pool, img, prompt, extra=None):
    """Returns what the model is passed."""
    rows, c, h, w = img.shape
    if rows == 1 and not isinstance(prompt, str):
        rows = len(prompt)
    img = rearrange(img, "b c (h ph) (w pw) -> b (h w) (c ph pw)", ph=2, pw=2)
    if img.shape[0] == 1 and rows > 1:
        img = repeat(img, "1 ... -> rows ...", rows=rows)
    img_ids = torch.zeros(h // 2, w // 2, 3)
    img_ids[..., 1] = img_ids[..., 1] + torch.arange(h // 2)[:, None]
    img_ids[..., 2] = img_ids[..., 2] + torch.arange(w // 2)[None, :]
    img_ids = repeat(img_ids, "h w c -> b (h w) c", b=rows)
    if extra is not None:
        img_ids = img_ids + extra.shape[1]
    txt = encode(prompt)
    txt_ids = torch.zeros(rows, txt.shape[1], 3)
    vec = pool(prompt)
    return {"img": img, "img_ids": img_ids.to(img.device), "txt": txt, "txt_ids": txt_ids, "vec": vec.to(img.device)}


def denoise(model: Net, img, img_ids, txt, txt_ids, vec, timesteps):
    for now, after in zip(timesteps[:-1], timesteps[1:]):
        t_vec = torch.full((img.shape[0],), now)
        pred = model(img=img, img_ids=img_ids, txt=txt, txt_ids=txt_ids, y=vec, timesteps=t_vec)
        img = img + (after - now) * pred
    return img


def generate(model, encode, pool, noise, prompt, steps):
    inp = tokens_of(encode, pool, noise, prompt=prompt)
    timesteps = get_schedule(steps, inp["img"].shape[1])
    return denoise(model, **inp, timesteps=timesteps)
'''


def read(place: Path, *changes: tuple[str, str], conditions: Sequence[str] = ("img_ids", "txt_ids", "y")
         ) -> Packing | None:  # fmt: skip
    text = TOKENS
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    file = place / "net.py"
    file.write_text(text, encoding="utf-8")
    reference = find_reference(f"{file}::Net")
    (sampling,) = samplings_of(reference)
    return packing_of(reference, sampling, "img", conditions, "txt")


def test_what_is_made_of_latents_and_of_the_length_of_prompts(tmp_path: Path) -> None:
    found = read(tmp_path)
    assert found is not None
    assert (found.latents, found.text, found.side) == ("img", "txt", 2)
    assert found.unpacked == "b (h w) (c ph pw) -> b c (h ph) (w pw)"
    assert found.sizes == ({"ph": 2, "pw": 2}, ("h", "w"))
    assert [*found.returned] == ["img_ids", "txt_ids"]
    assert found.parts == {"img": "packed['img']", "img_ids": "packed['img_ids']", "txt_ids": "packed['txt_ids']"}
    assert found.called == 'tokens_of(img=noise, encode=lambda *_: text, pool=lambda *_: y, prompt=[""] * len(noise))'
    body = "\n".join(map(ast.unparse, found.body))
    assert all(name not in body for name in ("prompt", "extra", "vec", "encode"))


def test_a_tuple_with_a_dictionary_is_read_by_place(tmp_path: Path) -> None:
    found = read(tmp_path, ('return {"img": img, ', "return img, {"))
    assert found is not None
    assert found.parts["img"] == "packed[0]"
    assert found.parts["txt_ids"] == "packed[1]['txt_ids']"


@pytest.mark.parametrize(
    "change",
    [
        ("b c (h ph) (w pw) -> b (h w) (c ph pw)", "b c h w -> b (h w) c"),  # no rows and columns of a token
        ("ph=2, pw=2", "ph=2, pw=4"),  # not as many rows as columns
        ("torch.zeros(h // 2, w // 2, 3)", "torch.full((h // 2, w // 2, 3), len(prompt))"),  # made of prompts
        ("torch.zeros(h // 2, w // 2, 3)", "grid(h, w)"),  # made by what is not there
        ("def tokens_of(encode, pool, img, prompt", "def tokens_of(encode, pool, img, prompt, side, kind"),
    ],
)
def test_what_is_made_of_more_is_not_moved(change: tuple[str, str], tmp_path: Path) -> None:
    assert read(tmp_path, change) is None


def test_a_loop_that_is_given_no_position_ids_has_none(tmp_path: Path) -> None:
    assert read(tmp_path, conditions=["y"]) is None


def test_latents_are_about_as_high_as_wide() -> None:
    assert latents_shape([1, 8, 24], 6) == [1, 6, 4, 8]
    assert latents_shape([2, 9, 8], 8) == [2, 8, 3, 3]
    assert latents_shape([1, 7, 4], 1) == [1, 1, 2, 14]
