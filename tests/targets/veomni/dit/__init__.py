"""The VeOmni target's diffusion transformers."""
