"""wan_t2v_blocks against WanPipeline, on small components with random weights.

python -m pytest wan_t2v_blocks/tests
"""

from pathlib import Path

import pytest

parity = pytest.importorskip("omni_kit.parity", reason="parity needs omni-kit")
pytest.importorskip("torch", reason="parity needs torch")


def test_blocks_compute_what_the_pipeline_computes() -> None:
    """Every call of the components and each picture; a failure names the first block to blame."""
    parity.assert_parity(Path(__file__).resolve().parents[1], ["import", "stages"])
