"""Configs of small models, derived by rule from real ones."""
