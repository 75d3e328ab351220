"""What is known about an integration of a diffusion transformer: its two sides, and what diffusers declares."""

from omni_checkers.veomni.facts.diffusion.sides import Diffusion, Side, diffusion, speaks_of_diffusion

__all__ = ["Diffusion", "Side", "diffusion", "speaks_of_diffusion"]
