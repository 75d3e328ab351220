"""Layers of fairscale, on one process."""
