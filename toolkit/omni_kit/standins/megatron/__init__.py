"""Megatron in one process."""
