"""Layers that earlier versions of diffusers had and the installed one lacks."""
