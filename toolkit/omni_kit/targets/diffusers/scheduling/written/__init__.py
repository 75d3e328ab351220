"""Schedulers that diffusers lacks: a port gets a copy of the one that goes as its authors do."""
