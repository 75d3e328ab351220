"""Layers of timm, where models import them."""
