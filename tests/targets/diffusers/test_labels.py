"""Class labels of a model, and what only looks like them."""

from pathlib import Path

import pytest

from omni_kit.targets.diffusers.porting.labels import labels_of
from omni_kit.upstream.repositories.reference import find_reference

NET = """import torch
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
    file.write_text(NET.format(reads=reads), encoding="utf-8")
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
    text = NET.format(reads="").replace("num_embeds", "num_classes").replace("Embedder(num_classes, width)", made)
    file = tmp_path / "net.py"
    file.write_text(text[: text.rindex("    def forward")].rstrip() + INSIDE, encoding="utf-8")
    found = labels_of(find_reference(f"{file}::Net"))
    assert (found is not None) is named
    if found is not None:
        assert (found.argument, found.classes, found.one_hot) == ("y", "num_classes", one_hot)
        assert found.null_of({"num_classes": 10}) == 10


def test_a_padded_row_is_the_label_of_no_class(tmp_path: Path) -> None:
    text = NET.format(reads="").replace("num + 1, width", "num_embeddings=num + 1, embedding_dim=width, padding_idx=0")
    file = tmp_path / "net.py"
    file.write_text(text, encoding="utf-8")
    found = labels_of(find_reference(f"{file}::Net"))
    assert found is not None
    assert (found.null, found.highest, found.null_of({"num_embeds": 10})) == (
        "0", "self.transformer.config.num_embeds", 0
    )  # fmt: skip


def test_a_table_of_steps_has_no_labels(tmp_path: Path) -> None:
    file = tmp_path / "net.py"
    file.write_text(NET.format(reads="").replace("self.y_embed(y)", "self.y_embed(t)"), encoding="utf-8")
    assert labels_of(find_reference(f"{file}::Net")) is None
