"""Groups of processes, and attention that they share."""
