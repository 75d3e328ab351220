"""Layers of earlier versions."""
