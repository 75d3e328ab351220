"""Moving bytes: by ranges where they are contiguous, through memory where they are not, never much of it."""

import os
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from omni_kit.convert import transfer as room
from omni_kit.convert.plan import Output
from omni_kit.convert.transfer import Budget, Sources, copy_range, runs, slab_rows, transfer
from omni_kit.layout import read_checkpoint
from omni_kit.upstream.transformers.recipes.expression import (
    Expression,
    cut,
    deinterleave,
    interleave,
    join,
    stack,
    transpose,
    unstack,
    whole,
)

A = np.arange(5 * 6 * 8, dtype=np.uint32).reshape(5, 6, 8)
B = A + 10_000


@pytest.fixture
def sources(tmp_path: Path) -> Iterator[Sources]:
    save_file({"a": A, "b": B, "scalar": np.array(7, np.uint32)}, tmp_path / "model.safetensors")
    tensors = {k: info for k, info in read_checkpoint(tmp_path).tensors.items() if info is not None}
    with closing(Sources(tensors)) as opened:
        yield opened


def moved(x: Expression, sources: Sources, place: Path, dtype: str = "U32") -> np.ndarray:
    """What `transfer` writes for an expression, at an offset, with nothing written beside it."""
    file = place / "out"
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    os.ftruncate(descriptor, 12 + 4 * x.size)
    transfer(Output("x", dtype, "U32", x, x.unmoved is not None), sources, descriptor, 12, Budget(1 << 20))
    os.close(descriptor)
    content = file.read_bytes()
    assert content[:12] == bytes(12)
    return np.frombuffer(content[12:], np.uint32).reshape(x.shape)


def a() -> Expression:
    return whole("a", A.shape)


def b() -> Expression:
    return whole("b", B.shape)


CASES = {
    "as it is": (a(), A),
    "slice": (cut(a(), 0, 1, 3), A[1:3]),
    "stack": (stack([a(), b()]), np.stack([A, B])),
    "rows joined": (join([a(), b()], 1), np.concatenate([A, B], 1)),
    "columns joined": (join([a(), b()], 2), np.concatenate([A, B], 2)),
    "transposed": (transpose(a()), A.swapaxes(1, 2)),
    "transposed 2-D": (transpose(unstack(a())[2]), A[2].T),
    "first and last swapped": (transpose(a(), 0, 2), A.swapaxes(0, 2)),
    "taken apart": (deinterleave(a(), 1), np.concatenate([A[:, ::2], A[:, 1::2]], 1)),
    "alternating": (interleave(a(), 2), A.reshape(5, 6, 2, 4).swapaxes(2, 3).reshape(A.shape)),
    "transposed and taken apart": (
        deinterleave(transpose(a()), 1),
        np.concatenate([A.swapaxes(1, 2)[:, ::2], A.swapaxes(1, 2)[:, 1::2]], 1),
    ),
    "scalar": (whole("scalar", ()), np.array(7)),
    "nothing": (cut(a(), 0, 2, 2), A[2:2]),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("shortest", [1, 1 << 15], ids=["by ranges", "through memory"])
@pytest.mark.parametrize("slab", [64, 1 << 25], ids=["row by row", "at once"])
def test_what_is_written(
    name: str, shortest: int, slab: int, sources: Sources, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "_SHORTEST_RUN", shortest)
    monkeypatch.setattr(room, "_SLAB", slab)
    x, wanted = CASES[name]
    assert (moved(x, sources, tmp_path) == wanted).all()


def test_contiguous_stretches_need_no_memory() -> None:
    """Stacking, joining and slicing rows: each piece is one stretch, or one for each expert."""
    assert runs(a(), 1000) is not None
    assert runs(stack([a(), b()]), 1000) is not None
    assert runs(cut(a(), 0, 1, 3), 1000) is not None
    planned = runs(join([a(), b()], 1), 48)
    assert planned is not None
    assert [(key, list(stretches)) for key, stretches in planned][1] == (
        "b",
        [(48 * e, 96 * e + 48, 48) for e in range(5)],
    )


def test_short_stretches_are_gathered() -> None:
    assert runs(join([a(), b()], 1), 49) is None
    assert runs(transpose(a()), 2) is None
    assert runs(interleave(a(), 2), 2) is None


def test_slabs_are_a_few_rows_unless_they_need_the_whole_source() -> None:
    big = whole("a", (64, 1024, 1024))
    assert slab_rows(transpose(big), 4) == 8
    assert slab_rows(transpose(whole("a", (1 << 14, 1 << 12))), 4) == 1 << 12
    assert slab_rows(a(), 4) == 5


def test_a_source_that_shrinks_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "short").write_bytes(b"abc")
    with (tmp_path / "short").open("rb") as source, (tmp_path / "out").open("wb") as target:
        copy_range(source.fileno(), 0, target.fileno(), 0, 3)
        with pytest.raises(OSError, match="became shorter"):
            copy_range(source.fileno(), 0, target.fileno(), 0, 4)


def test_sources_open_each_file_once(sources: Sources) -> None:
    assert sources.place("a")[0] == sources.place("b")[0] == sources.place("scalar")[0]


def test_the_budget_holds_buffers_back() -> None:
    budget, order = Budget(100), []
    entered = threading.Event()

    def second() -> None:
        entered.set()
        with budget.reserve(60):
            order.append("second")

    with budget.reserve(60):
        thread = threading.Thread(target=second)
        thread.start()
        entered.wait()
        thread.join(0.05)
        order.append("first")
    thread.join()
    assert order == ["first", "second"]


def test_the_budget_lets_one_through_that_is_larger_alone() -> None:
    budget = Budget(100)
    with budget.reserve(1000):
        pass
    with budget.reserve(50), budget.reserve(50):
        pass
