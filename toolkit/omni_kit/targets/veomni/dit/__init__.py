"""Diffusion transformers in VeOmni: wrappers over classes of diffusers."""
