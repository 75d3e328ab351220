"""What is known about models and pipelines of diffusers, read from their files."""
