"""Helpers of colossalai in one process."""
