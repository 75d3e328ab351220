"""Rules on what a scaffold leaves to a person."""
