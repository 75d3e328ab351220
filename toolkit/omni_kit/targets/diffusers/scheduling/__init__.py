"""Schedulers that no version of diffusers has: what their authors' loop does, in a class of its own."""
