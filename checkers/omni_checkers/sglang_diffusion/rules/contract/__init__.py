"""Rules on what passes between stages, configs and the denoiser."""
