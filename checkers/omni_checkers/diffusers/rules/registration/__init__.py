"""Rules about what is exported, and what is copied."""
