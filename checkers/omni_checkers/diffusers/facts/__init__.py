"""Facts about models and pipelines of diffusers, read from their files."""
