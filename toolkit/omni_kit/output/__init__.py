"""One Output object for every command: data on stdout, diagnostics on stderr."""

from omni_kit.output.console import Format, Output, bounded

__all__ = ["Format", "Output", "bounded"]
