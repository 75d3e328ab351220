"""Start processes, limit them and read their replies."""
