"""qwen_image against diffusers 0.37.0, on a toy in which every weight differs.

python -m pytest qwen_image/tests/test_qwen_image_parity.py
"""

from pathlib import Path

import pytest

parity = pytest.importorskip("omni_kit.parity", reason="parity needs omni-kit")
pytest.importorskip("torch", reason="parity needs torch")

MODEL = Path(__file__).resolve().parents[1]


def test_every_tensor_is_upstreams() -> None:
    """Loading, saving, predictions, gradients; a failure names the first module to blame, and how to run it again."""
    parity.assert_parity(MODEL, ["import", "keys", "roundtrip", "forward", "backward"])
