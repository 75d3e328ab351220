"""The processes of a comparison: one a side, and those that share a training step."""
