"""Rotary positions of transformers."""
