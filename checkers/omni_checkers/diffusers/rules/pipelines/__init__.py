"""Rules about pipelines."""
