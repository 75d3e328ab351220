"""Runs of pipelines: configs constructed and callbacks called next to SGLang."""
