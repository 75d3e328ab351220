"""Rules for models of diffusers, by topic."""
