"""Rules on SGLang-diffusion, by topic."""
