"""Transformers of diffusion models."""
