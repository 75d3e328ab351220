"""xDiT in one process."""
