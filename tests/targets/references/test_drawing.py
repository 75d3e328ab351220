"""Drawing with an exported transformer: by the pipeline that the checkpoint lies in."""

from pathlib import Path

from omni_kit.targets.references.diffusers import DiffusersBuilder
from omni_kit.targets.veomni.dit.small_pipeline import toy


def test_a_pipeline_that_needs_a_negative_prompt_draws_and_one_that_fails_says_why(tmp_path: Path) -> None:
    """EasyAnimate fails without one where it is guided, which it is by default."""
    toy("EasyAnimatePipeline", tmp_path / "pipeline")
    checkpoint = tmp_path / "pipeline" / "transformer"
    builder = DiffusersBuilder()
    model = builder.load(checkpoint)

    assert builder.use(model, checkpoint) == ""
    model.forward = None  # type: ignore[assignment]
    assert "TypeError" in builder.use(model, checkpoint)
