"""Compares what the two sides left: tensors, modules, low precision, attention."""
