"""Groups of processes."""
