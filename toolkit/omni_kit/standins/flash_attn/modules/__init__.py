"""Modules that attend."""
