"""Rules on prompts and their encoders."""
