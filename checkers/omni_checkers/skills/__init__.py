"""Rules about agent skills: their form, and whether the names in them exist."""

from omni_checkers.skills.run import check_skills

__all__ = ["check_skills"]
