"""qwen3_vl against transformers 5.9.0, on a toy in which every weight differs.

python -m pytest qwen3_vl/tests/test_qwen3_vl_parity.py
"""

from pathlib import Path

import pytest

parity = pytest.importorskip("omni_kit.parity", reason="parity needs omni-kit")
pytest.importorskip("torch", reason="parity needs torch")

MODEL = Path(__file__).resolve().parents[1]


def test_every_tensor_is_upstreams() -> None:
    """Loading, saving, outputs and gradients; a failure names the first module to blame, and how to run it again."""
    parity.assert_parity(MODEL, ["import", "keys", "roundtrip", "forward", "backward"])
