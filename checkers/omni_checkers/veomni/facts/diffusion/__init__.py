"""Facts about the integration of a diffusion transformer: its two sides, and diffusers' declarations."""

from omni_checkers.veomni.facts.diffusion.sides import Diffusion, Side, diffusion, speaks_of_diffusion

__all__ = ["Diffusion", "Side", "diffusion", "speaks_of_diffusion"]
