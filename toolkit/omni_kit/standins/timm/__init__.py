"""Layers of timm."""
