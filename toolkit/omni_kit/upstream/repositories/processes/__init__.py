"""Sampling objects of authors without a readable loop: they are constructed and passed a model."""
