"""Recipes: what transformers declares for loading a model's checkpoint, read without torch."""
