"""Rules about modular pipelines."""
