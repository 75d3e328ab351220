"""Scaffolds an integration: profile, file plan, rendering, and writing whole or not at all."""

from omni_kit.scaffold.new_model import Scaffold, new_model
from omni_kit.scaffold.update import Update, update

__all__ = ["Scaffold", "Update", "new_model", "update"]
