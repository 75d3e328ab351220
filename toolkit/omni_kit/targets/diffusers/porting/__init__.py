"""Rewrites the authors' code into diffusers' form: what it computes stays, how it is held together changes."""
