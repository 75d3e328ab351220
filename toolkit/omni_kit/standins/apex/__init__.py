"""Norms of apex."""
