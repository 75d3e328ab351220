"""Reads what has no library yet: the plain PyTorch code of a model's authors. Nothing of it is ever imported here."""
