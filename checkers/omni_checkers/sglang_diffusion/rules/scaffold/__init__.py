"""Rules about the to-dos of a scaffold."""
