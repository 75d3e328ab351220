"""Runs of models without weights, in their own processes."""
