"""Class labels of a model, and what only looks like them."""

from pathlib import Path

import pytest

from omni_kit.targets.diffusers.porting.labels import guiding_methods, labels_of
from omni_kit.upstream.repositories.reference import find_reference
from tests.targets.diffusers.porting.small_models import ASKED, HEAD, NET, SPLIT, attention, ported

TOLD = """import torch
from torch import nn


class Embedder(nn.Module):
    def __init__(self, num, width):
        super().__init__()
        self.table = nn.Embedding(num + 1, width)

    def forward(self, y):
        {reads}
        return self.table(y)


class Net(nn.Module):
    def __init__(self, num_embeds=10, width=8):
        super().__init__()
        self.y_embed = Embedder(num_embeds, width)

    def forward(self, x, t, y):
        return x + self.y_embed(y)
"""


@pytest.mark.parametrize(("reads", "labels"), [
    ("batch = y.shape[0]", True), ("batch, length = y.shape[0], y.shape[1]", False), ("y = y[:, : y.size(1)]", False),
])  # fmt: skip
def test_what_has_a_length_is_a_text(reads: str, labels: bool, tmp_path: Path) -> None:
    file = tmp_path / "net.py"
    file.write_text(TOLD.format(reads=reads), encoding="utf-8")
    assert (labels_of(find_reference(f"{file}::Net")) is not None) is labels


INSIDE = """
    def embed(self, x, labels, drop):
        return x + self.y_embed(labels.long())

    def forward(self, x, t, y):
        return self.embed(x, y, 0.1)
"""


@pytest.mark.parametrize(("made", "one_hot", "named"), [
    ("Embedder(num_classes, width)", False, True),
    ("Embedder(num_classes, width) if num_classes else None", False, True),
    ("nn.Linear(num_classes, width)", True, True),
    ("nn.Linear(width, width)", None, False),
    ("nn.Sequential(nn.Embedding(num_classes + 1, width), nn.SiLU())", False, True),
    ("nn.Sequential(nn.Linear(width, width), nn.SiLU())", None, False),
])  # fmt: skip
def test_labels_are_numbers_or_rows_that_a_method_is_passed(
    made: str, one_hot: bool | None, named: bool, tmp_path: Path
) -> None:
    text = TOLD.format(reads="").replace("num_embeds", "num_classes").replace("Embedder(num_classes, width)", made)
    file = tmp_path / "net.py"
    file.write_text(text[: text.rindex("    def forward")].rstrip() + INSIDE, encoding="utf-8")
    found = labels_of(find_reference(f"{file}::Net"))
    assert (found is not None) is named
    if found is not None:
        assert (found.argument, found.classes, found.one_hot) == ("y", "num_classes", one_hot)
        assert found.null_of({"num_classes": 10}) == 10


def test_a_padded_row_is_the_label_of_no_class(tmp_path: Path) -> None:
    text = TOLD.format(reads="").replace("num + 1, width", "num_embeddings=num + 1, embedding_dim=width, padding_idx=0")
    file = tmp_path / "net.py"
    file.write_text(text, encoding="utf-8")
    found = labels_of(find_reference(f"{file}::Net"))
    assert found is not None
    assert (found.null, found.highest, found.null_of({"num_embeds": 10})) == (
        "0", "self.transformer.config.num_embeds", 0
    )  # fmt: skip


def test_a_table_of_steps_has_no_labels(tmp_path: Path) -> None:
    file = tmp_path / "net.py"
    file.write_text(TOLD.format(reads="").replace("self.y_embed(y)", "self.y_embed(t)"), encoding="utf-8")
    assert labels_of(find_reference(f"{file}::Net")) is None


@pytest.mark.parametrize(("size", "labels"), [("num_embeds", True), ("max_length", False)])
def test_a_table_with_a_row_for_each_place_has_no_labels(size: str, labels: bool, tmp_path: Path) -> None:
    file = tmp_path / "net.py"
    file.write_text(TOLD.format(reads="").replace("num_embeds", size), encoding="utf-8")
    assert (labels_of(find_reference(f"{file}::Net")) is not None) == labels


LABELLED = """
class Labels(nn.Module):
    def __init__(self, classes, dim, drop):
        super().__init__()
        self.table = nn.Embedding(classes + (drop > 0), dim)

    def forward(self, y):
        return self.table(y)


class Net(nn.Module):
    def __init__(self, in_channels=4, dim=8, depth=2, num_classes=10, drop=0.1):
        super().__init__()
        self.in_channels = in_channels
        self.y_in = Labels(num_classes, dim, drop)
        self.blocks = nn.ModuleList([Attn(dim) for _ in range(depth)])

    def forward(self, x, t, y):
        x = x + self.y_in(y)
        for block in self.blocks:
            x = block(x)
        return x

    def forward_with_cfg(self, x, t, y, cfg_scale, power=2.0):
        half = x[: len(x) // 2]
        out = self.forward(torch.cat([half, half]), t, y)
        eps, rest = out[:, : self.in_channels], out[:, self.in_channels :]
        one, other = eps.chunk(2)
        joined = other + cfg_scale**power * (one - other)
        return torch.cat([torch.cat([joined, joined]), rest], dim=1)
"""


def test_labels_and_how_authors_guide_by_them_are_read(tmp_path: Path) -> None:
    found = ported(tmp_path, attention(SPLIT, ASKED).replace(NET, "") + LABELLED)
    assert found.labels is not None
    assert (found.labels.argument, found.labels.classes, found.labels.more) == ("y", "num_classes", True)
    assert found.forward.names["y"] == "class_labels"
    assert found.guided is not None
    assert found.guided.channels == "self.transformer.config.in_channels"
    assert found.guided.more == {"power": "2.0"}
    assert "forward_with_cfg" not in found.text


def test_a_method_that_guides_and_sets_what_forward_reads_stays(tmp_path: Path) -> None:
    scaled = LABELLED.replace("        half = x[", "        self.scale = power\n        half = x[")
    found = ported(tmp_path, attention(SPLIT, ASKED).replace(NET, "") + scaled)
    assert found.guided is not None
    assert "def forward_with_cfg" in found.text


@pytest.mark.parametrize(("test", "switches"), [("self.mode == 2", {"mode": 2}), ("self.mode > 1", {})])
def test_what_switches_labels_on_is_read(test: str, switches: dict[str, object], tmp_path: Path) -> None:
    switched = LABELLED.replace("drop=0.1):", "drop=0.1, mode=1):").replace(
        "        self.y_in = Labels(num_classes, dim, drop)\n",
        f"        self.mode = mode\n        if {test}:\n            self.y_in = Labels(num_classes, dim, drop)\n",
    )
    found = ported(tmp_path, attention(SPLIT, ASKED).replace(NET, "") + switched)
    assert found.labels is not None
    assert found.labels.switches == switches


def test_labels_that_are_null_by_default_are_none(tmp_path: Path) -> None:
    text = attention(SPLIT, ASKED).replace(NET, "") + LABELLED.replace("num_classes=10", "num_classes=None")
    assert ported(tmp_path, text).labels is None


def test_guiding_that_reads_what_only_the_model_has_stays_there(tmp_path: Path) -> None:
    own = LABELLED.replace("cfg_scale**power", "cfg_scale * self.y_in.table.weight.mean()")
    found = ported(tmp_path, attention(SPLIT, ASKED).replace(NET, "") + own)
    assert found.labels is not None
    assert found.guided is None
    assert "def forward_with_cfg" in found.text


@pytest.mark.parametrize(("given", "body", "guides"), [
    ("cfg_scale", "return self.forward(x, t, context) * cfg_scale", True),
    ("cfg_scale", "return x * cfg_scale", False),
    ("depth", "return self.forward(x, t, context)", False),
])  # fmt: skip
def test_a_method_that_guides_takes_a_scale_and_asks_the_model(
    tmp_path: Path, given: str, body: str, guides: bool
) -> None:
    method = f"\n    def with_cfg(self, x, t, context, {given}):\n        {body}\n"
    (tmp_path / "m.py").write_text(HEAD + NET + method, encoding="utf-8")
    found = [(one.name, scale) for one, scale in guiding_methods(find_reference(f"{tmp_path}::Net"))]
    assert found == ([("with_cfg", "cfg_scale")] if guides else [])
