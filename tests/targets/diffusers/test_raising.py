"""Pipelines that raise: nothing in them that no name and no file of the authors speaks for."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from omni_kit.errors import BadInput
from omni_kit.scaffold.new_model import draft
from omni_kit.targets.diffusers.transformer.raising import is_prompt, of_sounds
from omni_kit.targets.registry import find_integrations
from omni_kit.upstream.repositories.reference import find_reference

NET = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, {made}width=8):
        super().__init__()
        self.first = nn.{conv}(4, width, 1)
        self.time = nn.Linear(1, width)
        self.told = nn.Linear(width, width)
        self.last = nn.{conv}(width, 4, 1)

    def forward(self, x, t, {told}):
        h = self.first(x) + self.told({argument}).mean()
        return self.last(h + self.time(t[:, None]).mean())
"""
MEL = """
import librosa
from net import Net

def vocode(vocoder, mel):
    return vocoder(mel)
"""
WORDS = """
from net import Net

def embed(tokenizer, text_encoder, prompt):
    return text_encoder(tokenizer(prompt))
"""
PIXELS = "from PIL import Image\nfrom net import Net\n"


NAMELESS = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, wide=4, width=8):
        super().__init__()
        self.first = nn.Conv2d(wide, width, 1)
        self.time = nn.Linear(1, width)
        self.last = nn.Conv2d(width, wide, 1)

    def forward(self, x, t):
        return self.last(self.first(x) + self.time(t[:, None])[..., None, None])
"""


def net(folder: Path, argument: str, made: str = "", rest: str = "", conv: str = "Conv2d", more: str = "") -> str:
    text = NET.format(made=made, told=argument + more, argument=argument.partition(":")[0], conv=conv)
    (folder / "net.py").write_text(text, encoding="utf-8")
    (folder / "rest.py").write_text(rest, encoding="utf-8")
    return f"{folder}::Net"


def drafted(folder: Path, source: str) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Return the files of a port that is planned and not run, and its decisions."""
    plan, files, _ = draft("tiny", source, target="diffusers", style="plugin", into=folder)
    return files, {one.what: f"{one.choice}: {one.reason}" for one in plan.decisions}


@pytest.mark.parametrize(("argument", "made", "rest", "prompt"), [
    ("text_emb", "", "", True),
    ("text: torch.LongTensor", "", "", False),
    ("context", "text_dim=8, ", "", True),
    ("context", "", WORDS, True),
    ("cond", "", WORDS, True),
    ("context", "", "", False),  # "text" within another word
    ("context", "", WORDS.replace("from net import Net", ""), False),  # a file that does not know the model
    ("texture", "", "", False),
    ("word_emb", "", "", True),
    ("spec", "", WORDS, False),
    ("cond", "mel_dim=8, ", WORDS, False),  # a prompt may be a recording
    ("context", "mel_dim=8, ", WORDS + "captions = []", True),
    ("speaker_emb", "text_dim=8, ", WORDS, False),
    ("y", "num_classes=8, ", WORDS, False),
    ("class_labels", "label_dim=0, ", WORDS, False),
])  # fmt: skip
def test_a_condition_is_a_prompt_where_names_or_files_say_so(
    argument: str, made: str, rest: str, prompt: bool, tmp_path: Path
) -> None:
    assert is_prompt(find_reference(net(tmp_path, argument, made, rest)), argument.partition(":")[0]) is prompt


@pytest.mark.parametrize(("made", "rest", "conv", "sounds"), [
    ("mel_dim=8, ", "", "Conv2d", True),
    ("", MEL, "Conv2d", True),
    ("", MEL.replace("from net import Net", ""), "Conv2d", False),
    ("", MEL + PIXELS, "Conv2d", False),
    ("", "", "Conv2d", False),
    ("audio_dim=8, ", "", "Conv3d", False),
    ("", MEL, "Conv3d", False),
])  # fmt: skip
def test_latents_are_sounds_where_names_or_files_say_so(
    made: str, rest: str, conv: str, sounds: bool, tmp_path: Path
) -> None:
    assert of_sounds(find_reference(net(tmp_path, "cond", made, rest, conv))) is sounds


def test_a_pipeline_of_sounds_that_raises_takes_latents_and_the_authors_conditions(tmp_path: Path) -> None:
    files, decisions = drafted(tmp_path, net(tmp_path, "conditioner", rest=MEL, more=", speaker_emb, mask=None"))
    pipeline, page, readme = (files[f"tiny/{one}"] for one in ("pipeline_tiny.py", "docs/tiny.md", "README.md"))
    assert "raise NotImplementedError" in pipeline
    for word in ("prompt", "okenizer", "guidance", "AutoencoderKL", "height", "sigmas", "number of channels"):
        assert word not in pipeline
    assert "conditioner: torch.Tensor | None = None" in pipeline
    assert "speaker_emb: torch.Tensor | None = None" in pipeline
    assert "A placeholder" in pipeline
    assert "encoder_attention_mask" not in files["tiny/transformer_tiny.py"]
    assert "def forward(self, hidden_states, timestep, conditioner" in files["tiny/transformer_tiny.py"]
    assert "raises `NotImplementedError`" in page
    assert "raises `NotImplementedError`" in readme
    assert "```" not in page
    assert decisions["scheduler"].startswith("none yet: ")
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(BadInput, match=r"pipeline_tiny\.py raises NotImplementedError until its denoising steps are"):
        find_integrations(tmp_path / "tiny" / "pipeline_tiny.py")


def test_a_pipeline_of_pictures_that_raises_keeps_the_prompt_that_files_speak_of(tmp_path: Path) -> None:
    files, _ = drafted(tmp_path, net(tmp_path, "context", rest=WORDS + PIXELS))
    pipeline = files["tiny/pipeline_tiny.py"]
    assert "raise NotImplementedError" in pipeline
    assert "def encode_prompt" in pipeline
    assert "height" in pipeline
    assert "autoencoder expects" not in pipeline


def test_what_is_called_a_text_is_the_prompt_and_not_the_first_condition(tmp_path: Path) -> None:
    files, _ = drafted(tmp_path, net(tmp_path, "cond", "mel_dim=8, text_dim=8, ", MEL, more=", text"))
    assert "timestep, cond, encoder_hidden_states" in files["tiny/transformer_tiny.py"]
    pipeline = files["tiny/pipeline_tiny.py"]
    assert "def encode_prompt" in pipeline
    assert "cond: torch.Tensor | None = None" in pipeline
    assert "pass the transformer text" not in pipeline


def test_labels_that_are_off_by_default_are_no_prompt(tmp_path: Path) -> None:
    files, _ = drafted(tmp_path, net(tmp_path, "class_labels", "label_dim=0, ", WORDS + PIXELS))
    pipeline = files["tiny/pipeline_tiny.py"]
    assert "class_labels: torch.Tensor | None = None" in pipeline
    assert "prompt" not in pipeline


def test_a_video_s_masks_of_persons_are_no_mask_of_its_prompt(tmp_path: Path) -> None:
    source = net(
        tmp_path,
        "context",
        "text_dim=8, audio_dim=8, ",
        WORDS,
        "Conv3d",
        ", clip_fea=None, audio=None, ref_target_masks=None",
    )
    files, decisions = drafted(tmp_path, source)
    assert decisions["model"].startswith("TinyTransformer3DModel")
    assert "encoder_attention_mask" not in files["tiny/transformer_tiny.py"]
    assert "ref_target_masks" in files["tiny/transformer_tiny.py"]
    assert "def encode_prompt" in files["tiny/pipeline_tiny.py"]
    assert "AutoencoderKL" not in files["tiny/pipeline_tiny.py"]


@pytest.mark.parametrize(("imports", "said"), [
    ("try:\n    import apex\nexcept ImportError:\n    apex = None", "kept where it is optional"),
    ("import apex", "written out"),
])  # fmt: skip
def test_decisions_on_packages_say_what_the_file_does(imports: str, said: str, tmp_path: Path) -> None:
    source = net(tmp_path, "cond")
    text = (tmp_path / "net.py").read_text(encoding="utf-8").replace("import torch\n", f"import torch\n{imports}\n", 1)
    read = "        h = h if apex is None else apex.fused(h)\n        return" if "try" in imports else "        return"
    (tmp_path / "net.py").write_text(text.replace("        return", read), encoding="utf-8")
    _, decisions = drafted(tmp_path, source)
    assert decisions.get("apex", "written out").startswith(said)


@pytest.mark.parametrize(("channels", "prepared"), [("in_channels", True), ("wide", False)])
def test_a_pipeline_that_raises_reads_no_channels_of_an_autoencoder_that_it_may_lack(
    channels: str, prepared: bool, tmp_path: Path
) -> None:
    (tmp_path / "net.py").write_text(NAMELESS.replace("wide", channels), encoding="utf-8")
    files, _ = drafted(tmp_path, f"{tmp_path}::Net")
    call = files["tiny/pipeline_tiny.py"].partition("def __call__")[2]
    assert ("self.prepare_latents(" in call) == prepared
    assert "self.vae.config.latent_channels" not in call
    assert "The authors' sampling loop could not be analysed" in call
