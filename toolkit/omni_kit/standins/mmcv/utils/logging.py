"""Loggers that were set up already."""

logger_initialized: dict[str, bool] = {}
