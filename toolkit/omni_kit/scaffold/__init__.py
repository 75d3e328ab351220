"""Scaffolds an integration: profile, file plan, rendering, and writing whole or not at all."""

from omni_kit.scaffold.new_model import Scaffold, new_model

__all__ = ["Scaffold", "new_model"]
