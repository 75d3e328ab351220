"""How authors scale latents before an autoencoder of diffusers decodes them."""

from pathlib import Path

import pytest

from omni_kit.upstream.repositories.decoding import Decoding, decodes, decoding
from omni_kit.upstream.repositories.reference import find_reference

NET = (
    "from torch import nn\n\n\nclass Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n\n"
    "    def forward(self, x, t):\n        return x\n"
)
SAMPLE = "from diffusers.models import AutoencoderKL\n\n\ndef main(net, vae, x):\n"


@pytest.mark.parametrize(("body", "factor"), [
    ("    return vae.decode(x / 0.18215).sample\n", 0.18215),
    ("    return vae.decode(x[:4] / vae.config.scaling_factor, return_dict=False)[0]\n", None),
    ("    x = 1 / vae.config.scaling_factor * x\n    x = net(x)\n    return vae.decode(x.float()).sample\n", None),
    ("    factor = 0.5\n    return vae.decode(x / factor).sample\n", 0.5),
    ("    x = (x / vae.config.scaling_factor) + vae.config.shift_factor\n    return vae.decode(x)\n", None),
])  # fmt: skip
def test_the_factor_is_read_from_what_is_decoded(body: str, factor: float | None, tmp_path: Path) -> None:
    assert told(tmp_path, SAMPLE + body) == Decoding("sample.py:" + str(5 + body.count("\n") - 1), factor)


@pytest.mark.parametrize("body", [
    "    return vae.decode((x - 0.1) / 0.18215).sample\n",
    "    return vae.decode(x).sample\n",
    "    return vae.decode(x / 0.18215).sample, vae.decode(x / 0.2).sample\n",
    "    return vae.decode(x / net.factor).sample\n",
    "    return vae.decode(x / 0.5 + vae.config.shift_factor).sample\n",
    "    return net.tokenizer.decode(x / 0.18215)\n",
])  # fmt: skip
def test_what_cannot_be_analysed_is_not_guessed(body: str, tmp_path: Path) -> None:
    assert told(tmp_path, SAMPLE + body) is None


def test_another_autoencoder_of_that_name_is_none_of_diffusers(tmp_path: Path) -> None:
    own = SAMPLE.replace("diffusers.models", "own_vae") + "    return vae.decode(x / 0.18215).sample\n"
    assert told(tmp_path, own) is None


def told(place: Path, sample: str) -> Decoding | None:
    (place / "net.py").write_text(NET, encoding="utf-8")
    (place / "sample.py").write_text(sample, encoding="utf-8")
    found = decoding(find_reference(f"{place / 'net.py'}::Net"), "")
    return found and Decoding(found.where.rpartition("/")[2], found.factor)


@pytest.mark.parametrize(("text", "known"), [
    ("def main(net, x):\n    return net(x, 0)\n", False),
    (SAMPLE + "    return x\n", True), ("vocoder = load()\n", True),
])  # fmt: skip
def test_samples_of_authors_without_an_autoencoder_are_not_decoded(text: str, known: bool, tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(NET, encoding="utf-8")
    (tmp_path / "sample.py").write_text(text, encoding="utf-8")
    assert decodes(find_reference(f"{tmp_path / 'net.py'}::Net")) is known
