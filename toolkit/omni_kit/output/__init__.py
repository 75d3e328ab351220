"""One Output object for every command: data on stdout, diagnostics on stderr."""

from omni_kit.output.console import Format, Output, bounded
from omni_kit.output.text import shown, table

__all__ = ["Format", "Output", "bounded", "shown", "table"]
