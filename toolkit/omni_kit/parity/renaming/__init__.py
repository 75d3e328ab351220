"""Derives which of upstream's weights belong where in a model with other names, by running both, never by shape alone.

The model is run with no weights of its own. Each layer that is reached is given those of the upstream layer that was
fed the same numbers. Where several fit, one is tried; when what follows is fed numbers that upstream never saw, the
next one is. So swapped norms, halves, chunks and rows of heads are told apart by what they compute.
"""
