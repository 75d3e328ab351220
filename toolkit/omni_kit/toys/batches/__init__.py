"""Batch builders: batches of a kind of model, their division, and the outputs that count."""
