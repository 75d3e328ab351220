"""Upstream's sides of comparisons: transformers' and diffusers' own classes, untouched."""
