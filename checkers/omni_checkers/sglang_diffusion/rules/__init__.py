"""Rules for SGLang-diffusion, by topic."""
